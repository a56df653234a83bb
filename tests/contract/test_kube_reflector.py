"""A collection kept in memory: on both servers what happens, and what happens to the connection on the embedded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from copilot.kube import Kube, Reflector, Selection, State
from tests.contract.conftest import Api, pod
from tests.contract.kube_fixture import kube_of, name_and_labels, running, until
from tests.lab.controlplane import ControlPlane
from tests.lab.embedded import Action, EmbeddedServer
from tests.lab.endpoint import Admin, resource

PODS = resource("v1", "pods", "hpc")
LABEL = {"app": "gpu"}
Labels = dict[str, str]


async def test_follows_what_is_created_changed_and_deleted(api: Api) -> None:
    await api.admin.post(api.pods(), pod("gpu-0", LABEL))
    await api.admin.post(api.pods(), pod("other", {"app": "other"}))
    changes: list[State] = []
    async with kube_of(api) as (kube, seen):
        mirror: Reflector[Labels] = Reflector(
            kube,
            api.pods(),
            name_and_labels,
            selection=Selection(labels="app=gpu"),
            on_change=lambda: changes.append(mirror.state),
        )
        assert not mirror.synced
        async with running(mirror):
            await until(lambda: mirror.synced, "the first list")
            assert dict(mirror.items) == {"gpu-0": LABEL}
            await api.admin.post(api.pods(), pod("gpu-1", LABEL))
            await until(lambda: "gpu-1" in mirror.items, "a pod that came")
            await api.admin.patch(api.pods("gpu-1"), {"metadata": {"labels": {"rack": "7"}}})
            await until(lambda: mirror.items["gpu-1"].get("rack") == "7", "a change")
            await api.admin.patch(api.pods("gpu-1"), {"metadata": {"labels": {"app": "other"}}})
            await until(lambda: "gpu-1" not in mirror.items, "a pod that is no longer ours")
            await api.admin.delete(api.pods("gpu-0"), gracePeriodSeconds="0")
            await until(lambda: not mirror.items, "a pod that went")
        assert seen.count(("list", "")) == 1
        assert changes, "nobody was told"
        assert set(changes) == {State.SYNCED}


async def test_a_new_list_on_request_keeps_what_is_known(api: Api) -> None:
    await api.admin.post(api.pods(), pod("gpu-0", LABEL))
    async with kube_of(api) as (kube, seen):
        mirror = Reflector(kube, api.pods(), name_and_labels)
        async with running(mirror):
            await until(lambda: mirror.synced, "the first list")
            mirror.refresh()
            await until(lambda: seen.count(("list", "")) == 2, "the second list")
            assert dict(mirror.items) == {"gpu-0": LABEL}
            await api.admin.post(api.pods(), pod("gpu-1", LABEL))
            await until(lambda: "gpu-1" in mirror.items, "the watch after it")


async def test_a_kind_that_is_not_there_is_known_to_be_empty_and_asked_for_now_and_then(api: Api) -> None:
    path = api.path("apps.kruise.io/v1alpha9", "statefulsets")
    async with kube_of(api) as (kube, seen):
        mirror = Reflector(kube, path, name_and_labels, refused_pause=0.05)
        async with running(mirror):
            await until(lambda: seen.count(("list", "404")) >= 2, "a second question")
            assert (mirror.state, mirror.synced, mirror.settled) == (State.ABSENT, True, True)
            assert "CustomResourceDefinition" in mirror.problem


async def test_what_may_not_be_read_is_never_called_empty(api: Api) -> None:
    async with kube_of(api) as (kube, _):
        mirror = Reflector(kube, resource("v1", "pods", "default"), name_and_labels)
        async with running(mirror):
            await until(lambda: mirror.settled, "an answer")
            assert (mirror.state, mirror.synced) == (State.REFUSED, False)
            assert "verbs: [list]" in mirror.problem


async def test_goes_on_after_the_server_was_restarted(api: Api) -> None:
    async with kube_of(api) as (kube, _):
        states: list[State] = []
        mirror: Reflector[Labels] = Reflector(kube, api.pods(), name_and_labels, on_change=lambda: states.append(mirror.state))
        async with running(mirror):
            await until(lambda: mirror.synced, "the first list")
            await api.admin.post(api.pods(), pod("gpu-0", LABEL))
            await until(lambda: mirror.items, "the watch")
            if isinstance(api.server, ControlPlane):
                await api.server.kill_component("apiserver")
                await api.server.start_component("apiserver")
            else:
                await api.server.pause()
                await api.server.resume()
            await until(lambda: State.BROKEN in states, "the loss")
            assert dict(mirror.items) == {"gpu-0": LABEL}
            await api.admin.post(api.pods(), pod("gpu-1", LABEL))
            await until(lambda: mirror.state is State.SYNCED and "gpu-1" in mirror.items, "the watch after it", within=40)
        # A server that has just started forbids everything for a moment: that is no news.
        assert State.REFUSED not in states


@dataclass
class Lab:
    server: EmbeddedServer
    admin: Admin
    mirror: Reflector[Any]

    async def cut(self) -> None:
        """Every connection; the administrator's client finds that out by a request that does no harm."""
        self.server.cut_connections()
        await self.admin.get("/readyz")

    def lists(self) -> int:
        """How often the copilot has listed."""
        return len([one for one in self.server.requests("list") if "copilot" in one.user])


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """A reflector of pods on an embedded server of its own, synced."""
    async with EmbeddedServer(tmp_path) as server, Admin(server.endpoint) as admin:
        kube = await Kube.connect(kubeconfig=await server.kubeconfig("hpc"), timeout=1.0)
        mirror = Reflector(kube, PODS, name_and_labels, silence=2.0)
        async with running(mirror):
            await until(lambda: mirror.synced, "the first list")
            await admin.post(PODS, pod("gpu-0", LABEL))
            await until(lambda: mirror.items, "the watch")
            yield Lab(server, admin, mirror)
        await kube.close()


