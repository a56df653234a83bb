"""The body of a watch: one JSON event a line until the time is up, the client goes or a fault strikes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random

from aiohttp import web

from tests.lab.embedded.faults import Action, Fault
from tests.lab.embedded.kinds import Kind
from tests.lab.embedded.reading import Watch
from tests.lab.embedded.status import StatusError
from tests.lab.embedded.store import Store
from tests.lab.endpoint import Object

# The real server ends a watch without timeoutSeconds after 30 to 60 minutes.
_LONGEST = (1800.0, 3600.0)


class _Stream:
    """Writes events; knows when the next bookmark is due, by the rules of the real server's cache."""

    def __init__(self, response: web.StreamResponse, request: web.Request, fault: Fault | None, bookmark_every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._response, self._request, self._fault, self._every = response, request, fault, bookmark_every
        self._start = self._loop.time()
        self.deadline = self._start + float(request.query.get("timeoutSeconds") or random.uniform(*_LONGEST))
        wanted = request.query.get("allowWatchBookmarks", "") in ("true", "1")
        self.bookmarks = wanted and not (fault is not None and fault.action is Action.BOOKMARK_GAP)
        self.next_bookmark = self._after(self._start)

    def _after(self, now: float) -> float:
        """Each `bookmark_every` seconds, and 2 s before the end."""
        before_the_end = self.deadline - 2
        return before_the_end if now < before_the_end < now + self._every else now + self._every

    async def send(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        fault = self._fault
        if fault is not None and fault.action is Action.CUT_WATCH and self._loop.time() >= self._start + fault.seconds:
            await self._response.write(line[: len(line) // 2])
            assert self._request.transport is not None
            # Closing sends what is buffered first, so that the client does see half a line, and no end of the body.
            self._request.transport.close()
            raise asyncio.CancelledError
        await self._response.write(line)

    async def run(self, watch: Watch) -> None:
        while (now := self._loop.time()) < self.deadline:
            changed = watch.store.changed
            for event in watch.due():
                await self.send(event)
            if self.bookmarks and now >= self.next_bookmark:
                self.next_bookmark = self._after(now)
                if bookmark := watch.bookmark():
                    await self.send(bookmark)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(self.deadline, self.next_bookmark) if self.bookmarks else self.deadline):
                    await changed.wait()


async def stream(
    request: web.Request, store: Store, kind: Kind, namespace: str, fault: Fault | None, bookmark_every: float
) -> web.StreamResponse:
    """Answers a watch. A version that is too old is told by an ERROR event in a stream of status 200, as the real server does."""
    watch, first = Watch.begin(store, kind, namespace, request.query)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    events = _Stream(response, request, fault, bookmark_every)
    try:
        if fault is not None and fault.action is Action.GONE:
            raise fault.error()
        for event in first:
            await events.send(event)
        await events.run(watch)
    except StatusError as error:
        await events.send({"type": "ERROR", "object": error.body})
    return response
