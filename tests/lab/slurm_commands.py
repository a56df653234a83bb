"""Asking and commanding a lab's Slurm: the commands, what they print, and waiting for what they should print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
COMMANDS = ("scontrol", "sbatch", "squeue", "scancel", "srun", "sinfo")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class LabError(Exception):
    """The lab could not do what was asked; the message holds the last lines of the log that tells why."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a finished command left."""

    rc: int
    out: str
    err: str


async def end(process: asyncio.subprocess.Process, by: signal.Signals, grace: float = 15) -> bool:
    """Signals the process and reaps it; a process that outlives the grace is killed, which is told by True."""
    # Not process.send_signal: it polls, which takes the exit status away from the event loop's own watcher.
    for each in (by, signal.SIGCONT):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, each)
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        return True
    return False


class SlurmCommands:
    """One Slurm installation (`root`) with one configuration and one folder for logs and wrappers."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.conf_path = folder / "etc/slurm.conf"

    def command(self, *argv: str) -> list[str]:
        """The argv by which this version's command is run, also by the copilot (`command("scontrol")`); see `environment`."""
        return [str(self.folder / "bin" / argv[0]), *argv[1:]] if self.root != Path("/") else [f"/usr/bin/{argv[0]}", *argv[1:]]

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, "SLURM_CONF": str(self.conf_path), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}

    async def run(self, *argv: str, seconds: float = 90) -> Done:
        """Runs a Slurm command to its end; a TimeoutError after `seconds`."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.command(*argv), env=self.environment, stdout=pipe, stderr=pipe)
        try:
            out, err = await asyncio.wait_for(process.communicate(), seconds)
        finally:
            if process.returncode is None:
                await end(process, signal.SIGKILL)
        assert process.returncode is not None
        return Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    async def scontrol(self, *argv: str) -> str:
        """Runs scontrol and returns what it printed; a LabError when it fails."""
        done = await self.run("scontrol", *argv)
        if done.rc:
            raise LabError(f"scontrol {' '.join(argv)}: {done.out}{done.err}")
        return done.out

    async def sbatch(self, *argv: str, wrap: str = "true") -> int:
        """Submits a batch job and returns its id. Output goes nowhere unless the arguments say so."""
        done = await self.run("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *argv, f"--wrap={wrap}")
        if done.rc:
            raise LabError(f"sbatch: {done.err}")
        return int(done.out.split(";")[0])

    async def fields(self, kind: str, name: str) -> dict[str, str]:
        """`scontrol -o show KIND NAME` as a mapping; words without `=` are lost. Empty when Slurm does not know the name."""
        done = await self.run("scontrol", "-o", "show", kind, name)
        words = done.out.split() if done.rc == 0 else []
        return dict(reversed([word.partition("=")[::2] for word in words if "=" in word]))

    async def job(self, job: int) -> dict[str, str]:
        return await self.fields("job", str(job))

    async def node(self, name: str) -> str:
        """The state as Slurm prints it, flags sorted: IDLE+CLOUD+POWERED_DOWN. Empty when Slurm does not know the node."""
        base, *flags = (await self.fields("node", name)).get("State", "").split("+")
        return "+".join([base, *sorted(flags)])

    async def wait_for(self, what: str, probe: Callable[[], Awaitable[T]], ok: Callable[[T], bool], *, seconds: float = 90) -> T:
        """Asks `probe` until `ok`, and returns its answer. LabError with the last answer and slurmctld's last words when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not ok(seen := await probe()):
            if loop.time() > deadline:
                raise LabError(f"waited {seconds} s for {what}; last seen: {seen!r}\n{self.tail('slurmctld.log')}")
            await asyncio.sleep(0.05)
        return seen

    async def wait_node(self, name: str, *words: str, without: Sequence[str] = (), seconds: float = 90) -> str:
        """Waits until the node's state has all the words and none of `without`."""

        def fits(state: str) -> bool:
            seen = set(state.split("+"))
            return seen.issuperset(words) and seen.isdisjoint(without)

        return await self.wait_for(f"{name} to be {'+'.join(words)}", lambda: self.node(name), fits, seconds=seconds)

    async def wait_job(self, job: int, *states: str, seconds: float = 150) -> dict[str, str]:
        what = f"job {job} to be {' or '.join(states)}"
        return await self.wait_for(what, lambda: self.job(job), lambda seen: seen.get("JobState") in states, seconds=seconds)

    def tail(self, log: str, lines: int = 15) -> str:
        """The last lines of a file in the log folder."""
        path = self.folder / "log" / log
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


def pids() -> list[int]:
    """Every process of these namespaces but this one."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]


def environment_of(pid: int) -> bytes:
    """Empty for a process that is gone, or dead and not yet reaped."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
