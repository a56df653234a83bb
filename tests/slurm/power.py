"""A lab whose hooks only record: the test plays Kubernetes, so that every step stands still until it is looked at."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from copilot.hostlist import expand
from copilot.model import Node
from copilot.slurm import Slurm
from tests.lab.slurm import SlurmLab

VERSION = os.environ.get("COPILOT_SLURM", "22.05")
HOOK = Path(__file__).with_name("hook")
KINDS = {"ResumeProgram": "resume", "SuspendProgram": "suspend", "ResumeFailProgram": "fail", "PrologSlurmctld": "prolog"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a hook: its words by key, as tests/slurm/hook wrote them."""

    words: dict[str, str]

    @property
    def nodes(self) -> list[str]:
        return expand(self.words["nodes"])


class PowerLab(SlurmLab):
    """Adds what the hooks recorded, the copilot's own look at a node, and jobs held back until their nodes are up."""

    def calls(self, kind: str, node: str) -> list[Call]:
        """Calls of resume, suspend, fail or prolog that name the node."""
        found = []
        for path in (self.folder / "log").glob(f"{kind}.*.hook"):
            words = {key: value for key, _, value in (line.partition(": ") for line in path.read_text().splitlines())}
            found.append(Call(words))
        return [call for call in found if node in call.nodes]

    async def called(self, kind: str, node: str, times: int = 1, seconds: float = 30) -> Call:
        async def probe() -> list[Call]:
            return self.calls(kind, node)

        what = f"{times} calls of {kind} for {node}"
        return (await self.wait_for(what, probe, lambda calls: len(calls) >= times, seconds=seconds))[-1]

    @property
    def slurm(self) -> Slurm:
        return Slurm(self.command("scontrol"), str(self.conf_path))

    async def look(self, name: str) -> Node:
        return (await self.slurm.nodes()).nodes[name]

    def hold(self) -> None:
        """Prologs wait from now on, so that a job starts as soon as `release` is called instead of at Slurm's next pass."""
        (self.folder / "log/hold").touch()

    def release(self) -> None:
        (self.folder / "log/hold").unlink(missing_ok=True)

    async def powering_up(self, node: str, *argv: str, wrap: str = "sleep 600") -> int:
        """Submits a job for the node and returns its id when the node is POWERING_UP and its hook has been called."""
        before = len(self.calls("resume", node))
        job = await self.sbatch(f"--nodelist={node}", *argv, wrap=wrap)
        await self.wait_node(node, "POWERING_UP")
        await self.called("resume", node, before + 1)
        return job

    async def running(self, node: str, *argv: str, wrap: str = "sleep 600") -> int:
        """A job that runs on the node, whose pod was started for it."""
        self.hold()
        job = await self.powering_up(node, *argv, wrap=wrap)
        await self.start_node(node)
        await self.wait_for(f"{node} to be up", lambda: self.look(node), lambda seen: seen.up)
        self.release()
        await self.wait_job(job, "RUNNING", seconds=15)
        return job


@contextlib.asynccontextmanager
async def power_lab(*, namespaces: bool = True, **options: str | None) -> AsyncIterator[PowerLab]:
    """A started lab with recording hooks in a folder of its own, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    hooks = {}
    for key, kind in KINDS.items():
        (folder / "sources").mkdir(exist_ok=True)
        hooks[key] = Path(shutil.copy(HOOK, folder / "sources" / kind))
    lab = PowerLab(VERSION, folder, hooks=hooks, options=options, namespaces=namespaces, unhurried=True)
    try:
        await lab.start()
        yield lab
    finally:
        await lab.stop()
        shutil.rmtree(folder)
