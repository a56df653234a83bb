"""Failures that a real control plane says in its own words: quota, admission policies, taints, and a controller that is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import FailureReason as R
from copilot.model import Kind
from tests.e2e import pace
from tests.e2e.conftest import make
from tests.e2e.failing import failed, freed, lines_of, told_everywhere
from tests.e2e.pace import until_there
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.endpoint import ApiError, Object, resource
from tests.lab.pod_status import CONTAINER

pytestmark = pytest.mark.real
OPTIONS = {**pace.OPTIONS, "ResumeTimeout": "300"}
GRACES = {"unschedulable_grace": "2", "quota_grace": "2", "rejected_grace": "2", "api_error_grace": "12"}
SETTINGS = {**pace.SETTINGS, **GRACES, "breaker_failures": "1000"}
QUOTAS = resource("v1", "resourcequotas", NAMESPACE)
ADMISSION = "admissionregistration.k8s.io/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.STATEFUL_SET}, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_a_controller_that_is_away(lab: Cluster) -> None:
    """No pod, and nobody who would say why. The first test: what a controller said in the last ten minutes would count, as it tells rarely."""
    assert lab.plane is not None
    await lab.plane.kill_component("controllers")
    try:
        job = await _submitted(lab, "cpu-9")
        await failed(lab, "cpu-9", R.API_ERROR)
    finally:
        await lab.plane.start_component("controllers")
    await _runs_again(lab, job, "cpu-9", R.API_ERROR, "does the controller of statefulset/slurm/cpu run?")


async def test_a_quota_that_is_used_up(lab: Cluster) -> None:
    """Told only by an Event on the set. The pod that has the room is left alone."""
    end = lab.folder / "end"
    first = await lab.sbatch("--nodelist=cpu-0", wrap=until_there(end))
    await lab.slurm.wait_job(first, "RUNNING")
    uid = (await lab.pods())["cpu-0"]["metadata"]["uid"]
    await lab.admin.post(QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})
    await lab.admin.until(f"{QUOTAS}/few", lambda quota: "pods" in quota.get("status", {}).get("used", {}))
    job = await _submitted(lab, "cpu-1")
    await failed(lab, "cpu-1", R.QUOTA)
    await lab.admin.delete(f"{QUOTAS}/few")
    await _runs_again(lab, job, "cpu-1", R.QUOTA, "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1")
    assert (await lab.pods())["cpu-0"]["metadata"]["uid"] == uid
    end.touch()
    await lab.slurm.wait_job(first, "COMPLETED")


async def test_a_policy_that_refuses_the_pod(lab: Cluster) -> None:
    async with _banned(lab, "pods", "CREATE", "object.metadata.name != 'cpu-2'") as refusal:
        job = await _submitted(lab, "cpu-2")
        await failed(lab, "cpu-2", R.REJECTED)
    await _runs_again(lab, job, "cpu-2", R.REJECTED, refusal)


async def test_a_policy_that_refuses_our_patch(lab: Cluster) -> None:
    async with _banned(lab, "statefulsets", "UPDATE", "object.spec.replicas == 0") as refusal:
        job = await _submitted(lab, "cpu-3")
        await failed(lab, "cpu-3", R.REJECTED)
    await _runs_again(lab, job, "cpu-3", R.REJECTED, refusal)


async def test_a_taint_that_no_pod_tolerates(lab: Cluster) -> None:
    node = resource("v1", "nodes", name="lab-node")
    await lab.admin.patch(node, {"spec": {"taints": [{"key": "broken", "effect": "NoSchedule"}]}})
    job = await _submitted(lab, "cpu-4")
    await failed(lab, "cpu-4", R.UNSCHEDULABLE)
    await lab.admin.patch(node, {"spec": {"taints": None}})
    await _runs_again(lab, job, "cpu-4", R.UNSCHEDULABLE, "0/1 nodes are available: 1 node(s) had untolerated taint")


async def _submitted(lab: Cluster, node: str) -> int:
    job = await lab.sbatch(f"--nodelist={node}")
    lab.audit.may_end(job, "COMPLETED")
    return job


async def _runs_again(lab: Cluster, job: int, node: str, reason: R, words: str) -> None:
    await told_everywhere(lab, node, reason, words)
    await freed(lab, node)
    done = await lab.slurm.wait_job(job, "COMPLETED", seconds=180)
    assert (done["Restarts"], len(lines_of(lab, "node_failed", node))) == ("1", 1)


@asynccontextmanager
async def _banned(lab: Cluster, plural: str, verb: str, unless: str) -> AsyncIterator[str]:
    """A ValidatingAdmissionPolicy is in force inside the block; its words."""
    group = {"pods": "", "statefulsets": "apps"}[plural]
    rules = [{"apiGroups": [group], "apiVersions": ["v1"], "operations": [verb], "resources": [plural]}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    policy = {
        "metadata": {"name": "ban"},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": unless, "message": "not today"}]},
    }
    spec = {"policyName": "ban", "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}}
    await lab.admin.post(resource(ADMISSION, "validatingadmissionpolicies"), policy)
    await lab.admin.post(resource(ADMISSION, "validatingadmissionpolicybindings"), {"metadata": {"name": "ban"}, "spec": spec})
    try:
        await lab.copilot.until("the policy to be in force", lambda: _refused(lab, plural))
        yield "ValidatingAdmissionPolicy 'ban' with binding 'ban' denied request: not today"
    finally:
        await lab.admin.delete(resource(ADMISSION, "validatingadmissionpolicybindings", name="ban"))
        await lab.admin.delete(resource(ADMISSION, "validatingadmissionpolicies", name="ban"))
        await lab.copilot.until("the policy to be gone", lambda: _accepted(lab, plural))


async def _accepted(lab: Cluster, plural: str) -> bool:
    return not await _refused(lab, plural)


async def _refused(lab: Cluster, plural: str) -> bool:
    """Whether what the policy is about is refused just now, tried without doing it."""
    pod: Object = {"metadata": {"name": "cpu-2"}, "spec": {"containers": [{"name": CONTAINER, "image": "slurm"}]}}
    try:
        if plural == "pods":
            await lab.admin.request("POST", resource("v1", "pods", NAMESPACE), pod, "application/json", {"dryRun": "All"})
        else:
            path = resource("apps/v1", "statefulsets", NAMESPACE, "cpu")
            await lab.admin.request("PATCH", path, {"spec": {"replicas": 9}}, "application/merge-patch+json", {"dryRun": "All"})
    except ApiError as error:
        return "not today" in str(error)
    return False
