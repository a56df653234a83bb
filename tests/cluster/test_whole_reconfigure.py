"""What an administrator changes under running jobs: slurm.conf, and a worker that must go."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.controlplane import TREE
from tests.lab.node.layout import need
from tests.lab.whole.overlay import NAMESPACE

NODES = "sparse-[0-9]"
MORE = "sparse-[0-11]"
SAVES = "trap 'echo saved; exit 3' TERM; while :; do sleep 0.2; done"


def reconfigure(whole: Whole, overlay: Path) -> str:
    """manifests/reconfigure, as documented: what it says."""
    path = f"{need('kubectl').parent}:{os.environ['PATH']}"
    env = {"KUBECONFIG": str(whole.node.kubeconfig), "PATH": path, "HOME": str(whole.folder)}
    argv = [str(TREE / "manifests/reconfigure"), str(overlay), NAMESPACE]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """The demo with two more nodes."""
    shutil.copytree(TREE / "manifests", tmp_path / "manifests")
    overlay = tmp_path / "manifests/overlays/demo"
    conf = overlay / "nodes.conf"
    assert NODES in conf.read_text()
    conf.write_text(conf.read_text().replace(NODES, MORE))
    return overlay


def test_a_changed_slurm_conf_reaches_running_pods_and_restarts_none(whole: Whole, changed: Path) -> None:
    job = whole.submit("-N2", "sleep 300")
    try:
        whole.until_state(job, "RUNNING")
        before = _running(whole)
        assert "slurmctld has read slurm.conf" in reconfigure(whole, changed)
        assert {"sparse-10", "sparse-11"} <= whole.node_states().keys()
        assert before <= _running(whole)
        assert whole.state(job) == "RUNNING"
        added = whole.submit("-N1 -p sparse -w sparse-11", "true")
        whole.until_state(added, "COMPLETED", within=90)
    finally:
        whole.head(f"scancel {job}")
        reconfigure(whole, TREE / "manifests/overlays/demo")
    assert "sparse-11" not in whole.node_states()


@pytest.mark.parametrize(("options", "record"), [("--requeue", "REQUEUED"), ("--no-requeue", "FAILED")])
def test_a_job_is_told_before_its_pod_is_taken_away(whole: Whole, options: str, record: str) -> None:
    """It saves its work, and begins anew elsewhere if it may."""
    job = whole.submit(f"-N1 -o told.log {options}", SAVES)
    try:
        whole.until_state(job, "RUNNING")
        # Its trap is set when the loop runs.
        until(lambda: whole.shell(f"squeue -h -j {job} -o %M") not in ("0:00", ""), "the job to be at work")
        whole.kubectl("delete", "pod", whole.nodes(job), "--wait=false")
        until(lambda: whole.shell("cat told.log").endswith("saved"), "the job to have saved its work")
        until(lambda: whole.shell(f"sacct -D -X -n -P -j {job} -o state").startswith(record), f"the first start to be {record}")
        assert (whole.state(job) == "PENDING") == (options == "--requeue")
    finally:
        whole.head(f"scancel {job}")
        whole.shell("rm -f told.log")


def _running(whole: Whole) -> set[tuple[str, str, int]]:
    """Name, uid and restarts of the pods of Slurm's daemons."""
    pods = [pod for role in ("slurmctld", "slurmd", "login") for pod in whole.pods(role)]
    return {
        (pod["metadata"]["name"], pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"]["containerStatuses"]))
        for pod in pods
    }
