"""The paths under /v1/: what the hooks post, what the prologs wait for, what `status` asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import structlog
from aiohttp import web

from copilot.config import Settings
from copilot.hints import jobs_by_node
from copilot.hostlist import HostlistError, expand, fold
from copilot.model import Verb
from copilot.server.core import Core, HookAnswer, WaitAnswer, WaitState
from copilot.server.gate import RefusedError, answer, request_id_now, shown
from copilot.telemetry import HookOutcome

# So many job ids and ignored groups are written in one log line; the rest is counted.
LOGGED = 20
# Rows of the node table that are made JSON in one step, so that 10,000 nodes do not stall the loop.
ROWS = 500
_WAIT_STATUS = {WaitState.TIMEOUT: 504, WaitState.STOPPING: 503}
log = structlog.get_logger()


class Hooks:
    """The handlers. `patience`: seconds that a body may take to arrive."""

    def __init__(self, core: Core, settings: Settings, patience: float) -> None:
        self._core = core
        self._settings = settings
        self._patience = patience
        self._waits: set[asyncio.Task[WaitAnswer]] = set()
        self._stopping = False

    def routes(self) -> list[web.RouteDef]:
        """For the application's router."""
        verbs = "|".join(Verb)
        return [
            web.post(f"/v1/{{verb:{verbs}}}", self.post),
            web.get("/v1/wait", self.wait, allow_head=False),
            web.get("/v1/groups", self.groups, allow_head=False),
            web.get("/v1/nodes", self.nodes, allow_head=False),
            web.get("/v1/nodes/{name}", self.node, allow_head=False),
        ]

    def stop(self) -> None:
        """From now on everybody is told to ask again: those who wait, and those who come."""
        self._stopping = True
        for task in self._waits:
            task.cancel()

    async def post(self, request: web.Request) -> web.Response:
        """A hook call: 202 with what was accepted and what ignored, 422 if nothing was accepted."""
        verb = Verb(request.match_info["verb"])
        body = _decoded(await self._read(request))
        if self._stopping:
            raise _stopping()
        nodes = self._expanded(body.get("nodes"), "nodes in the body")
        await asyncio.sleep(0)  # with 10,000 nodes and as many jobs each half takes 25 ms; others need not wait for both
        jobs = jobs_by_node(body.get("resume_file"), self._settings.max_nodes)
        await asyncio.sleep(0)
        known = set(nodes)
        result = self._core.hook(verb, nodes, request_id_now(), {node: ids for node, ids in jobs.items() if node in known})
        ignored = [{"nodes": fold(names), "reason": reason} for names, reason in result.ignored]
        if not result.accepted:
            raise RefusedError(422, HookOutcome.UNACCEPTABLE, "none of the nodes was accepted; see ignored", ignored=ignored)
        accepted = fold(result.accepted)
        self._core.metrics.hook(verb, HookOutcome.PARTLY if ignored else HookOutcome.ACCEPTED)
        self._log_hook(verb, result, accepted, ignored, sorted({job for ids in jobs.values() for job in ids}))
        return answer(request_id_now(), 202, {"accepted": accepted, "ignored": ignored})

    def _log_hook(self, verb: Verb, result: HookAnswer, accepted: str, ignored: list[dict[str, str]], jobs: list[int]) -> None:
        more: dict[str, Any] = {"ignored": ignored[:LOGGED]} if ignored else {}
        if jobs:
            more |= {"jobs": jobs[:LOGGED], "job_count": len(jobs)}
        log.info("hook", action=verb, nodes=accepted, node_count=len(result.accepted), **more)

    async def _read(self, request: web.Request) -> bytes:
        if request.content_type != "application/json":
            text = f"the body's Content-Type is {shown(request.content_type)}; send application/json"
            raise RefusedError(415, HookOutcome.MALFORMED, text)
        most = self._settings.max_body
        if (request.content_length or 0) > most:
            text = f"the body has {request.content_length} bytes, more than the {most} of --max-body; fold the hostlist"
            raise RefusedError(413, HookOutcome.TOO_LARGE, text)
        try:
            async with asyncio.timeout(self._patience):
                return await request.read()
        except TimeoutError:
            text = f"the body was not complete within {self._patience:g} s; send it in one go"
            raise RefusedError(408, HookOutcome.SLOW, text) from None

    def _expanded(self, text: object, where: str) -> Sequence[str]:
        """Distinct names of a hostlist, in its order."""
        if not isinstance(text, str) or not text.strip():
            raise RefusedError(400, HookOutcome.MALFORMED, f"{where}: a hostlist such as gpu-[0-3] is missing")
        try:
            return tuple(dict.fromkeys(expand(text.strip(), self._settings.max_nodes)))
        except HostlistError as error:
            raise RefusedError(400, HookOutcome.MALFORMED, f"{where}: {error}") from error

    async def wait(self, request: web.Request) -> web.Response:
        """Answers once the nodes are up, or failed, or not needed any more; 504 after `timeout` seconds, 503 when we stop."""
        if self._stopping:
            raise _stopping()
        nodes = self._expanded(request.query.get("nodes"), "nodes in the query")
        seconds = _seconds(request.query.get("timeout", ""), self._settings.wait_max)
        if len(self._waits) >= self._settings.max_waits:
            text = f"{len(self._waits)} prologs wait already, the most that --max-waits allows; ask again"
            raise RefusedError(429, HookOutcome.UNACCEPTABLE, text)
        loop = asyncio.get_running_loop()
        start = loop.time()
        result = await self._answer_of(self._core.wait(nodes, start + seconds))
        outcome = HookOutcome.STOPPING if result.state is WaitState.STOPPING else HookOutcome.ACCEPTED
        self._core.metrics.hook("wait", outcome)
        body = _wait_body(result)
        log.info("wait", job=request.query.get("job", "")[:40], nodes=fold(nodes), seconds=round(loop.time() - start, 3), **body)
        return answer(request_id_now(), _WAIT_STATUS.get(result.state, 200), body)

    async def _answer_of(self, waiting: Any) -> WaitAnswer:
        """The core's answer, or STOPPING if we stop first. If the caller goes away, the core's wait is cancelled with it."""
        task: asyncio.Task[WaitAnswer] = asyncio.ensure_future(waiting)
        self._waits.add(task)
        self._core.metrics.waiting(len(self._waits))
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._stopping and current is not None and not current.cancelling():
                return WaitAnswer(WaitState.STOPPING)
            raise
        finally:
            self._waits.discard(task)
            self._core.metrics.waiting(len(self._waits))

    async def groups(self, _request: web.Request) -> web.Response:
        """Everything of the snapshot but the nodes."""
        snapshot = self._core.snapshot()
        snapshot.pop("nodes", None)
        return answer(request_id_now(), 200, snapshot)

    async def node(self, request: web.Request) -> web.Response:
        """One node's story."""
        name = request.match_info["name"]
        story = self._core.node(name)
        if story is None:
            raise RefusedError(404, HookOutcome.MALFORMED, f"no worker group has a node {shown(name)}")
        return answer(request_id_now(), 200, {"node": story})

    async def nodes(self, request: web.Request) -> web.StreamResponse:
        """The whole snapshot, written in pieces."""
        snapshot = self._core.snapshot()
        rows = snapshot.pop("nodes", [])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(json.dumps({"request_id": request_id_now(), **snapshot})[:-1].encode() + b', "nodes": [')
        async for piece in _pieces(rows):
            await response.write(piece)
        await response.write(b"]}\n")
        await response.write_eof()
        return response


