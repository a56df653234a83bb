"""The copilot as its own process: the product's command line, its log as parsed lines, `status` and /metrics as its users see them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.clock import Clock
from tests.lab.component import free_port
from tests.lab.slurm_commands import PATH, LabError, end

TREE = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "copilot.cli")
Line = dict[str, Any]


class Daemon:
    """`slurmctld-copilot serve` with `settings` (field name -> text). Each run appends to one log file, `folder/copilot.log`,
    and has a port of its own for /metrics: `listen`, as host:port.

    Its environment has nothing but PATH: all that it needs comes by flags, so a test says all there is to say.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], clock: Clock | None = None) -> None:
        self.folder, self.settings = folder, dict(settings)
        self._clock = clock.environment if clock else {}
        self.log_path = folder / "copilot.log"
        self.socket = Path(self.settings["socket"])
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the copilot does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, *, ready: bool = True, seconds: float = 90, **settings: str) -> None:
        """Starts it, for this run with further settings. With `ready`, returns when /readyz says so."""
        assert not self.running, "the copilot runs already"
        self.listen = f"127.0.0.1:{free_port()}"
        merged = {"log_format": "json", "log_level": "debug", "listen": self.listen, **self.settings, **settings}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in merged.items()]
        argv = ["setpriv", "--pdeathsig", "KILL", *COMMAND, "serve", *flags]
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=TREE,
                env=_environment() | self._clock,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if ready:
            await self.until("the copilot to be ready", self._ready, seconds)

    async def stop(self, *, kill: bool = False, grace: float = 15) -> int:
        """Ends it with SIGTERM, or SIGKILL with `kill`, and returns its exit code. Harmless (0) when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return 0
        await end(process, signal.SIGKILL if kill else signal.SIGTERM, grace)
        assert process.returncode is not None
        return process.returncode

    async def ended(self, seconds: float = 60) -> int:
        """Waits for it to end by itself, and returns its exit code."""
        assert self._process is not None, "the copilot does not run"
        async with asyncio.timeout(seconds):
            code = await self._process.wait()
        self._process = None
        return code

    def freeze(self) -> None:
        """It keeps its sockets open and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    # What it tells

    def log(self, event: str = "", **values: Any) -> list[Line]:
        """The lines of all runs so far with this event and these values; a line that is no JSON is `{"raw": text}`."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        lines = [_parsed(line) for line in text.splitlines() if line.strip()]
        wanted = ({"event": event} if event else {}) | values
        return [line for line in lines if wanted.items() <= line.items()]

    def tail(self, lines: int = 25) -> str:
        """The last lines of the log, as they are."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:]) if self.log_path.exists() else ""

    async def status(self, *flags: str) -> tuple[int, dict[str, Any]]:
        """`slurmctld-copilot status --json`: its exit code, and what it printed ({"message": text} when that is no JSON)."""
        code, out, err = await self.command("status", "--json", f"--socket={self.socket}", *flags)
        try:
            return code, json.loads(out)
        except ValueError:
            return code, {"message": out + err}

    async def command(self, *argv: str) -> tuple[int, str, str]:
        """Runs the product's command line to its end: exit code, stdout, stderr."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*COMMAND, *argv, cwd=TREE, env=_environment(), stdout=pipe, stderr=pipe)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all series of a metric (as /metrics writes its name) that carry these labels; 0 when there is none."""
        families = text_string_to_metric_families((await self.get("/metrics"))[1])
        samples = [sample for family in families for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())

    async def get(self, path: str) -> tuple[int, str]:
        """A request to its TCP port, such as /readyz: HTTP status and body."""
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://{self.listen}{path}") as answer:
            return answer.status, await answer.text()

    async def _ready(self) -> bool:
        if not self.running:
            raise LabError(f"the copilot ended with {self._process.returncode if self._process else '?'}:\n{self.tail()}")
        try:
            return (await self.get("/readyz"))[0] == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def until(self, what: str, probe: Callable[[], Any], seconds: float = 90) -> None:
        """Asks (awaiting the answer where it is awaitable) until it is true; LabError with the end of the log when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            answer = probe()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            if loop.time() > deadline:
                raise LabError(f"waited {seconds} s for {what}; the copilot's log ends:\n{self.tail()}")
            await asyncio.sleep(0.05)

    async def until_logged(self, event: str, seconds: float = 90, *, times: int = 1, **values: Any) -> list[Line]:
        """Waits until the log has so many lines with this event and these values."""
        await self.until(f"{times} x {event} {values or ''} in its log", lambda: len(self.log(event, **values)) >= times, seconds)
        return self.log(event, **values)


def _environment() -> dict[str, str]:
    return {"PATH": PATH, "PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1"}


def _parsed(line: str) -> Line:
    try:
        parsed = json.loads(line)
    except ValueError:
        return {"raw": line}
    return parsed if isinstance(parsed, dict) else {"raw": line}
