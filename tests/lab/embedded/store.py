"""The objects, one resourceVersion for all of them, and the history that watches read.

Objects are never changed in place: a write puts a new one, so lists, watches and open pages may share them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.endpoint import Object

Key = tuple[str, str, str]  # kind's path (`apps/v1/statefulsets`), namespace ("" for cluster-wide kinds), name


@dataclass(frozen=True, slots=True)
class Change:
    """One write. `before` is None for a create, `after` is None for a delete, whose last state is in `final`."""

    version: int
    key: Key
    before: Object | None
    after: Object | None
    final: Object


class Store:
    """Objects by key. `floor` is the newest version that has been forgotten: watches may begin at it or later.

    `changed` is set by the next write: take it before you look, wait for it afterwards.
    """

    def __init__(self, keep: int = 20_000) -> None:
        self.version = 1
        self.floor = 0
        self._objects: dict[Key, Object] = {}
        self._history: deque[Change] = deque()
        self._keep = keep
        self.changed = asyncio.Event()

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def select(self, kind: str, namespace: str) -> list[Object]:
        """All of one kind, of one namespace unless that is "", in no order that anybody may rely on."""
        return [obj for key, obj in self._objects.items() if key[0] == kind and namespace in ("", key[1])]

    def put(self, key: Key, obj: Object) -> Object:
        """Creates or replaces; the resourceVersion is set here. Returns what is stored."""
        self.version += 1
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._remember(Change(self.version, key, self._objects.get(key), stored, stored))
        self._objects[key] = stored
        return stored

    def remove(self, key: Key) -> Object:
        """Deletes; the last state gets the version of the delete, as watchers of the real server see it."""
        self.version += 1
        before = self._objects.pop(key)
        final = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self._remember(Change(self.version, key, before, None, final))
        return final

    def _remember(self, change: Change) -> None:
        self._history.append(change)
        while len(self._history) > self._keep:
            self.floor = self._history.popleft().version
        # Whoever waits holds the old event: a new one is made so that nobody has to clear it.
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, version: int) -> Iterator[Change]:
        """Changes newer than `version`, oldest first."""
        newest_first = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            newest_first.append(change)
        return reversed(newest_first)

    def compact(self) -> None:
        """Forgets all history: a watch or a page that begins at an older version than now gets 410."""
        self.floor = self.version
        self._history.clear()
