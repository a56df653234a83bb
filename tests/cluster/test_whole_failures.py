"""What a real scheduler, kubelet and quota say of pods that cannot start, and of one that is evicted under its job: told to Slurm in seconds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.node import kubectl
from tests.lab.whole import overlay
from tests.lab.whole.overlay import NAMESPACE

SETTINGS: Final = {
    "COPILOT_BREAKER_FAILURES": 100,
    # Workers that can register need a few seconds.
    "COPILOT_REGISTRATION_TIMEOUT": 25,
    **{f"COPILOT_{name}_GRACE": 5 for name in ("UNSCHEDULABLE", "QUOTA", "IMAGE_PULL", "CONTAINER_CONFIG", "CRASH_LOOP")},
}
# None of those that other modules have used of late: it would have to be idle for SuspendTime first.
NODE: Final = "cpu-9"
# Not ended by preStop's SIGTERM: it stays until its pod is killed.
STAYS: Final = "trap : TERM; while :; do sleep 1; done"
_SECRET: Final = {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "x"}}}
TEMPLATES: Final[dict[str, dict[str, Any]]] = {
    "image_pull": {"image": "slurm:no-such-tag"},
    "container_config": {"env": [_SECRET]},
    "crash_loop": {"command": ["false"]},
    "unschedulable": {"resources": {"requests": {"cpu": "500"}, "limits": {"cpu": "500"}}},
}
WORDS: Final = {
    "image_pull": "no-such-tag",
    "container_config": "no-such-secret",
    "crash_loop": "exit code 1",
    "unschedulable": "Insufficient cpu",
}


@pytest.fixture(scope="module")
def hasty(whole: Whole) -> Iterator[Whole]:
    """The copilot with graces of five seconds."""

    def settings(*words: str) -> None:
        whole.kubectl("set", "env", "statefulset/head", "-c", "copilot", *words)
        whole.kubectl("rollout", "status", "statefulset/head", "--timeout=180s")

    settings(*(f"{name}={value}" for name, value in SETTINGS.items()))
    try:
        yield whole
    finally:
        settings(*(f"{name}-" for name in SETTINGS))


def failures(whole: Whole) -> list[dict[str, Any]]:
    """What the copilot has logged of nodes that failed."""
    lines = whole.kubectl("logs", "head-0", "-c", "copilot").splitlines()
    return [parsed for line in lines if '"node_failed"' in line and NODE in (parsed := json.loads(line))["nodes"]]


def idle(whole: Whole) -> None:
    """The node is off and usable, and has no pod."""
    until(lambda: whole.node_states()[NODE] == "idle~" and NODE not in whole.workers(), f"{NODE} to be idle~", 150)


def fails(whole: Whole, reason: str, words: str) -> None:
    """A job asks for the node; it fails for the reason and is told in these words, its job is requeued, and it is idle again."""
    before = len(failures(whole))
    job = whole.submit(f"-w {NODE}", "true")
    try:
        until(lambda: len(failures(whole)) > before, f"{NODE} to fail: {reason}", 90)
        line = failures(whole)[-1]
        assert (line["reason"], words in line["message"]) == (reason, True), line
        until(lambda: whole.field(job, "Restarts") == "1", f"job {job} to be requeued")
    finally:
        whole.head(f"scancel {job}")
    idle(whole)
    told = whole.kubectl(
        "get", "events", "--field-selector=reason=NodeFailed,involvedObject.name=cpu", "-o", "jsonpath={.items[*].message}"
    )
    assert f"{reason}: " in told


@contextmanager
def template(whole: Whole, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """The template of the node's StatefulSet with a change to its pod; afterwards as it was."""

    def put(pod: dict[str, Any]) -> None:
        patch = [{"op": "replace", "path": "/spec/template/spec", "value": pod}]
        whole.kubectl("patch", "statefulset", "cpu", "--type=json", "-p", json.dumps(patch))

    before = json.loads(whole.kubectl("get", "statefulset", "cpu", "-o", "json"))["spec"]["template"]["spec"]
    changed = copy.deepcopy(before)
    change(changed)
    put(changed)
    try:
        yield
    finally:
        put(before)


@pytest.mark.parametrize("reason", TEMPLATES)
def test_a_template_that_cannot_start(hasty: Whole, reason: str) -> None:
    idle(hasty)

    def change(pod: dict[str, Any]) -> None:
        slurmd = pod["containers"][0]
        slurmd |= {**TEMPLATES[reason], "env": [*slurmd["env"], *TEMPLATES[reason].get("env", [])]}

    with template(hasty, change):
        fails(hasty, reason, WORDS[reason])


