"""Every command of docs/troubleshooting.md, on a real slurmctld and a real API server, with a node that cannot start.

`kubectl logs` is the one that is not run here: the pods of this lab have no kubelet that could be asked.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e.conftest import make
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.controlplane import binary
from tests.lab.daemon import COMMAND, TREE
from tests.lab.kubelet import GOOD, Behaviour
from tests.lab.slurm_conf import Workers
from tests.unit.documents import examples, read

pytestmark = pytest.mark.real
COMMANDS = sorted({command for command, _ in examples(read("docs/troubleshooting.md"))})
# 1: something has failed, which is what they are asked about.
CODES = {"slurmctld-copilot": {0, 1}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.STATEFUL_SET}, workers=(Workers("cpu", 4, "cpu"),)) as made:
        yield made


def argv(lab: Cluster, command: str) -> list[str]:
    """The command as it is run in this lab, with the socket and the kubeconfig that are the pod's own elsewhere."""
    name, *rest = shlex.split(command.replace("NODE", "cpu-1"))
    if name == "kubectl":
        flags = [f"--kubeconfig={lab.endpoint.kubeconfig_path}", f"--namespace={NAMESPACE}", f"--cache-dir={lab.folder}/kubectl"]
        return [str(binary("kubectl")), *flags, *rest]
    if name != "slurmctld-copilot":
        return lab.slurm.command(name, *rest)
    known = {"socket"} if rest[0] == "status" else {"socket", "slurm_user", "kubeconfig", "scontrol", "slurm_conf"}
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in lab.copilot.settings.items() if key in known]
    return [*COMMAND, *rest, *flags]


async def test_every_command(lab: Cluster) -> None:
    lab.kubelet.behave("cpu-1", Behaviour(image_pulls=False))
    job = await lab.sbatch("--nodelist=cpu-1")
    await lab.copilot.until_logged("node_cannot_start", nodes="cpu-1")
    said: dict[str, str] = {}
    for command in COMMANDS:
        if command.startswith("kubectl logs"):
            continue
        process = await asyncio.create_subprocess_exec(
            *argv(lab, command),
            env=lab.slurm.environment,
            cwd=TREE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 120)
        said[command] = out.decode()
        assert process.returncode in CODES.get(command.split()[0], {0}), f"{command}: {said[command]}"
    assert len(said) > 7
    assert "it fails (image_pull)" in said["slurmctld-copilot status NODE"]
    assert "image_pull: " in said["slurmctld-copilot status"]
    assert "cpu-1" in said["kubectl describe pod NODE"]
    lab.kubelet.behave("cpu-1", GOOD)
    # whether it came right before its grace was over decides whether the job was requeued
    lab.audit.may_end(job, "COMPLETED")
    await lab.slurm.wait_job(job, "COMPLETED", seconds=200)
