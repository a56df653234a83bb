"""Pods as kubelet and the controllers write them, to what the decision reads of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from copilot.model import Pod
from copilot.reconcile.pods import pod_of

PULL = {"reason": "ErrImagePull", "message": 'failed to pull and unpack image "r/x:9": not found'}
BACK_OFF = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "r/x:9"'}


def raw(status: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "cpu-0", "uid": "u", **meta}, "spec": {"nodeName": "host"}, "status": status}


def waiting(state: dict[str, str], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"state": {"waiting": state}, "lastState": {"terminated": last} if last else {}}


def trouble(status: dict[str, Any], before: Pod | None = None) -> tuple[str, str]:
    pod = pod_of(raw(status), before, 1.0)
    return pod.trouble, pod.message


CRASH = {"exitCode": 137, "reason": "OOMKilled"}
CASES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "ordinary": ({"containerStatuses": [waiting({"reason": "ContainerCreating"})]}, ("", "")),
    "image": ({"containerStatuses": [waiting(PULL)]}, ("ErrImagePull", PULL["message"])),
    "crash": (
        {"containerStatuses": [waiting({"reason": "CrashLoopBackOff", "message": "back-off 10s"}, CRASH)]},
        ("CrashLoopBackOff", "exit code 137 (OOMKilled): back-off 10s"),
    ),
    "init": (
        {
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, waiting(PULL)],
            "containerStatuses": [waiting({"reason": "PodInitializing"})],
        },
        ("ErrImagePull", PULL["message"]),
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, ("Evicted", "low on memory")),
    "preempted": (
        {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "preempted by x"}]},
        ("DisruptionTarget", "preempted by x"),
    ),
    "no room": (
        {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]},
        ("Unschedulable", "0/1 nodes"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_trouble_of_a_pod(case: str) -> None:
    status, expected = CASES[case]
    assert trouble(status) == expected


def test_the_answer_of_the_registry_outlives_the_back_off() -> None:
    first = pod_of(raw({"containerStatuses": [waiting(PULL)]}), None, 1.0)
    assert trouble({"containerStatuses": [waiting(BACK_OFF)]}, first) == ("ErrImagePull", PULL["message"])
    other = pod_of({**raw({}), "metadata": {"name": "cpu-0", "uid": "u2"}}, first, 1.0)
    assert other.trouble == ""
    assert trouble({"containerStatuses": [waiting(BACK_OFF)]}) == ("ImagePullBackOff", BACK_OFF["message"])


def test_the_end_of_a_grace_is_on_our_clock_and_stays_where_it_was() -> None:
    at = (datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    first = pod_of(raw({}, deletionTimestamp=at), None, 100.0)
    assert first.ends_at == pytest.approx(130.0, abs=1.5)
    assert pod_of(raw({}, deletionTimestamp=at), first, 120.0).ends_at == first.ends_at
    assert pod_of(raw({}), None, 100.0).ends_at is None


def test_a_pod_that_a_list_brings_was_there_since_it_was_created() -> None:
    """It may be older than the request that the view shows, although that view was asked for before the list came."""
    at = (datetime.fromtimestamp(time.time(), UTC) - timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ahead = (datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = pod_of(raw({}, creationTimestamp=at), None, 100.0, listed=True)
    assert found.first_seen == pytest.approx(71.0, abs=1.5)
    assert pod_of(raw({}, creationTimestamp=at), found, 120.0).first_seen == found.first_seen
    assert pod_of(raw({}, creationTimestamp=at), None, 100.0).first_seen == 100.0, "a watch brings it at once"
    assert pod_of(raw({}, creationTimestamp=ahead), None, 100.0, listed=True).first_seen == 100.0, "clocks differ"


def test_how_a_container_that_runs_again_ended() -> None:
    """kubelet tells of the end and of the next start in one: by then there is no trouble any more."""
    pod = pod_of(
        raw({"containerStatuses": [{"state": {"running": {}}, "lastState": {"terminated": CRASH}, "restartCount": 1}]}), None, 1.0
    )
    assert (pod.trouble, pod.last_end) == ("", "exit code 137 (OOMKilled)")
    assert pod_of(raw({"containerStatuses": [{"state": {"running": {}}, "lastState": {}}]}), None, 1.0).last_end == ""
