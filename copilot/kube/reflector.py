"""A collection kept in memory by list-then-watch.

The library's own Watch is not used: it spins on streams that end at once, repeats a version that the server has already called too old (410),
and takes error bodies for events.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import structlog

from copilot.kube.client import Kube
from copilot.kube.errors import KubeError, Refused, Unavailable
from copilot.kube.retry import backoff
from copilot.kube.selection import ALL, Selection
from copilot.kube.watch import QUIET, Event, Expired, watch

T = TypeVar("T")
Object = dict[str, Any]
_log = structlog.get_logger(__name__)
# Seconds that a watch must have lasted to count as a success.
_HEALTHY = 5.0
# Refusals in a row, after pauses of 1, 2 and 4 s.
_REFUSALS_BELIEVED = 4


class State(StrEnum):
    """How a reflector stands with its collection."""

    STARTING = "starting"  # not listed yet
    SYNCED = "synced"  # listed, and the watch is open
    BROKEN = "broken"  # listed before or not, no watch now; trying again
    ABSENT = "absent"  # the server does not serve this kind; nothing there, asked again now and then
    REFUSED = "refused"  # we may not read it; asked again now and then


class Reflector(Generic[T]):
    """`items` maps names to what `project` made of the objects, at all times a whole list plus the events since; take it anew each time.

    `project(object, before)` gets the raw object and what it made of the name the last time; None leaves the object out. `on_change` is
    called without arguments after `items` or `state` has changed; it must not block.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        project: Callable[[Object, T | None], T | None],
        *,
        selection: Selection = ALL,
        on_change: Callable[[], None] = lambda: None,
        refused_pause: float = 60.0,
        silence: float = 150.0,
        stale_after: float = 60.0,
    ) -> None:
        """Seconds: `refused_pause` between questions for a kind that is absent or forbidden; `silence` after which a watch is taken for dead
        (the server sends a bookmark every minute); `stale_after` without a watch, after which `synced` is no longer true."""
        self._kube = kube
        self.path = path
        self._project = project
        self._selection = selection
        self._on_change = on_change
        self._refused_pause = refused_pause
        self._silence = silence
        self._stale_after = stale_after
        self._items: dict[str, T] = {}
        self._relist = asyncio.Event()
        self._listed = False
        self._settled = False
        self._refusals = 0
        self.state = State.STARTING
        self.problem = ""
        self.last_contact = 0.0

    @property
    def items(self) -> Mapping[str, T]:
        """Never half a list: a new one replaces the old at once."""
        return MappingProxyType(self._items)

    @property
    def synced(self) -> bool:
        """`items` can be relied on: listed, and the watch open or only just broken. True too for a kind that is absent."""
        if self.state in (State.SYNCED, State.ABSENT):
            return True
        return self._listed and asyncio.get_running_loop().time() - self.last_contact < self._stale_after

    @property
    def settled(self) -> bool:
        """The first answer of any kind is there: a list, or that there is none to be had. A server that goes away does not undo it."""
        return self._settled

    def refresh(self) -> None:
        """Asks for a new list as soon as may be; what is known stays until it has come."""
        self._relist.set()

    async def run(self) -> None:
        """Never returns and never raises because of the API server."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            self._relist.clear()
            began, pause, failed = loop.time(), 0.0, True
            try:
                await self._until_relist(await self._list())
                failed = False
            except Expired:
                pass
            except Refused as error:
                pause = self._refused(error)
            except KubeError as error:
                pause = backoff(failures, error.retry_after if isinstance(error, Unavailable) else None)
                self._become(State.BROKEN, str(error))
            # A version may expire once; a server that says so of every new one must not be asked in a loop.
            failures = failures + 1 if failed and loop.time() - began < _HEALTHY else 0
            await self._wait(max(pause, backoff(failures - 1) if failures else 0.0, began + 1.0 - loop.time()))

    async def _list(self) -> str:
        found: dict[str, T] = {}
        version = ""
        async with aclosing(self._kube.pages(self.path, self._selection)) as pages:
            async for page, version in pages:  # noqa: B007 - the last one counts
                for obj in page:
                    self._put(found, obj, self._items)
                await asyncio.sleep(0)  # a page takes tens of milliseconds to parse: let others run in between
        changed = found != self._items
        self._items, self._listed, self._settled, self._refusals = found, True, True, 0
        self._touch()
        if not self._become(State.SYNCED) and changed:
            self._on_change()
        return version

    async def _until_relist(self, version: str) -> None:
        """Watches until that ends for good (it raises), or a new list is asked for (it returns)."""
        following = asyncio.ensure_future(self._follow(version))
        asked = asyncio.ensure_future(self._relist.wait())
        try:
            await asyncio.wait((following, asked), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            following.cancel()
            asked.cancel()
            await asyncio.gather(following, asked, return_exceptions=True)

    async def _follow(self, version: str) -> None:
        """One watch after the other from where the last one ended. Leaves only by Expired or Refused."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            opened, retry_after = loop.time(), None
            try:
                async with aclosing(watch(self._kube, self.path, self._selection, version, self._silence)) as events:
                    async for event in events:
                        version = event.version
                        self._take(event)
                # It ended as it should. An empty stream does so too, and at once: those must not make a busy loop.
                failures = 0 if loop.time() - opened >= 1.0 else failures + 1
            except Unavailable as error:
                failures = 1 if loop.time() - opened >= _HEALTHY else failures + 1
                retry_after = error.retry_after
                self._become(State.BROKEN, str(error))
            if failures:
                await asyncio.sleep(backoff(failures - 1, retry_after))

    def _take(self, event: Event) -> None:
        self._touch()
        self._become(State.SYNCED)
        if event.kind in QUIET:
            return
        name = event.object["metadata"]["name"]
        before = self._items.get(name)
        if event.kind == "DELETED":
            self._items.pop(name, None)
        else:
            self._put(self._items, event.object, self._items)
        if self._items.get(name) != before:
            self._on_change()

    def _put(self, into: dict[str, T], obj: Object, known: Mapping[str, T]) -> None:
        """One object that cannot be understood spoils nothing but itself."""
        name = obj["metadata"]["name"]
        try:
            value = self._project(obj, known.get(name))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            _log.warning("object_not_understood", path=f"{self.path}/{name}", error=repr(error))
            return
        if value is None:
            into.pop(name, None)
        else:
            into[name] = value

    def _refused(self, error: Refused) -> float:
        """Returns the pause, which grows up to `refused_pause`.

        An API server that has just started refuses for a second or two what it will allow (403: it has not read the roles yet), so
        what worked before is believed to be forbidden, or gone, only after some seconds.
        """
        self._refusals += 1
        if error.status in (401, 410) or (self._listed and self._refusals < _REFUSALS_BELIEVED):
            self._become(State.BROKEN, str(error))
        else:
            self._settled = True
            if error.kind_missing:
                self._items = {}
            self._become(State.ABSENT if error.kind_missing else State.REFUSED, str(error))
        longest = min(self._refused_pause, 2.0 ** min(self._refusals - 1, 10))
        return longest * random.uniform(0.9, 1.1)  # noqa: S311 - jitter

    def _touch(self) -> None:
        self.last_contact = asyncio.get_running_loop().time()

    def _become(self, state: State, problem: str = "") -> bool:
        """True when that is news; told once, not at every attempt."""
        self.problem = problem
        if state is self.state:
            return False
        before, self.state = self.state, state
        if problem:
            _log.warning("watch_state", path=self.path, state=state, before=before, problem=problem)
        else:
            _log.info("watch_state", path=self.path, state=state, before=before)
        self._on_change()
        return True

    async def _wait(self, seconds: float) -> None:
        """A request for a new list ends the pause, but not before a second has passed."""
        await asyncio.sleep(min(seconds, 1.0))
        if seconds > 1.0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._relist.wait(), seconds - 1.0)
