"""The Role that the manifests ship: with it everything works, and without any one of its verbs something does not."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from copilot import targets
from copilot.kube import Kube, Refused
from copilot.model import Kind, TargetRef
from tests.contract.conftest import Api, cluster, pod, stateful_set
from tests.contract.kube_fixture import kube_of
from tests.lab.access import bind_role, write_kubeconfig
from tests.lab.controlplane import TREE
from tests.lab.endpoint import Admin, ApiError, resource

MANIFEST = TREE / "manifests/base/rbac.yaml"
Documents = list[dict[str, Any]]
Call = Callable[[Kube, str], Awaitable[object]]
# The kinds of targets by their rule in the Role.
KINDS = {
    ("apps", "statefulsets"): Kind.STATEFUL_SET,
    ("apps.kruise.io", "statefulsets"): Kind.ADVANCED_STATEFUL_SET,
    ("kai.alibabacloud.com", "slurmclusters"): Kind.SLURM_CLUSTER,
}


@dataclass(frozen=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}.{self.group}".rstrip(".")


def documents() -> Documents:
    return [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document]


def rights(of: Documents) -> list[Right]:
    rules = [rule for document in of if document["kind"] == "Role" for rule in document["rules"]]
    return [
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def without(right: Right) -> Documents:
    """The manifest with one verb less."""
    changed = copy.deepcopy(documents())
    for document in changed:
        for rule in document.get("rules", ()):
            if right.group in rule["apiGroups"] and right.resource in rule["resources"]:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb != right.verb]
        if "rules" in document:
            document["rules"] = [rule for rule in document["rules"] if rule["verbs"]]
    return changed


async def watch(kube: Kube, path: str) -> None:
    """Opens a watch as the reflector does; the server has judged the right before it answers."""
    async with kube.stream(path, [("watch", "true"), ("resourceVersion", "0"), ("timeoutSeconds", "1")], silence=5):
        pass


def call_for(right: Right, namespace: str) -> Callable[[Kube], Awaitable[object]]:
    """The product's own call that needs the right."""
    kind = KINDS.get((right.group, right.resource))
    collection = targets.collection(kind, namespace) if kind else resource("v1", right.resource, namespace)
    one = targets.path(TargetRef(kind, namespace, "gpu")) if kind else f"{collection}/gpu-0"
    involved = targets.involved(TargetRef(Kind.STATEFUL_SET, namespace, "gpu"), "uid")
    calls: dict[str, Callable[[Kube], Awaitable[object]]] = {
        "get": lambda kube: kube.get(one),
        "list": lambda kube: kube.list(collection),
        "watch": lambda kube: watch(kube, collection),
        "patch": lambda kube: kube.patch(one, [{"op": "test", "path": "/metadata/name", "value": "gpu"}]),
        "delete": lambda kube: kube.delete(one, "no-such-uid"),
        "create": lambda kube: kube.create_event(involved, "Test", "of the right to tell something"),
    }
    return calls[right.verb]


async def refusal(kube: Kube, right: Right, namespace: str) -> Refused | None:
    """403, or None for anything else: a missing object or a conflict were looked at after the right was found."""
    try:
        await call_for(right, namespace)(kube)
    except Exception as error:  # noqa: BLE001 - only one answer matters here
        return error if isinstance(error, Refused) and error.status == 403 else None
    return None


async def fill(api: Api) -> None:
    await api.admin.post(api.sets(), stateful_set("gpu"))
    await api.admin.post(api.clusters(), cluster("gpu", "cpu"))
    await api.admin.post(api.pods(), pod("gpu-0"))


@pytest.mark.parametrize("real_plane", ["real"], indirect=True)
@pytest.mark.parametrize("right", rights(documents()), ids=str)
async def test_each_verb_is_needed(api: Api, right: Right) -> None:
    token = await bind_role(api.admin, api.namespace, without(right))
    kubeconfig = write_kubeconfig(
        api.endpoint.kubeconfig_path.with_name(api.namespace), api.endpoint.url, api.endpoint.ca_file, token, api.namespace
    )
    kube = await Kube.connect(kubeconfig=kubeconfig)
    try:
        others = {str(other): await refusal(kube, other, api.namespace) for other in rights(documents()) if other != right}
        assert set(others.values()) == {None}, others
        error = await refusal(kube, right, api.namespace)
        assert error is not None, f"{right} was not needed"
        group = right.group or '""'
        assert f"{{apiGroups: [{group}], resources: [{right.resource}], verbs: [{right.verb}]}}" in str(error)
    finally:
        await kube.close()


async def test_the_role_is_enough_for_every_call(api: Api) -> None:
    await fill(api)
    async with kube_of(api) as (kube, _):
        refused = {str(right): str(await refusal(kube, right, api.namespace)) for right in rights(documents())}
        assert set(refused.values()) == {"None"}, refused


FORBIDDEN = [
    ("GET", "v1", "secrets", ""),
    ("GET", "v1", "configmaps", ""),
    ("POST", "v1", "pods", ""),
    ("DELETE", "apps/v1", "statefulsets", "gpu"),
    ("PUT", "apps/v1", "statefulsets", "gpu"),
    ("DELETE", "kai.alibabacloud.com/v1", "slurmclusters", "gpu"),
    ("PATCH", "v1", "pods", "gpu-0"),
    ("POST", "v1", "pods", "gpu-0/exec"),
    ("GET", "v1", "nodes", ""),
    ("POST", "rbac.authorization.k8s.io/v1", "rolebindings", ""),
]


@pytest.mark.parametrize(("verb", "group_version", "plural", "name"), FORBIDDEN, ids=lambda value: str(value) or "-")
async def test_nothing_else_is_allowed(api: Api, verb: str, group_version: str, plural: str, name: str) -> None:
    token = await api.server.service_account(api.namespace)
    namespace = "" if plural == "nodes" else api.namespace
    async with Admin(api.endpoint, token) as account:
        with pytest.raises(ApiError) as caught:
            await account.request(verb, resource(group_version, plural, namespace, name))
    assert caught.value.status == 403
