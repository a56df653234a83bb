"""Starts and stops the listening sockets: the hooks' unix socket, the optional TCP port for hooks, and metrics and health."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from copilot.config import Address, Settings
from copilot.server.access import BACKLOG, Access, ClaimedSocket, ServerError
from copilot.server.core import Core
from copilot.server.gate import Connection, gatekeeper
from copilot.server.hooks import Hooks

# Seconds that a caller may take to send its request, and that open requests may take to end when we stop.
PATIENCE = 5.0
SHUTDOWN = 2.0
log = structlog.get_logger()


class Server:
    """All listeners of the daemon."""

    def __init__(self, core: Core, settings: Settings, patience: float = PATIENCE) -> None:
        self._core = core
        self._settings = settings
        self._patience = patience
        self._hooks = Hooks(core, settings, patience)
        self._listeners: list[asyncio.Server] = []
        self._runners: list[web.AppRunner] = []
        self._claimed: ClaimedSocket | None = None
        self.metrics_address: Address | None = None
        self.hooks_address: Address | None = None

    async def start(self) -> None:
        """Listens. ServerError if something is in the way; then nothing is left listening."""
        try:
            await self._start_hooks()
            await self._start_metrics()
        except BaseException:
            await self.stop()
            raise
        log.info("listening", socket=str(self._settings.socket), metrics=str(self.metrics_address), hooks=str(self.hooks_address))

    async def _start_hooks(self) -> None:
        settings = self._settings
        access = Access(settings.slurm_uid, settings.hooks_token_file if settings.hooks_listen else None)
        app = web.Application(middlewares=[gatekeeper(self._core.metrics, access)], client_max_size=settings.max_body)
        app.add_routes(self._hooks.routes())
        # A prolog that goes away must not leave its wait behind.
        runner = web.AppRunner(app, handle_signals=False, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN)
        await runner.setup()
        self._runners.append(runner)
        server = runner.server
        assert server is not None

        def connection() -> Connection:
            return Connection(server, self._core.metrics, self._patience)

        loop = asyncio.get_running_loop()
        claimed = self._claimed = ClaimedSocket(settings.socket, settings.socket_mode, settings.slurm_uid)
        self._listeners.append(await loop.create_unix_server(connection, sock=claimed.socket, backlog=BACKLOG))
        if address := settings.hooks_listen:
            listening = loop.create_server(connection, address.host, address.port, backlog=BACKLOG)
            listener = await _bound(listening, address, "--hooks-listen")
            self._listeners.append(listener)
            self.hooks_address = _address_of(listener)

    async def _start_metrics(self) -> None:
        address = self._settings.listen
        if address is None:
            return
        app = web.Application(client_max_size=1024)
        app.add_routes(
            [
                web.get("/metrics", make_aiohttp_handler(self._core.metrics.registry)),
                web.get("/healthz", self._probe(lambda: self._core.health().alive)),
                web.get("/readyz", self._probe(lambda: self._core.health().ready)),
            ]
        )
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=SHUTDOWN, keepalive_timeout=75)
        await runner.setup()
        self._runners.append(runner)
        assert runner.server is not None
        listening = asyncio.get_running_loop().create_server(runner.server, address.host, address.port)
        listener = await _bound(listening, address, "--listen")
        self._listeners.append(listener)
        self.metrics_address = _address_of(listener)

    def _probe(self, well: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def probe(_request: web.Request) -> web.Response:
            return web.Response(status=200 if well() else 503, text=self._core.health().why + "\n")

        return probe

    async def stop(self) -> None:
        """Takes no more connections, tells those who wait to ask again, and ends within 3 s. May be called twice."""
        for listener in self._listeners:
            listener.close()
        self._hooks.stop()
        runners, self._runners, self._listeners = self._runners, [], []
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        if self._claimed:
            self._claimed.release()
            self._claimed = None


async def _bound(listening: Awaitable[asyncio.Server], address: Address, flag: str) -> asyncio.Server:
    try:
        return await listening
    except OSError as error:
        raise ServerError(f"cannot listen on {address}: {error.strerror or error}; set {flag}") from error


def _address_of(listener: asyncio.Server) -> Address:
    """Where it really listens: port 0 in the settings lets the system choose."""
    host, port = listener.sockets[0].getsockname()[:2]
    return Address(host, port)