async def _pieces(rows: Sequence[Any]) -> AsyncIterator[bytes]:
    """Rows as JSON, some at a time; between two pieces the loop may do other things."""
    for start in range(0, len(rows), ROWS):
        yield (", " if start else "").encode() + json.dumps(rows[start : start + ROWS])[1:-1].encode()
        await asyncio.sleep(0)


def _stopping() -> RefusedError:
    return RefusedError(503, HookOutcome.STOPPING, "stopping, ask again")


def _decoded(body: bytes) -> dict[str, Any]:
    """The JSON object in the body."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        text = f'the body is not JSON: {error}; send {{"nodes": "<hostlist>", "resume_file": null}}'
        raise RefusedError(400, HookOutcome.MALFORMED, text) from error
    if not isinstance(value, dict):
        text = f'the body must be an object, not {type(value).__name__}; send {{"nodes": "<hostlist>", "resume_file": null}}'
        raise RefusedError(400, HookOutcome.MALFORMED, text)
    return value


def _seconds(text: str, most: float) -> float:
    """The query's `timeout`, at most `most`; without one, `most`."""
    if not text:
        return most
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise RefusedError(400, HookOutcome.MALFORMED, f"timeout in the query: {shown(text)} is no number of seconds, 0 or more")
    return min(seconds, most)


def _wait_body(result: WaitAnswer) -> dict[str, Any]:
    """The answer as JSON: nodes folded by the reason of their failure."""
    by_reason: dict[str, list[str]] = {}
    for node, reason in result.failed.items():
        by_reason.setdefault(reason, []).append(node)
    body: dict[str, Any] = {"state": result.state}
    if by_reason:
        body["failed"] = [{"nodes": fold(names), "reason": reason} for reason, names in sorted(by_reason.items())]
    if result.missing:
        body["missing"] = fold(result.missing)
    if result.state is WaitState.STOPPING:
        body["error"] = "stopping, ask again"
    return body
