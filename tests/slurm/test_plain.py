"""The lab without namespaces, for plain containers: slurmds on one loopback port each, and nothing left of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.slurm import LabError
from tests.slurm.power import VERSION, power_lab


def left_behind(folder: Path) -> list[str]:
    """Command lines of living processes that have the lab's configuration in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"SLURM_CONF={folder}/".encode() in environment:
            found.append(command.replace(b"\0", b" ").decode())
    return found


async def running(folder: Path) -> list[str]:
    return left_behind(folder)


@pytest.mark.skipif(VERSION != "22.05", reason="another Slurm than the machine's own runs in a root, which needs namespaces")
async def test_workers_on_loopback_ports() -> None:
    async with power_lab(namespaces=False, SuspendTime="600", SuspendTimeout="5") as lab:
        job = await lab.running("cpu-0")
        node = await lab.look("cpu-0")
        assert node.busy and node.address == "127.0.0.1"
        await lab.wait_for(
            "the job's process", lambda: running(lab.folder), lambda commands: any("sleep 600" in each for each in commands)
        )
        await lab.stop_node("cpu-0")
        assert not any(
            "sleep 600" in command or "slurmd" in command for command in left_behind(lab.folder) if "slurmctld" not in command
        )
        await lab.slurm.update("down", ["cpu-0"], "copilot: pod_lost: killed")
        await lab.wait_job(job, "PENDING")
        folder = lab.folder
    assert left_behind(folder) == []


async def test_a_worker_is_started_once() -> None:
    async with power_lab(SuspendTime="600") as lab:
        await lab.start_node("cpu-0")
        with pytest.raises(LabError, match="cpu-0 runs already"):
            await lab.start_node("cpu-0")


async def test_a_worker_finds_nothing_of_the_one_before() -> None:
    """With the script of a job that died with its node, the job could not be launched again on a node of the same name."""
    async with power_lab(SuspendTime="600") as lab:
        script = lab.folder / "spool/cpu-0/job00001/slurm_script"
        script.parent.mkdir(parents=True)
        script.write_text("#!/bin/sh\nfalse\n")
        job = await lab.sbatch("--nodelist=cpu-0")
        await lab.wait_node("cpu-0", "POWERING_UP")
        await lab.start_node("cpu-0")
        assert (job, (await lab.wait_job(job, "COMPLETED", "FAILED"))["JobState"]) == (1, "COMPLETED")
