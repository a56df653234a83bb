"""Starts `scontrol show/update/ping`, each with a deadline, and parses what it prints as it arrives.

scontrol is judged by its exit code, never by its stderr, which may hold harmless complaints. It runs with a clean environment in a
process group of its own, which is killed when time is up or the caller is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from copilot.hostlist import fold
from copilot.model import Node, SlurmView
from copilot.slurm.output import NodeConfig, NodeLines, PartitionConfig, node_config, partition_config, running_job

MAX_ARGUMENT = 100_000  # bytes; the kernel's bound for one argument is 128 KiB
MAX_UPDATES = 64  # scontrol calls for one update of a list in which names are refused
CHUNK = 32_768  # bytes read and parsed in one step: well under a millisecond
# What scontrol says when the trouble is not with the nodes named: asking for fewer of them would not help.
_AS_OF = "Configuration data as of "
_NO_ANSWER = (
    "Unable to contact",
    "timed out",
    "Zero Bytes",
    "onnection",
    "uthentication",
    "ermission denied",
    "Unexpected message",
)

Observer = Callable[[str, float, bool], None]


class SlurmUnavailable(Exception):  # noqa: N818 - a state of affairs, as its users read it
    """Nothing was learned from slurmctld: it is down or frozen, or scontrol cannot run. The message names the cure."""


class SlurmRefused(Exception):  # noqa: N818
    """An update was rejected for these nodes; it was applied to the others. A node that was in the wanted state already may be among them."""

    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(f"slurmctld refused {fold(names)}: {message}")
        self.names = tuple(names)


class Slurm:
    """Asks and tells slurmctld. `timeout` is in seconds for each scontrol call; `clock` gives the `taken_at` of views.

    `observe(command, seconds, ok)` is called after each scontrol run, for metrics; `command` is show_nodes, update, ping, ...
    """

    def __init__(
        self,
        scontrol: Sequence[str] = ("scontrol",),
        conf: str | None = None,
        *,
        timeout: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        observe: Observer | None = None,
    ) -> None:
        self._scontrol, self._timeout, self._clock, self._observe = tuple(scontrol), timeout, clock, observe
        # It is installed with scontrol, and stands beside it.
        self._squeue = tuple(str(Path(word).with_name("squeue")) if Path(word).name == "scontrol" else word for word in scontrol)
        conf = conf or os.environ.get("SLURM_CONF")
        self._environment = {
            "PATH": os.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            "LC_ALL": "C",
            "SLURM_TIME_FORMAT": "%s",
            **({"SLURM_CONF": conf} if conf else {}),
        }

    async def nodes(self) -> SlurmView:
        """The whole node table. An empty table is SlurmUnavailable too: no cluster is without nodes, and unknown is never down."""
        taken_at = self._clock()
        nodes: dict[str, Node] = {}
        lines = NodeLines()

        def line(text: str) -> None:
            node = lines.node(text)
            if node:
                nodes[node.name] = node

        await self._ask("show_nodes", "-o", "show", "nodes", line=line)
        if not nodes:
            raise SlurmUnavailable(
                "scontrol show nodes lists no node: check the NodeName lines of slurm.conf, and PrivateData=cloud up to 22.05"
            )
        return SlurmView(taken_at, nodes)

    async def update(self, state: str, nodes: Sequence[str], reason: str | None = None) -> None:
        """`scontrol update nodename=NODES state=STATE reason=REASON`. SlurmRefused names those that slurmctld refused; the others are done.

        An empty state is left out: only the reason is set then. An empty reason empties it.

        One bad name makes slurmctld skip those after it, so a refused list is halved until the bad ones are alone. Halving repeats
        the update for nodes that have it already. After MAX_UPDATES calls the nodes not tried alone are named as refused too.
        """
        # scontrol takes one quote off each end, also of the text's own. slurmctld 24.11 ignores an empty reason with rc 0, and takes a blank.
        words = ([f"state={state}"] if state else []) + ([] if reason is None else [f'reason="{reason or " "}"'])
        refused: list[str] = []
        message = ""
        todo = deque([list(nodes)] if nodes else [])
        calls = 0
        while todo:
            part = todo.popleft()
            folded = fold(part)
            if len(folded) <= MAX_ARGUMENT:
                trouble = await self._update_once(f"nodename={folded}", *words)
                calls += 1
                if not trouble:
                    continue
                message = trouble
            if len(part) == 1 or calls >= MAX_UPDATES:
                refused += part
            else:
                middle = len(part) // 2
                todo.extend((part[:middle], part[middle:]))
        if refused:
            raise SlurmRefused(message, refused)

    async def _update_once(self, *words: str) -> str:
        """Empty when done, else what slurmctld has against it."""
        code, err = await self._run("update", "update", *words)
        if code == 0:
            return ""
        trouble = _last_line(err)
        if (
            "fatal:" in err
            or ("rror: " in trouble and "slurm_update" not in trouble)
            or any(each in trouble for each in _NO_ANSWER)
        ):
            raise SlurmUnavailable(_cure("update", code, err))
        return trouble.removeprefix("slurm_update error: ")

    async def ping(self) -> bool:
        """Whether slurmctld answers. Costs 5-20 ms, up to 10 s when slurmctld is frozen."""
        try:
            code, _ = await self._run("ping", "ping")
        except SlurmUnavailable:
            return False
        return code == 0

    async def version(self) -> str:
        """The version of scontrol, "22.05.8"; needs no slurmctld."""
        lines: list[str] = []
        await self._ask("version", "--version", line=lines.append)
        return lines[-1].split()[-1] if lines and lines[-1].split() else ""

    async def config(self) -> dict[str, str]:
        """`scontrol show config`: SuspendTimeout is "10 sec", SLURM_VERSION slurmctld's own, `as_of` its clock (Unix time). See `seconds`."""
        lines: list[str] = []
        await self._ask("show_config", "show", "config", line=lines.append)
        found = {key.strip(): value.strip() for key, equals, value in (each.partition("=") for each in lines) if equals}
        # the first line: when slurmctld said all this
        return found | ({"as_of": lines[0].removeprefix(_AS_OF)} if lines and lines[0].startswith(_AS_OF) else {})

    async def configured(self) -> list[NodeConfig]:
        """What slurm.conf says of every node."""
        found: list[NodeConfig] = []

        def line(text: str) -> None:
            if node := node_config(text):
                found.append(node)

        await self._ask("show_nodes", "-o", "show", "nodes", line=line)
        return found

    async def running_since(self) -> dict[str, int]:
        """By node, when the earliest of the jobs that run on it began (slurmctld's clock, Unix time)."""
        found: dict[str, int] = {}

        def line(text: str) -> None:
            if (job := running_job(text)) is not None:
                for name in job[0]:
                    found[name] = min(job[1], found.get(name, job[1]))

        code, err = await self._run("squeue", "-h", "-t", "RUNNING", "-o", "%S %N", line=line, program=self._squeue)
        if code != 0:
            raise SlurmUnavailable(_cure("squeue", code, err))
        return found

    async def partitions(self) -> list[PartitionConfig]:
        """What slurm.conf says of every partition."""
        lines: list[str] = []
        await self._ask("show_partition", "-o", "show", "partition", line=lines.append)
        return [found for found in map(partition_config, lines) if found]

    async def _ask(self, command: str, *argv: str, line: Callable[[str], None]) -> None:
        code, err = await self._run(command, *argv, line=line)
        if code != 0:
            raise SlurmUnavailable(_cure(command, code, err))

    async def _run(
        self, command: str, *argv: str, line: Callable[[str], None] | None = None, program: Sequence[str] = ()
    ) -> tuple[int, str]:
        """Runs scontrol, or the other program, hands each line of stdout to `line`, and returns its exit code and stderr."""
        begun, ok = time.monotonic(), False
        try:
            async with asyncio.timeout(self._timeout):
                code, err = await self._process((*(program or self._scontrol), *argv), line or (lambda _: None))
            ok = code == 0
            return code, err
        except TimeoutError:
            raise SlurmUnavailable(
                f"scontrol ({command}) gave no answer within {self._timeout:g} s: see whether slurmctld runs and is not overloaded, "
                "and whether slurm.conf is there"
            ) from None
        except OSError as problem:
            raise SlurmUnavailable(
                f"cannot run {(program or self._scontrol)[0]}: {problem.strerror or problem}; install slurm-client or correct the path"
            ) from problem
        finally:
            if self._observe:
                self._observe(command, time.monotonic() - begun, ok)

    async def _process(self, argv: Sequence[str], line: Callable[[str], None]) -> tuple[int, str]:
        process = await self._start(argv)
        assert process.stdout is not None and process.stderr is not None
        try:
            _, err = await asyncio.gather(_each_line(process.stdout, line), _head(process.stderr))
            return await process.wait(), err
        except BaseException:  # also cancelled: nothing of it may stay behind
            await _kill(process)
            raise

    async def _start(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """Cancelled half-way, asyncio would kill the first process only and wait for the others: so the start is always finished."""
        pipe = asyncio.subprocess.PIPE
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                env=self._environment,
                start_new_session=True,
                limit=CHUNK,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _kill(await starting)
            raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    # Not process.kill(): it polls, which takes the exit status away from the event loop's own watcher.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _each_line(stream: asyncio.StreamReader, line: Callable[[str], None]) -> None:
    """Parses as it reads: the stream never holds more than two chunks, so the event loop gets its turn between them."""
    rest = b""
    while chunk := await stream.read(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        for each in whole:
            line(each.decode(errors="replace"))
    if rest:
        line(rest.decode(errors="replace"))


async def _head(stream: asyncio.StreamReader) -> str:
    """The first 8 kB; the rest is read and dropped, so that scontrol never blocks on it."""
    kept = b""
    while chunk := await stream.read(CHUNK):
        kept = (kept + chunk)[:8192]
    return kept.decode(errors="replace")


def _last_line(text: str) -> str:
    return next((each for each in reversed(text.splitlines()) if each.strip()), "no message").strip()


def _cure(command: str, code: int, err: str) -> str:
    if "configuration source" in err or "slurm.conf" in err or "fatal:" in err:
        cure = "check that slurm.conf is there and valid (SLURM_CONF)"
    elif "uthentication" in err or "munge" in err.lower():
        cure = "check that munged runs and its key is slurmctld's"
    elif "ermission" in err:
        cure = "run as root or SlurmUser"
    else:
        cure = "see whether slurmctld runs"
    return f"scontrol ({command}) failed with {code}: {_last_line(err)}; {cure}"