def test_a_worker_with_another_munge_key(hasty: Whole) -> None:
    idle(hasty)
    hasty.kubectl("create", "secret", "generic", "another-key", f"--from-literal=munge.key={'no key of this cluster. ' * 50}")

    def change(pod: dict[str, Any]) -> None:
        (volume,) = (one for one in pod["volumes"] if one["name"] == "munge-key")
        volume["secret"]["secretName"] = "another-key"

    try:
        with template(hasty, change):
            fails(hasty, "registration_timeout", "munge key")
    finally:
        hasty.kubectl("delete", "secret", "another-key")


def test_a_taint_that_no_worker_tolerates(hasty: Whole) -> None:
    idle(hasty)
    hasty.kubectl("taint", "nodes", "--all", "lab=full:NoSchedule")
    try:
        fails(hasty, "unschedulable", "untolerated taint")
    finally:
        hasty.kubectl("taint", "nodes", "--all", "lab-")


def test_a_quota_that_is_full(hasty: Whole) -> None:
    idle(hasty)
    # A worker that goes would make room. (The pod of a node that slurm.conf no longer has stays.)
    until(lambda: not hasty.workers() & hasty.node_states().keys(), "the workers of earlier tests to be powered down", 240)
    hasty.kubectl("create", "quota", "full", f"--hard=pods={len(hasty.pods())}")
    try:
        fails(hasty, "quota", "exceeded quota")
    finally:
        hasty.kubectl("delete", "quota", "full")


def records(whole: Whole, job: int) -> str:
    """The states of all starts of a job, as sacct has them."""
    return whole.ssh(f"sacct -D -X -n -P -j {job} -o state").stdout


def test_a_pod_that_is_evicted_under_its_job(hasty: Whole) -> None:
    """The job is requeued at once, by preStop. That it does not end is no reason for its node to wait for SlurmdTimeout."""
    idle(hasty)
    with template(hasty, lambda pod: pod.update(terminationGracePeriodSeconds=5)):
        job = hasty.submit(f"-w {NODE}", STAYS)
        hasty.until_state(job, "RUNNING", 90)
    before = len(failures(hasty))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": NODE, "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{NODE}/eviction"
    kubectl(hasty.node, "create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    try:
        until(lambda: hasty.field(job, "Restarts") == "1", f"job {job} to be requeued")
        until(lambda: len(failures(hasty)) > before, f"{NODE} to be lost", 90)
        assert failures(hasty)[-1]["reason"] in ("pod_lost", "evicted")
        # the accounts know of both starts
        until(lambda: "REQUEUED" in records(hasty, job), f"job {job} to be REQUEUED at its first start: {records(hasty, job)}")
    finally:
        hasty.head(f"scancel {job}")
    idle(hasty)


@pytest.mark.parametrize(
    ("how", "words"), {"out of memory": "exit code 137 (OOMKilled)", "told to end": "exit code 0 (Completed)"}.items()
)
def test_a_container_that_ends_under_its_job(hasty: Whole, how: str, words: str) -> None:
    """Its pod stays, and within a second slurmd is there again; the job is not. Slurm is told at once, the job is requeued."""
    idle(hasty)
    greedy = how == "out of memory"
    job = hasty.submit(f"-w {NODE}", "until test -e go; do sleep 0.2; done; tail /dev/zero" if greedy else STAYS)
    hasty.until_state(job, "RUNNING", 90)
    before = len(failures(hasty))
    try:
        # Control groups of version 1 kill one process where those of version 2 kill the container: it is to be this one.
        overlay.execute(hasty.node, NODE, "sh", "-c", "echo 1000 >/proc/1/oom_score_adj" if greedy else "kill 1")
        hasty.shell("touch go")
        until(lambda: len(failures(hasty)) > before, f"{NODE} to be lost", 90)
        line = failures(hasty)[-1]
        assert (line["reason"], words in line["message"]) == ("pod_lost", True), line
        until(lambda: hasty.field(job, "Restarts") == "1", f"job {job} to be requeued")
        until(lambda: "NODE_FAIL" in records(hasty, job), f"job {job} to be NODE_FAIL at its first start: {records(hasty, job)}")
    finally:
        hasty.head(f"scancel {job}")
        hasty.shell("rm -f go")
    idle(hasty)
