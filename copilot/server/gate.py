"""What every request goes through: an id, the access check, and refusals as one JSON sentence, one log line and one count."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from copilot.model import Verb
from copilot.server.access import Access, peer_of
from copilot.telemetry import HookOutcome, Metrics

PATHS = "POST /v1/resume, /v1/suspend, /v1/resume-fail and GET /v1/wait, /v1/nodes, /v1/groups"
log = structlog.get_logger()


class RefusedError(Exception):
    """A request that is not obeyed. `sentence` says what is wrong, where, and what to do; nothing has been changed."""

    def __init__(self, status: int, outcome: HookOutcome, sentence: str, **more: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.outcome = outcome
        self.sentence = sentence
        self.more = more


def request_id_now() -> str:
    """The id of the request that is being handled: the same that its log lines carry."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def answer(request_id: str, status: int, body: dict[str, Any]) -> web.Response:
    """One line of JSON, so that a hook can log it as it is. 503 and 429 ask to come again in a second."""
    headers = {"Retry-After": "1"} if status in (429, 503) else None
    text = json.dumps({"request_id": request_id, **body}) + "\n"
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


def shown(text: str, width: int = 80) -> str:
    """A caller's text, quoted and cut, fit for a sentence."""
    return repr(text if len(text) <= width else text[:width] + "...")


def action_of(path: str) -> str:
    """The metric label for a path: a verb, `wait`, `status`, or `other`."""
    word = path.removeprefix("/v1/")
    return {"wait": "wait", "nodes": "status", "groups": "status"}.get(word, word if word in list(Verb) else "other")


def refuse(metrics: Metrics, action: str, request_id: str, refused: RefusedError, **caller: Any) -> web.Response:
    """Logs, counts and answers."""
    metrics.hook(action, refused.outcome)
    log.warning("request_refused", action=action, status=refused.status, outcome=refused.outcome, why=refused.sentence, **caller)
    return answer(request_id, refused.status, {"error": refused.sentence, **refused.more})


def gatekeeper(metrics: Metrics, access: Access) -> Middleware:
    """The middleware."""

    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if isinstance(request.protocol, Connection):
            request.protocol.head_is_here()
        request_id = secrets.token_hex(4)
        action = action_of(request.path)
        peer = peer_of(request.transport)
        caller = {"uid": peer.uid, "pid": peer.pid} if peer else {"from": request.remote or "?"}
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                _check(request, access)
                return await handler(request)
            except RefusedError as refused:
                return refuse(metrics, action, request_id, refused, **caller)
            except web.HTTPException as error:
                return refuse(metrics, action, request_id, _worded(request, error), **caller)
            except web.RequestPayloadError as error:
                wrong = RefusedError(400, HookOutcome.MALFORMED, f"the body cannot be read: {error}; send all of it")
                return refuse(metrics, action, request_id, wrong, **caller)
            except (asyncio.CancelledError, ConnectionError):
                metrics.hook(action, HookOutcome.ABORTED)
                log.info("request_aborted", action=action, why="the caller closed the connection", **caller)
                raise

    return gate


def _check(request: web.Request, access: Access) -> None:
    peer = peer_of(request.transport)
    if peer and not access.allows_peer(peer):
        text = f"only root and SlurmUser may ask here, not the user with number {peer.uid}; see --slurm-user of the copilot"
        raise RefusedError(403, HookOutcome.FORBIDDEN, text)
    if not peer and not access.allows_token(request.headers.get("Authorization", "")):
        raise RefusedError(
            401, HookOutcome.FORBIDDEN, "send the header Authorization: Bearer with the token of --hooks-token-file"
        )


def _worded(request: web.Request, error: web.HTTPException) -> RefusedError:
    """The framework's refusals in our words."""
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return RefusedError(405, HookOutcome.MALFORMED, f"{request.path} takes {allowed}, not {shown(request.method)}")
    if isinstance(error, web.HTTPNotFound):
        return RefusedError(404, HookOutcome.MALFORMED, f"there is no {shown(request.path)}; there are {PATHS}")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return RefusedError(
            413, HookOutcome.TOO_LARGE, f"the body is too large: {error.text}; name the nodes as a folded hostlist"
        )
    return RefusedError(error.status, HookOutcome.MALFORMED, f"{error.reason}: {error.text}")


class Connection(web.RequestHandler):
    """One connection of a hook: the framework's, plus a deadline for the first request's head and answers in our words."""

    # The longest argument that the kernel passes to a prolog is 128 KiB; every byte of it may take three in a URL.
    LINE_MAX = 3 * 128 * 1024 + 4096
    KEEP_ALIVE = 15.0  # seconds

    def __init__(self, server: web.Server, metrics: Metrics, patience: float) -> None:
        """`patience`: seconds until the head of the first request must be there."""
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, max_line_size=self.LINE_MAX, keepalive_timeout=max(self.KEEP_ALIVE, 2 * patience))
        self._metrics = metrics
        self._patience = patience
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer = asyncio.get_running_loop().call_later(self._patience, self._overdue)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.head_is_here()
        super().connection_lost(exc)

    def head_is_here(self) -> None:
        """A request has been parsed: from here on its handler has deadlines of its own."""
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _overdue(self) -> None:
        """Half a request, or none. There is no request object to answer, so the answer is written by hand."""
        if self.transport is None:
            return
        text = f"no whole request within {self._patience:g} s of connecting; send it in one go"
        slow = RefusedError(408, HookOutcome.SLOW, text)
        body = refuse(self._metrics, "other", "", slow, **_caller(self.transport)).body
        assert isinstance(body, bytes)
        head = (
            "HTTP/1.1 408 Request Timeout",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write("\r\n".join((*head, "", "")).encode() + body)
        self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is not HTTP (400), and what our own handlers did not expect (500)."""
        self.head_is_here()
        if status == 500:
            log.error("request_failed", path=request.path, exc_info=exc)
            failed = RefusedError(500, HookOutcome.ERROR, "the copilot failed at this request; its log has the cause")
        else:
            failed = RefusedError(status, HookOutcome.MALFORMED, f"this is not a request of HTTP: {shown(message or str(exc))}")
        response = refuse(self._metrics, action_of(request.path), "", failed, **_caller(self.transport))
        response.force_close()
        return response


def _caller(transport: asyncio.BaseTransport | None) -> dict[str, Any]:
    peer = peer_of(transport)
    return {"uid": peer.uid, "pid": peer.pid} if peer else {}
