"""The ValidatingAdmissionPolicy: what the copilot's own token may do, and what not even with every right in the namespace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from copilot import targets
from copilot.kube import Kube
from copilot.model import Kind, TargetRef
from tests.lab.access import bind_role, write_kubeconfig
from tests.lab.endpoint import JSON_PATCH, Admin, ApiError, resource
from tests.manifests.conftest import MANIFESTS, NAMESPACE, Kubectl, Object, build

ACCOUNT = "slurmctld-copilot"
CPU = resource("apps/v1", "statefulsets", NAMESPACE, "cpu")
SPARSE = resource("apps.kruise.io/v1beta1", "statefulsets", NAMESPACE, "sparse")
CLUSTER = resource("kai.alibabacloud.com/v1", "slurmclusters", NAMESPACE, "slurm")
PODS = resource("v1", "pods", NAMESPACE)
BINDINGS = resource("rbac.authorization.k8s.io/v1", "rolebindings", NAMESPACE)
REFUSED = f"ValidatingAdmissionPolicy '{ACCOUNT}'"
GROUPS = "/spec/workerGroupSpecs"
CONTAINER = "/spec/template/spec/containers/0"


@dataclass(frozen=True, slots=True)
class Request:
    """Something that would change the cluster."""

    verb: str
    path: str
    body: object = None
    dry: bool = True

    async def answer(self, client: Admin) -> str:
        """The server's complaint, "" when it would do so. Nothing is done, in a dry run."""
        kind = JSON_PATCH if self.verb == "PATCH" else "application/json"
        try:
            await client.request(self.verb, self.path, self.body, kind, {"dryRun": "All"} if self.dry else {})
        except ApiError as error:
            return str(error)
        return ""


def put(path: str, field: str, value: object) -> Request:
    """Sets a field, whether it is there or not; the field is a JSON pointer."""
    return Request("PATCH", path, [{"op": "add", "path": field, "value": value}])


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl) -> Kubectl:
    """The demo, and the SlurmCluster of the other overlay beside it."""
    kubectl("apply", "--validate=strict", "-k", MANIFESTS / "overlays/demo")
    (cluster,) = (one for one in build(MANIFESTS / "overlays/ack") if one["kind"] == "SlurmCluster")
    kubectl("apply", "--validate=strict", "-f", "-", text=json.dumps(cluster))
    return kubectl


