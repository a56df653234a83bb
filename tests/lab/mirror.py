"""A lab part's own picture of a collection, kept by list and watch through everything that may happen to the server.

Made for the parts that play Kubernetes (controllers, operator, kubelet), which must come back after the API server was away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import aiohttp

from tests.lab.endpoint import Admin, ApiError, Object

# What a request may end with while the server is away, comes back, or is told to fail.
PASSING = (aiohttp.ClientError, ApiError, TimeoutError, OSError)
_PAUSE = 0.1  # seconds between attempts: short, as the lab waits for it


class Mirror:
    """Objects by (namespace, name). `changed` is set at each change and cleared by whoever waits for it."""

    def __init__(self, admin: Admin, path: str, changed: asyncio.Event) -> None:
        self._admin, self._path = admin, path
        self._objects: dict[tuple[str, str], Object] = {}
        self.changed = changed
        self.synced = asyncio.Event()

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    async def run(self) -> None:
        """Lists, watches, and begins again after any end; for ever."""
        while True:
            try:
                await self._list_and_watch()
            except PASSING:
                await asyncio.sleep(_PAUSE)

    async def _list_and_watch(self) -> None:
        page = await self._admin.get(self._path)
        self._objects = {_place(obj): obj for obj in page.get("items") or []}
        self.synced.set()
        self.changed.set()
        version = page["metadata"]["resourceVersion"]
        async with aclosing(self._admin.watch(self._path, resourceVersion=version, timeoutSeconds="300")) as events:
            async for event in events:
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self._objects.pop(_place(event["object"]), None)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    self._objects[_place(event["object"])] = event["object"]
                self.changed.set()


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


async def insist(call: Callable[[], Awaitable[Object]], *accepted: int) -> Object | None:
    """Repeats the call while the server is away or failing (no answer, 401, 429, 5xx); None for a status that is `accepted`.

    Any other refusal is a mistake of the lab's part and raised.
    """
    while True:
        try:
            return await call()
        except ApiError as error:
            if error.status in accepted:
                return None
            if error.status < 500 and error.status not in (401, 429):
                raise
        except PASSING:
            pass
        await asyncio.sleep(_PAUSE)
