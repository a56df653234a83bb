"""overlays/demo on a real node: everything runs, and keeps running."""

from __future__ import annotations

import json
import urllib.request

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.whole.overlay import SERVING, is_ready


def test_every_serving_pod_is_ready_and_was_never_restarted(whole: Whole) -> None:
    pods = [pod for pod in whole.pods() if pod["metadata"]["labels"]["app.kubernetes.io/component"] != "slurmd"]
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods} == SERVING
    assert all(is_ready(pod) for pod in pods)
    restarts = {pod["metadata"]["name"]: [one["restartCount"] for one in pod["status"]["containerStatuses"]] for pod in pods}
    assert not any(count for counts in restarts.values() for count in counts), restarts


def test_every_claim_has_its_volume(whole: Whole) -> None:
    claims = json.loads(whole.kubectl("get", "pvc", "-o", "json"))["items"]
    assert {one["metadata"]["name"] for one in claims} >= {"slurmctld-state", "home", "openldap", "mariadb"}
    assert {one["status"]["phase"] for one in claims} == {"Bound"}


def test_slurmctld_has_the_nodes_of_both_kinds(whole: Whole) -> None:
    assert {name.partition("-")[0] for name in whole.node_states()} == {"cpu", "sparse"}


def test_the_copilot_is_ready_and_follows_both_kinds(whole: Whole) -> None:
    with (
        whole.forwarded("pod/head-0", 9817) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer,
    ):
        assert answer.status == 200
    log = until(lambda: whole.kubectl("logs", "head-0", "-c", "copilot"), "the copilot's log")
    assert "kruise/slurm/sparse" in log and "statefulset/slurm/cpu" in log
