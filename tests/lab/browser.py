"""A page in headless Chromium, driven by the DevTools protocol: opened, asked and filled in by JavaScript, and pictured."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.lab.slurm_commands import end

_PROGRAMS: Final = ("chromium-headless-shell", "chromium")
# Root has no use for Chromium's sandbox, and a container's /dev/shm is too small for it.
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1280,1600",
)
_STARTS_WITHIN: Final = 90.0


def missing() -> str:
    """Why there is no browser here, "" when there is one."""
    return "" if _program() else "Chromium is not installed (tests/lab/install browser)"


def _program() -> str:
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), "")


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number = socket, 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol: its result. AssertionError with the browser's complaint."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (answer := await self._socket.receive_json()).get("id") != self._number:
            pass  # an event: nobody asked for it
        assert "result" in answer, f"{method}: {answer}"
        result: dict[str, Any] = answer["result"]
        return result

    async def open(self, url: str) -> None:
        """AssertionError when nothing answers."""
        result = await self.call("Page.navigate", url=url)
        assert "errorText" not in result, f"{url}: {result}"

    async def value(self, script: str) -> Any:
        """What an expression of JavaScript is in the page; None too while the page gives way to another."""
        try:
            result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        except AssertionError:
            return None
        return None if "exceptionDetails" in result else result["result"].get("value")

    async def until(self, script: str, within: float = 60.0) -> None:
        """Waits for the expression to be true. AssertionError with the page's text after `within` seconds."""
        deadline = time.monotonic() + within
        while not await self.value(script):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {within} s for {script}; the page: {await self.value('document.body.innerText')}")
            await asyncio.sleep(0.1)

    async def picture(self, path: Path) -> None:
        """The page as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"]))


@asynccontextmanager
async def page() -> AsyncIterator[Page]:
    """A browser of its own, with nothing remembered, and its one tab. TimeoutError with its words when it does not start."""
    async with _folder() as folder:
        profile, log = Path(folder), Path(folder) / "log"
        argv = [_program(), *_OPTIONS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
        with log.open("wb") as words:
            process = await asyncio.create_subprocess_exec(
                "setpriv",
                "--pdeathsig",
                "KILL",
                *argv,
                env={**os.environ, "HOME": folder},
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        try:
            port = await _port(profile, log)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tab = next(one for one in await answer.json() if one["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            await end(process, signal.SIGTERM)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def _folder() -> AsyncIterator[str]:
    """Removed at the end. What Chromium has started may still write there for a moment after it has ended."""
    folder = tempfile.mkdtemp(prefix="copilot-browser-")
    try:
        yield folder
    finally:
        for _ in range(100):
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            await asyncio.sleep(0.1)


async def _port(profile: Path, log: Path) -> int:
    """The port that it chose, which it writes beside its profile."""
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        written = profile / "DevToolsActivePort"
        if written.exists() and (lines := written.read_text().splitlines()):
            return int(lines[0])
        if time.monotonic() > deadline:
            raise TimeoutError(f"Chromium did not start: {log.read_text()}")
        await asyncio.sleep(0.1)