@asynccontextmanager
async def almighty(admin: Admin, account: str) -> AsyncIterator[Admin]:
    """A client of an account with every right in the namespace, as if somebody had been careless."""
    token = await bind_role(admin, NAMESPACE, [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}])
    binding: Object = {
        "metadata": {"name": f"everything-{account}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }
    await admin.post(BINDINGS, binding)
    try:
        async with Admin(admin.endpoint, token) as client:
            yield client
    finally:
        await admin.delete(f"{BINDINGS}/everything-{account}")


async def until_answered(client: Admin, words: str) -> None:
    """Rights take milliseconds to be in effect and a policy seconds; until then a relabelled set is answered otherwise."""
    answer = "never asked"
    try:
        async with asyncio.timeout(30):
            while words not in (answer := await RELABEL.answer(client)) or (answer and not words):  # noqa: ASYNC110 - the server's doing
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"still answered {answer!r}, not {words!r}") from None


@pytest.fixture
async def copilot(installed: Kubectl, admin: Admin) -> AsyncIterator[Admin]:
    assert installed
    async with almighty(admin, ACCOUNT) as client:
        await until_answered(client, REFUSED)
        yield client


@pytest.fixture
async def other(installed: Kubectl, admin: Admin) -> AsyncIterator[Admin]:
    assert installed
    async with almighty(admin, "other") as client:
        await until_answered(client, "")
        yield client


RELABEL = put(CPU, "/metadata/labels/x", "y")
POD = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "x:1"}]}}
EVERYTHING = {
    "metadata": {"name": "x"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
}
REFUSALS = {
    "a label of a set": RELABEL,
    "an annotation of a set": put(SPARSE, "/metadata/annotations/x", "y"),
    "a finalizer": put(CPU, "/metadata/finalizers", ["example.org/x"]),
    "an image of a set": put(CPU, f"{CONTAINER}/image", "evil:1"),
    "an image of an Advanced StatefulSet": put(SPARSE, f"{CONTAINER}/image", "evil:1"),
    "an image of a SlurmCluster's workers": put(CLUSTER, f"{GROUPS}/1{CONTAINER.removeprefix('/spec')}/image", "evil:1"),
    "an image of its head": put(CLUSTER, f"/spec/headGroupSpec{CONTAINER.removeprefix('/spec')}/image", "evil:1"),
    "a label of the template": put(CPU, "/spec/template/metadata/labels/x", "y"),
    "an init container": put(SPARSE, "/spec/template/spec/initContainers", [{"name": "x", "image": "x:1"}]),
    "the update strategy": put(CPU, "/spec/updateStrategy", {"type": "RollingUpdate"}),
    "a field that was not there": put(CPU, "/spec/minReadySeconds", 7),
    "a field that is gone": Request("PATCH", CLUSTER, [{"op": "remove", "path": "/spec/slurmConfPath"}]),
    "another field of a SlurmCluster": put(CLUSTER, "/spec/mungeConfPath", "/x"),
    "a group's bounds": put(CLUSTER, f"{GROUPS}/0/maxReplicas", 9),
    "a group's name": put(CLUSTER, f"{GROUPS}/0/groupName", "x"),
    "one more group": put(CLUSTER, f"{GROUPS}/-", {"groupName": "x"}),
    "one group less": Request("PATCH", CLUSTER, [{"op": "remove", "path": f"{GROUPS}/1"}]),
    "no groups": Request("PATCH", CLUSTER, [{"op": "remove", "path": GROUPS}]),
    "deletion of a set": Request("DELETE", CPU),
    "deletion of the head": Request("DELETE", f"{PODS}/head-0"),
    "deletion of the database": Request("DELETE", f"{PODS}/mariadb-0"),
    "a head made a worker": put(f"{PODS}/head-0", "/metadata/labels/app.kubernetes.io~1component", "slurmd"),
    "a pod": Request("POST", PODS, POD),
    "a right": Request("POST", BINDINGS, EVERYTHING),
    "a Secret": Request("POST", resource("v1", "secrets", NAMESPACE), {"metadata": {"name": "x"}}),
}


@pytest.mark.parametrize("request_", REFUSALS.values(), ids=REFUSALS)
async def test_the_policy_refuses_the_copilot_alone(copilot: Admin, other: Admin, request_: Request) -> None:
    """Not for want of rights: an account with the same rights that is not the copilot may do it."""
    await copilot.until(f"{PODS}/head-0", bool)
    answer = await request_.answer(copilot)
    assert answer.startswith("403") and REFUSED in answer, answer
    assert await request_.answer(other) == ""


async def test_a_shell_in_a_pod_is_refused(copilot: Admin, other: Admin) -> None:
    # There is no kubelet that could run it, and no dry run of it either.
    shell = Request("POST", f"{PODS}/head-0/exec?command=sh&stdout=true", dry=False)
    await copilot.until(f"{PODS}/head-0", bool)
    assert REFUSED in await shell.answer(copilot)
    assert REFUSED not in await shell.answer(other)


async def kube_of(admin: Admin, folder: Path) -> Kube:
    """The copilot's own client with the rights that the manifests give and the policy in effect."""
    answer = await admin.post(
        resource("v1", "serviceaccounts", NAMESPACE, ACCOUNT, "token"), {"spec": {"expirationSeconds": 3600}}
    )
    endpoint = admin.endpoint
    return await Kube.connect(
        kubeconfig=write_kubeconfig(folder / "kubeconfig", endpoint.url, endpoint.ca_file, answer["status"]["token"], NAMESPACE)
    )


SCALED = [
    (Kind.STATEFUL_SET, "cpu", "cpu"),
    (Kind.ADVANCED_STATEFUL_SET, "sparse", "sparse"),
    (Kind.SLURM_CLUSTER, "slurm", "slurm-worker-gpu"),
]


@pytest.mark.parametrize(("kind", "name", "group"), SCALED)
async def test_scaling_works(copilot: Admin, admin: Admin, tmp_path: Path, kind: Kind, name: str, group: str) -> None:
    """By what the copilot really sends; `copilot` is there because with it the policy is known to be in effect."""
    assert copilot
    ref = TargetRef(kind, NAMESPACE, name)
    kube = await kube_of(admin, tmp_path)
    try:
        for wanted in ({2, 5}, {3}, set[int]()):
            before = await kube.get(targets.path(ref))
            operations = targets.patch(kind, before, {group: wanted}, {group: {5}}, ordinals=True)
            assert operations
            assert targets.says(kind, await kube.patch(targets.path(ref), operations), {group: wanted})
    finally:
        await kube.close()


async def test_a_worker_may_be_deleted_and_an_event_told(copilot: Admin, admin: Admin, tmp_path: Path) -> None:
    assert copilot
    await admin.patch(CPU, {"spec": {"replicas": 1, "ordinals": {"start": 7}}})
    worker = await admin.until(f"{PODS}/cpu-7", bool)
    kube = await kube_of(admin, tmp_path)
    try:
        assert await kube.delete(f"{PODS}/cpu-7", worker["metadata"]["uid"])
        owner = targets.involved(TargetRef(Kind.STATEFUL_SET, NAMESPACE, "cpu"), (await admin.get(CPU))["metadata"]["uid"])
        await kube.create_event(owner, "Test", "of the policy")
    finally:
        await kube.close()


OWNED = [
    ("slurm-worker-cpu-3", "SlurmCluster", ""),
    ("slurm-head", "SlurmCluster", REFUSED),
    ("slurm-worker-cpu-4", "Job", REFUSED),
]


@pytest.mark.parametrize(("name", "kind", "said"), OWNED)
async def test_a_slurmcluster_s_workers_are_known_without_a_label(
    copilot: Admin, admin: Admin, name: str, kind: str, said: str
) -> None:
    """Its operator may not carry the template's labels to the pods."""
    owner = {"apiVersion": "x.example.org/v1", "kind": kind, "name": "slurm", "uid": "u", "controller": True}
    await admin.post(PODS, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": POD["spec"]})
    try:
        answer = await Request("DELETE", f"{PODS}/{name}").answer(copilot)
        assert said in answer and bool(said) == bool(answer)
    finally:
        if await admin.exists(f"{PODS}/{name}"):
            await admin.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
