"""The stage of one run: the cluster, what is out of order on it just now, and what was done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.chaos.history import Deleted, History, Span
from tests.chaos.operations import Class, Operation
from tests.lab.cluster import Cluster

EDITED = "chaos/edited"  # the annotation by which a change of a target is known to be ours


class SkippedError(Exception):
    """The operation makes no sense at the moment; the message says why."""


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that was begun, seconds after the first, and what became of it ("" if it was done)."""

    at: float
    operation: Operation
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.at:7.1f} s  {self.operation}" + (f"  ({self.outcome})" if self.outcome else "")


@dataclass(slots=True)
class Submitted:
    """A job as we know it: whether its nodes were named, whether sbatch said that it was taken, and whether we have cancelled it."""

    at: float
    named: bool = False
    taken: bool = False
    cancelled: bool = False


class Scene:
    """`calm` is set when all faults are to end at once."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self.cluster, self.history = cluster, history
        self.calm = asyncio.Event()
        self.jobs: dict[str, Submitted] = {}
        self.drained: set[str] = set()
        self._parts: set[str] = set()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def touched(self, part: str) -> bool:
        """Whether an operation has its hands on that part: it may be away or frozen."""
        return part in self._parts

    @contextmanager
    def trouble(self, operation: Operation, part: str = "", *, forgets: bool = False) -> Iterator[None]:
        """Remembers that something is out of order inside the block. Only one operation at a time may have its hands on a part."""
        if part in self._parts:
            raise SkippedError(f"{part} is out of order already")
        begun = self.now
        # Until it is over nobody knows for how long: it counts from the start all the same.
        place = len(self.history.spans)
        harm = operation.sort.of is Class.HARM
        self.history.spans.append(Span(begun, float("inf"), str(operation), harm, forgets))
        self._parts |= {part} if part else set()
        try:
            yield
        finally:
            self._parts -= {part}
            self.history.spans[place] = Span(begun, self.now, str(operation), harm, forgets)

    def by_hand(self, node: str) -> None:
        """The container of the node is about to be ended by us."""
        self.history.deleted.append(Deleted(self.now, node, by_hand=True))

    async def last(self, seconds: float) -> None:
        """Returns after so many seconds, or at once when calm is wanted."""
        try:
            async with asyncio.timeout(seconds):
                await self.calm.wait()
        except TimeoutError:
            pass
