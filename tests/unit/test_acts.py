"""What is done once: gathered into few calls, never twice, never waiting for one another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from copilot.kube import Kube, Unavailable
from copilot.model import FailureReason, Kind, Target, TargetRef
from copilot.plan import NodeUpdate, PodDelete
from copilot.reconcile.acts import Announcer, Deleter, Notice, Teller
from copilot.slurm import Slurm, SlurmUnavailable

pytestmark = pytest.mark.looptime


class Scontrol(Slurm):
    """Each update takes 0.1 s."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], str | None]] = []
        self.away = False

    async def update(self, state: str, nodes: Sequence[str], reason: str | None = None) -> None:
        await asyncio.sleep(0.1)
        if self.away:
            raise SlurmUnavailable("slurmctld is away")
        self.calls.append((state, tuple(nodes), reason))


class Api(Kube):
    """Only what the acts use; fails while `away`."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str]] = []
        self.events: list[str] = []
        self.away = False

    async def delete(self, path: str, uid: str, grace: int | None = None) -> bool:
        if self.away:
            raise Unavailable("away")
        self.deleted.append((path, uid))
        return True

    async def create_event(self, involved: object, reason: str, message: str, warning: bool = False) -> None:
        if self.away:
            raise Unavailable("away")
        self.events.append(f"{reason}: {message}")


async def test_what_is_asked_while_scontrol_runs_goes_out_in_one_call() -> None:
    loop, slurm, done = asyncio.get_running_loop(), Scontrol(), []
    teller = Teller(slurm, loop.time, lambda: done.append(loop.time()))
    running = asyncio.create_task(teller.run())
    for index in range(100):
        teller.tell([NodeUpdate("resume", (f"a-{index}",))])
        await asyncio.sleep(0.001)
    assert not teller.told["a-99"].done
    await asyncio.sleep(1)
    assert len(slurm.calls) == 2
    assert sorted(name for _, nodes, _ in slurm.calls for name in nodes) == sorted(f"a-{index}" for index in range(100))
    assert teller.told["a-99"].done
    assert len(done) == 2
    running.cancel()


async def test_states_and_reasons_are_not_mixed() -> None:
    slurm = Scontrol()
    teller = Teller(slurm, asyncio.get_running_loop().time, lambda: None)
    teller.tell(
        [
            NodeUpdate("resume", ("a-1",)),
            NodeUpdate("power_down_force", ("a-2",), "copilot: pod_lost: gone"),
            NodeUpdate("resume", ("a-3",)),
        ]
    )
    running = asyncio.create_task(teller.run())
    await asyncio.sleep(1)
    assert slurm.calls == [("resume", ("a-1", "a-3"), None), ("power_down_force", ("a-2",), "copilot: pod_lost: gone")]
    running.cancel()


async def test_a_slurmctld_that_is_away_leaves_the_teller_alive_and_the_node_free_to_be_told_again() -> None:
    slurm = Scontrol()
    slurm.away = True
    teller = Teller(slurm, asyncio.get_running_loop().time, lambda: None)
    running = asyncio.create_task(teller.run())
    teller.tell([NodeUpdate("resume", ("a-1",))])
    await asyncio.sleep(1)
    assert teller.told["a-1"].done
    slurm.away = False
    teller.tell([NodeUpdate("resume", ("a-1",))])
    await asyncio.sleep(1)
    assert slurm.calls == [("resume", ("a-1",), None)]
    teller.forget([])
    assert teller.told == {}
    running.cancel()


async def test_a_pod_is_deleted_once_and_again_only_after_a_failure() -> None:
    api = Api()
    deleter = Deleter(api, "ns")
    running = asyncio.create_task(deleter.run())
    delete = PodDelete("a-1", "u1", FailureReason.STALE_POD)
    for _ in range(5):
        deleter.delete([delete])
        await asyncio.sleep(0.1)
    assert api.deleted == [("/api/v1/namespaces/ns/pods/a-1", "u1")]
    api.away = True
    other = PodDelete("a-2", "u2", FailureReason.STALE_POD)
    deleter.delete([other])
    await asyncio.sleep(0.5)
    api.away = False
    deleter.delete([other])
    await asyncio.sleep(2)
    assert len(api.deleted) == 1, "a second's pause lies between attempts"
    deleter.delete([other])
    await asyncio.sleep(0.1)
    assert len(api.deleted) == 2
    running.cancel()


async def test_events_are_dropped_rather_than_kept_while_the_api_server_is_away() -> None:
    api = Api()
    api.away = True
    announcer = Announcer(api)
    running = asyncio.create_task(announcer.run())
    target = Target(TargetRef(Kind.STATEFUL_SET, "ns", "a"), "u", 1, ())
    announcer.announce(Notice(target, "NodeFailed", str(number)) for number in range(1000))
    await asyncio.sleep(200)
    api.away = False
    announcer.announce([Notice(target, "NodeFailed", "last")])
    await asyncio.sleep(1)
    assert api.events == ["NodeFailed: last"]
    running.cancel()


async def test_the_same_event_is_created_once_in_ten_minutes() -> None:
    api = Api()
    announcer = Announcer(api)
    running = asyncio.create_task(announcer.run())
    target = Target(TargetRef(Kind.STATEFUL_SET, "ns", "a"), "u", 1, ())
    for pause in (1, 600, 1):
        announcer.announce([Notice(target, "NodeFailed", "a-1"), Notice(target, "NodeFailed", "a-1")])
        await asyncio.sleep(pause)
    assert api.events == ["NodeFailed: a-1", "NodeFailed: a-1"]
    running.cancel()


async def test_an_event_that_could_not_be_created_may_be_said_again() -> None:
    api = Api()
    api.away = True
    announcer = Announcer(api)
    running = asyncio.create_task(announcer.run())
    target = Target(TargetRef(Kind.STATEFUL_SET, "ns", "a"), "u", 1, ())
    announcer.announce([Notice(target, "NodeFailed", "a-1")])
    await asyncio.sleep(2)
    api.away = False
    announcer.announce([Notice(target, "NodeFailed", "a-1")])
    await asyncio.sleep(2)
    assert api.events == ["NodeFailed: a-1"]
    running.cancel()
