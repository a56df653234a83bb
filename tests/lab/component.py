"""One real program of the lab: started with a log file, ended with a signal, and never outliving the process that started it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


class Component:
    """A program that is started and stopped any number of times, each run appending to the same log.

    It belongs to no event loop, so one loop may start it and another stop it.
    """

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._argv = [str(word) for word in argv]
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once: what to wait for is the caller's to say, with `ready`."""
        assert self._process is None or self._process.poll() is not None, f"{self.name} runs already"
        # pdeathsig: if the test run is killed outright, the program goes with it.
        argv = ["setpriv", "--pdeathsig", "KILL", *self._argv]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The process's number; AssertionError when it was never started."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def ready(self, question: Callable[[], Awaitable[bool]], within: float = 60.0) -> None:
        """Asks every 20 ms; RuntimeError with the end of the log when the program ends or the time (seconds) is over."""
        deadline = time.monotonic() + within
        while not await question():
            if not self.running:
                raise RuntimeError(f"{self.name} ended before it was ready:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} was not ready within {within} s:\n{self.tail()}")
            await asyncio.sleep(0.02)

    async def stop(self, grace: float = 10.0) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds. Harmless when it does not run."""
        await self._end(signal.SIGTERM, grace)

    async def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        await self._end(signal.SIGKILL, 10.0)

    def tail(self, size: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    async def _end(self, number: signal.Signals, grace: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            await asyncio.to_thread(process.wait, grace)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
