"""`slurmctld-copilot check` on the real API server: each right that is missing is told as the rule that gives it, and targets as they are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from copilot.check import kubernetes
from copilot.check.finding import Finding, Level
from copilot.config import Settings
from copilot.kube import Kube
from tests.contract.conftest import CRDS, Api, cluster, stateful_set
from tests.contract.kube_fixture import kube_of
from tests.contract.test_rbac import Documents, Right, documents, rights, without
from tests.lab import kruise
from tests.lab.access import bind_role, write_kubeconfig
from tests.lab.endpoint import Admin, resource

SETTINGS = Settings()
LABEL = dict([SETTINGS.worker_label.split("=")])
on_the_real_server = pytest.mark.parametrize("real_plane", ["real"], indirect=True)


async def advanced_sets(admin: Admin) -> dict[str, Any]:
    """OpenKruise's definition of the Advanced StatefulSet, without its manager; it stays, as it does after `Kruise.stop`."""
    home = kruise.installed()
    if home is None:
        pytest.skip(kruise.missing())
    name = "statefulsets.apps.kruise.io"
    if not await admin.exists(f"{CRDS}/{name}"):
        [definition] = [each for each in kruise.documents(home / "config/crd/bases") if each["metadata"]["name"] == name]
        await admin.post(CRDS, definition)
    await admin.until(resource(kruise.API, "statefulsets"), bool)
    return dict(await admin.get(f"{CRDS}/{name}"))


async def look_with(api: Api, role: Documents) -> dict[str, Finding]:
    """What is found by an account that has exactly this Role, by name."""
    token = await bind_role(api.admin, api.namespace, role)
    path = api.endpoint.kubeconfig_path.with_name(api.namespace)
    write_kubeconfig(path, api.endpoint.url, api.endpoint.ca_file, token, api.namespace)
    kube = await Kube.connect(kubeconfig=path)
    try:
        return {finding.name: finding for finding in (await kubernetes.look(kube, SETTINGS)).findings}
    finally:
        await kube.close()


def with_rules(role: Documents, printed: str) -> Documents:
    """The Role after an administrator added what was printed below the first line."""
    changed = copy.deepcopy(role)
    [wanted] = [document for document in changed if document["kind"] == "Role"]
    wanted["rules"] += yaml.safe_load(printed.partition("\n")[2])
    return changed


@on_the_real_server
@pytest.mark.parametrize("right", rights(documents()), ids=str)
async def test_a_verb_that_is_missing_is_told_and_what_is_printed_gives_it(api: Api, right: Right) -> None:
    await advanced_sets(api.admin)
    lacking = without(right)
    told = (await look_with(api, lacking))["kube_rights"]
    assert (told.level, told.seen) == (Level.ERROR, f"missing: {right}")
    mended = (await look_with(api, with_rules(lacking, told.cure)))["kube_rights"]
    assert mended.level is Level.OK, mended


@on_the_real_server
async def test_an_account_without_any_right_is_told_all_of_them(api: Api) -> None:
    await advanced_sets(api.admin)
    role = [{**document, "rules": []} if document["kind"] == "Role" else document for document in documents()]
    told = await look_with(api, role)
    assert {str(right) for right in rights(documents())} == set(told["kube_rights"].seen.removeprefix("missing: ").split(", "))
    assert (await look_with(api, with_rules(role, told["kube_rights"].cure)))["kube_rights"].level is Level.OK


async def test_targets_are_told_by_their_groups_and_what_is_wrong_with_them(api: Api) -> None:
    async with kube_of(api) as (kube, _):
        before = {each.name: each for each in (await kubernetes.look(kube, SETTINGS)).findings}
        assert before["targets"].level is Level.ERROR
        assert SETTINGS.worker_label in before["targets"].seen
        labelled = stateful_set("gpu")
        labelled["metadata"]["labels"] = {**labelled["metadata"].get("labels", {}), **LABEL}
        labelled["spec"]["podManagementPolicy"] = "OrderedReady"
        await api.admin.post(api.sets(), labelled)
        await api.admin.post(api.clusters(), cluster("demo", "cpu"))
        seen = await kubernetes.look(kube, SETTINGS)
        after = {each.name: each for each in seen.findings}
        assert (after["targets"].level, after["targets"].seen) == (Level.OK, "groups demo-worker-cpu, gpu")
        assert (after["parallel"].level, after["parallel"].cure) == (Level.WARNING, "podManagementPolicy: Parallel")
        assert after["kube_version"].level is Level.OK
        assert seen.clock is not None


@on_the_real_server
async def test_a_server_that_drops_reserve_ordinals_is_told(api: Api) -> None:
    """As an OpenKruise does that is older than the field; the definition is put back, because other tests share the server."""
    whole = await advanced_sets(api.admin)
    name = f"{CRDS}/{whole['metadata']['name']}"
    advanced = stateful_set("gpu") | {"apiVersion": kruise.API}
    advanced["metadata"]["labels"] = LABEL
    await api.admin.post(api.path(kruise.API, "statefulsets"), advanced)

    async def level(expected: Level) -> Finding:
        """A changed definition is in effect some moments later."""
        async with kube_of(api) as (kube, _):
            for _ in range(600):
                [found] = [each for each in (await kubernetes.look(kube, SETTINGS)).findings if each.name == "kruise_ordinals"]
                if found.level is expected:
                    return found
        raise AssertionError(f"never {expected}: {found}")

    await level(Level.OK)
    versions = copy.deepcopy(whole["spec"]["versions"])
    for version in versions:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("reserveOrdinals", None)
    await api.admin.patch(name, {"spec": {"versions": versions}})
    try:
        assert "drops reserveOrdinals" in (await level(Level.ERROR)).seen
    finally:
        await api.admin.patch(name, {"spec": {"versions": whole["spec"]["versions"]}})
    await level(Level.OK)
    # made without OpenKruise's webhook, it has no defaults, which its manager does not survive: another module starts one
    await api.admin.delete(api.path(kruise.API, "statefulsets", "gpu"))
