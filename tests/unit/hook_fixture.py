"""Runs the real hook scripts as slurmctld does: from a folder of their own, with hooks.conf beside them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Longer than the scripts may take: reached only if one hangs.
HANGS = 40.0

# What slurmctld does between fork and exec, measured on 22.05.8 and 24.11.5.
LAUNCH = """
import json, os, signal, sys
how, argv, env = json.load(open(sys.argv[1]))
if how == "22.05":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM, signal.SIGPIPE, signal.SIGHUP})
    os.closerange(0, 3)
os.execve(argv[0], argv, env)
"""


class Start(StrEnum):
    """How a release starts its hooks: 22.05 with closed descriptors and blocked signals, later ones without. Never a PATH."""

    OLD = "22.05"
    NEW = "24.11"


@dataclass(frozen=True)
class Ended:
    """How a script ended. `out` is what it wrote to the descriptors it was given, `log` the hook log of the folder."""

    code: int | None
    out: str
    log: str


@dataclass(frozen=True)
class Hooks:
    """A copy of scripts/ in a folder, with its settings."""

    folder: Path

    @classmethod
    def installed(cls, folder: Path, **conf: object) -> Hooks:
        """Copies the scripts; `conf` goes to hooks.conf, over a socket and a log in `folder`."""
        hooks = cls(folder)
        shutil.copytree(SCRIPTS, folder / "scripts")
        values = {"COPILOT_SOCKET": folder / "copilot.sock", "COPILOT_HOOK_LOG": folder / "hooks.log"} | conf
        (folder / "scripts" / "hooks.conf").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        return hooks

    async def start(
        self, script: str, *arguments: str, how: Start = Start.OLD, env: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Starts a script and does not wait for it."""
        # By a file: the launcher's own arguments must leave the whole 128 KiB of one argument to the hostlist.
        handle, order = tempfile.mkstemp(dir=self.folder)
        os.close(handle)
        Path(order).write_text(json.dumps([how, [str(self.folder / "scripts" / script), *arguments], dict(env or {})]))
        argv = (sys.executable, "-I", "-S", "-c", LAUNCH, order)
        return await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )

    async def end(self, process: asyncio.subprocess.Process) -> Ended:
        """Waits for a script; one that hangs is killed and fails the test."""
        try:
            async with asyncio.timeout(HANGS):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        log = self.folder / "hooks.log"
        return Ended(process.returncode, out.decode(), log.read_text() if log.is_file() else "")

    async def run(self, script: str, *arguments: str, how: Start = Start.OLD, env: Mapping[str, str] | None = None) -> Ended:
        """Starts a script and waits for it."""
        return await self.end(await self.start(script, *arguments, how=how, env=env))


@asynccontextmanager
async def speaking(path: Path, answers: Callable[[int], bytes | None]) -> AsyncIterator[list[bytes]]:
    """A bad server on a unix socket: reads a request's head, then sends `answers(n)` and closes; None: it hangs. Yields the heads."""
    heads: list[bytes] = []
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        data = answers(len(heads))
        if data is None:
            held.append(writer)
            return
        writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(path), limit=1 << 20)
    try:
        yield heads
    finally:
        server.close()
        for writer in held:
            writer.close()
        path.unlink(missing_ok=True)


def reply(status: int, body: str) -> bytes:
    """An answer as it goes over the wire."""
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
