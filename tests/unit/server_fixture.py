"""The real server over a core that only writes down what it was told, and callers of it: aiohttp, curl and bare sockets."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from copilot.config import Address, Settings
from copilot.model import Verb
from copilot.server import Health, HookAnswer, Server, WaitAnswer, WaitState
from copilot.telemetry import Metrics


@dataclass
class Call:
    """One hook call that reached the core."""

    verb: Verb
    nodes: tuple[str, ...]
    request_id: str
    jobs: dict[str, tuple[int, ...]]


@dataclass
class FakeCore:
    """Accepts the nodes whose name does not start with `foreign`; waits end when `settle` says so or their deadline passes."""

    metrics: Metrics = field(default_factory=Metrics)
    calls: list[Call] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    waiting: dict[asyncio.Future[WaitAnswer], tuple[str, ...]] = field(default_factory=dict)
    state: Health = field(default_factory=lambda: Health(alive=True, ready=True, why="ok"))
    table: dict[str, Any] = field(default_factory=dict)
    stories: dict[str, dict[str, Any]] = field(default_factory=dict)

    def hook(self, verb: Verb, nodes: Sequence[str], request_id: str, jobs: Mapping[str, tuple[int, ...]]) -> HookAnswer:
        self.calls.append(Call(verb, tuple(nodes), request_id, dict(jobs)))
        foreign = [node for node in nodes if node.startswith("foreign")]
        accepted = [node for node in nodes if node not in foreign]
        return HookAnswer(accepted, [(foreign, "no worker group has this name")] if foreign else [])

    async def wait(self, nodes: Sequence[str], deadline: float) -> WaitAnswer:
        loop = asyncio.get_running_loop()
        self.deadlines.append(deadline - loop.time())
        future: asyncio.Future[WaitAnswer] = loop.create_future()
        self.waiting[future] = tuple(nodes)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            return WaitAnswer(WaitState.TIMEOUT, missing=nodes)
        finally:
            del self.waiting[future]

    def settle(self, answer: WaitAnswer) -> None:
        """Ends every wait of this moment."""
        for future in self.waiting:
            if not future.done():
                future.set_result(answer)

    def snapshot(self) -> dict[str, Any]:
        return dict(self.table)

    def node(self, name: str) -> dict[str, Any] | None:
        return self.stories.get(name)

    def health(self) -> Health:
        return self.state

    def count(self, action: str, outcome: str) -> float:
        """Value of hook_requests_total."""
        labels = {"action": action, "outcome": outcome}
        return self.metrics.registry.get_sample_value("slurm_copilot_hook_requests_total", labels) or 0.0


def folder_for_all() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others, and are closed again by any other run of it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def settings_in(folder: Path, **more: Any) -> Settings:
    """Settings for a server in this folder, obeying the user who runs the tests, on a TCP port that the system chooses."""
    values: dict[str, Any] = {
        "socket": folder / "copilot.sock",
        "slurm_user": str(os.geteuid()),
        "listen": Address("127.0.0.1", 0),
    }
    return Settings(**(values | more))


@asynccontextmanager
async def serving(core: FakeCore, settings: Settings, patience: float = 5.0) -> AsyncIterator[Server]:
    """The real server, listening while the block runs."""
    server = Server(core, settings, patience)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@dataclass(frozen=True)
class Answer:
    """What a caller got."""

    status: int
    head: str
    body: Any


async def raw(socket: Path, data: bytes, *, more_after: asyncio.Event | None = None) -> Answer:
    """Sends exactly these bytes on a connection of its own and reads until the server closes it or the answer is whole."""
    reader, writer = await asyncio.open_unix_connection(str(socket), limit=1 << 24)
    try:
        writer.write(data)
        await writer.drain()
        if more_after:
            await more_after.wait()
        async with asyncio.timeout(20):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
            body = await reader.readexactly(length)
        return Answer(int(head.split()[1]), head, json.loads(body))
    finally:
        writer.close()


def request(method: str, path: str, body: bytes | None = None, *headers: str) -> bytes:
    """A request as it goes over the wire, with Content-Type JSON unless another is among the headers."""
    lines = [f"{method} {path} HTTP/1.1", "Host: copilot", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def ask(socket: Path, method: str, path: str, body: object = None, *headers: str) -> Answer:
    """One request with a JSON body (or raw bytes, or none)."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return await raw(socket, request(method, path, data, *headers))


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Waits for a condition that other tasks will make true; TimeoutError after a deadline."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - conditions of many kinds, none of which could set an event
            await asyncio.sleep(0.005)