async def test_a_cut_watch_goes_on_where_it_was(lab: Lab) -> None:
    cut = lab.server.faults.add(Action.CUT_WATCH)
    await lab.cut()
    await lab.admin.post(PODS, pod("gpu-1", LABEL))
    await until(lambda: cut.fired and "gpu-1" in lab.mirror.items, "the pod whose event was cut in the middle")
    assert lab.lists() == 1, "the version was still good"


async def test_410_at_the_start_of_a_watch_leads_to_a_new_list(lab: Lab) -> None:
    lab.server.faults.add(Action.GONE, verb="watch")
    await lab.cut()
    await lab.admin.post(PODS, pod("gpu-1", LABEL))
    await until(lambda: "gpu-1" in lab.mirror.items, "the pod")
    assert lab.lists() == 2


async def test_a_history_that_was_compacted_meanwhile_is_listed_anew(lab: Lab) -> None:
    held = lab.server.faults.add(Action.HANG, verb="watch", times=None)
    await lab.cut()
    await lab.admin.delete(f"{PODS}/gpu-0")
    await lab.admin.post(PODS, pod("gpu-1", LABEL))
    lab.server.compact()
    lab.server.faults.remove(held)
    await until(lambda: set(lab.mirror.items) == {"gpu-1"}, "what is there now, and no more what is gone")
    assert lab.lists() == 2


async def test_a_watch_that_falls_silent_is_opened_again(lab: Lab) -> None:
    hang = lab.server.faults.add(Action.HANG, verb="watch", times=1)
    await lab.cut()
    await until(lambda: hang.fired, "a watch that hangs")
    await lab.admin.post(PODS, pod("gpu-1", LABEL))
    await until(lambda: "gpu-1" in lab.mirror.items, "the pod")


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_an_error_for_an_answer_is_no_event(lab: Lab, status: int) -> None:
    fault = lab.server.faults.add(Action.STATUS, verb="watch|list", status=status, times=2)
    await lab.cut()
    await until(lambda: fault.fired == 2, "two refusals")
    assert set(lab.mirror.items) == {"gpu-0"}
    await lab.admin.post(PODS, pod("gpu-1", LABEL))
    await until(lambda: "gpu-1" in lab.mirror.items, "the pod")


async def test_a_role_that_is_taken_away_is_told_after_a_while_and_nothing_is_forgotten(lab: Lab) -> None:
    fault = lab.server.faults.add(Action.STATUS, verb="watch|list", status=403, times=None)
    await lab.cut()
    await until(lambda: lab.mirror.state is State.REFUSED, "the refusal")
    assert set(lab.mirror.items) == {"gpu-0"}
    assert fault.fired >= 4
