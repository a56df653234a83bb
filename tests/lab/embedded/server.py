"""The HTTP side: from a request's path to a verb on a resource, faults on the way, and an account of every request."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from tests.lab.access import write_kubeconfig
from tests.lab.embedded import status
from tests.lab.embedded.access import Access, forbidden
from tests.lab.embedded.faults import Action, Fault, Faults
from tests.lab.embedded.kinds import BUILT_IN, CUSTOM, NAMESPACES
from tests.lab.embedded.resources import Resources
from tests.lab.embedded.routing import Router, as_json, parse, read_body
from tests.lab.embedded.status import PageNotFound, StatusError
from tests.lab.embedded.store import Store
from tests.lab.endpoint import ApiEndpoint

MANIFEST = Path(__file__).resolve().parents[3] / "manifests/base/rbac.yaml"
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"}


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the account. `at` is time.monotonic() at arrival; status 0: reset, hanging or cut off; `body` of writes."""

    verb: str
    path: str
    status: int
    at: float
    user: str
    body: Any


class EmbeddedServer:
    """`async with EmbeddedServer(folder) as server`: listens on plain HTTP and writes the administrator's kubeconfig to `folder`.

    `custom` names the kinds beyond the built-in ones, by plural and group; leave one out to have it answer 404 like an absent CRD.
    `bookmark_every` is in seconds (the real server's is about 60).
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        custom: tuple[str, ...] = ("statefulsets.apps.kruise.io", "slurmclusters.kai.alibabacloud.com"),
        bookmark_every: float = 60.0,
    ) -> None:
        self.folder, self.host, self.port = folder, host, port
        self.store = Store()
        self.resources = Resources(self.store)
        self.access = Access()
        self.faults = Faults()
        self.account: deque[Request] = deque(maxlen=100_000)
        served = (*BUILT_IN, *(kind for kind in CUSTOM if status.qualified(kind.group, kind.plural) in custom))
        self._router = Router(served, self.resources, bookmark_every)
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        for name in ("default", "kube-system"):
            self.add_namespace(name)

    @property
    def endpoint(self) -> ApiEndpoint:
        return ApiEndpoint(f"http://{self.host}:{self.port}", None, self.access.admin_token, self.folder / "admin.kubeconfig")

    async def service_account(self, namespace: str, manifest: Path = MANIFEST) -> str:
        """A token of the manifest's ServiceAccount, with its Roles in the namespace (made if need be). Same as ControlPlane's."""
        if self.store.get(self.resources.key(NAMESPACES, "", namespace)) is None:
            self.add_namespace(namespace)
        documents = [document for document in yaml.safe_load_all(manifest.read_text()) if document]
        name = next(document["metadata"]["name"] for document in documents if document["kind"] == "ServiceAccount")
        roles = [document for document in documents if document["kind"] in ("Role", "ClusterRole")]
        return self.access.service_account(name, namespace, *roles)

    async def kubeconfig(self, namespace: str) -> Path:
        """A kubeconfig file with exactly the rights that the manifests give to the copilot."""
        token = await self.service_account(namespace)
        return write_kubeconfig(self.folder / f"{namespace}.kubeconfig", self.endpoint.url, None, token, namespace)

    def add_namespace(self, name: str) -> None:
        self.resources.create(NAMESPACES, "", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})

    async def start(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # Cancellation, so that a watch ends with its client.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.resume()
        write_kubeconfig(self.endpoint.kubeconfig_path, self.endpoint.url, None, self.access.admin_token)
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            self.faults.clear()
            await self.pause()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def pause(self) -> None:
        """As if the server had died: no new connection is accepted, those that are open are reset. What is stored stays."""
        assert self._runner is not None
        if self._site is not None:
            await self._site.stop()
            self._site = None
        self.cut_connections()

    async def resume(self) -> None:
        """Listens again, at the same port."""
        assert self._runner is not None
        if self._site is None:
            self._site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True)
            await self._site.start()
            self.port = self._runner.addresses[0][1]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The server is away inside the block."""
        await self.pause()
        try:
            yield
        finally:
            await self.resume()

    def cut_connections(self) -> None:
        """Resets every open connection, watches included; the server goes on."""
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def compact(self) -> None:
        """Forgets the history: watches and pages from before now get 410."""
        self.store.compact()

    @property
    def watching(self) -> int:
        """How many watches are open now."""
        return self._router.watching

    def requests(self, verb: str = "", path: str = "") -> list[Request]:
        """The requests so far with this verb (several joined by `|`) whose path matches the regular expression."""
        return [one for one in self.account if (not verb or one.verb in verb.split("|")) and re.search(path, one.path)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        at, verb, user, code = time.monotonic(), request.method.lower(), "", 0
        body: Any = None
        try:
            who = self.access.who(request.headers.get("Authorization", ""))
            user = who.name
            if request.path in ("/version", "/readyz", "/livez", "/healthz"):
                verb = "get"
                answer = await self._through_faults(request, verb, lambda _: _plain(request.path))
            else:
                ask, version = parse(request)
                verb = ask.verb
                if not who.may(ask):
                    raise forbidden(who, ask)
                body = await read_body(request)
                answer = await self._through_faults(
                    request, verb, lambda fault: self._router.carry_out(request, ask, version, body, fault)
                )
            code = answer.status
            return answer
        except StatusError as error:
            code = error.code
            headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else None
            return as_json(error.body, error.code, headers)
        except PageNotFound:
            code = 404
            return web.Response(text="404 page not found\n", status=404)
        finally:
            self.account.append(Request(verb, request.path, code, at, user, body))

    async def _through_faults(
        self, request: web.Request, verb: str, carry_out: Callable[[Fault | None], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        fault = self.faults.strike(verb, request.path)
        if fault is None:
            return await carry_out(None)
        if fault.action is Action.HANG:
            await fault.ended.wait()
            _reset(request)
        elif fault.action is Action.RESET_BEFORE:
            _reset(request)
        elif fault.action is Action.RESET_AFTER:
            await carry_out(fault)
            _reset(request)
        elif fault.action is Action.SLOW:
            await asyncio.sleep(fault.seconds)
        elif fault.action is Action.STATUS or (fault.action is Action.GONE and verb != "watch"):
            raise fault.error()
        return await carry_out(fault)


async def _plain(path: str) -> web.Response:
    return as_json(VERSION) if path == "/version" else web.Response(text="ok")


def _reset(request: web.Request) -> None:
    """Cuts the connection and ends the handler, as the loss of the connection would."""
    if request.transport is not None:
        request.transport.abort()
    raise asyncio.CancelledError
