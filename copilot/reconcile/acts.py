"""What is done once: updates of Slurm's nodes and deletions of pods, each in a queue of its own so that neither waits for the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from copilot.hostlist import fold
from copilot.kube import Kube, KubeError
from copilot.model import Target
from copilot.plan import NodeUpdate, PodDelete, Told
from copilot.slurm import Slurm, SlurmRefused, SlurmUnavailable
from copilot.targets import involved

_log = structlog.get_logger()
_UPDATE_CURE = "none where the node has gone on meanwhile; it is decided anew on the next view. Else: may this user update nodes? is slurmctld there?"
_DELETE_CURE = "tried again in a second; if it stays so: slurmctld-copilot check tells missing rights"
# Seconds within which the same Event is not created again.
_SAME = 600.0


class Teller:
    """Tells Slurm. `told` is what the decision reads: a node is not told again before a view that was taken after the answer.

    What is asked for while scontrol runs is gathered: the next call takes all nodes of one state and reason together.
    """

    def __init__(self, slurm: Slurm, clock: Callable[[], float], done: Callable[[], None]) -> None:
        self.told: dict[str, Told] = {}
        self._slurm = slurm
        self._clock = clock
        self._done = done
        self._pending: dict[tuple[str, str], list[str]] = {}
        self._asked = asyncio.Event()

    def tell(self, updates: Iterable[NodeUpdate]) -> None:
        """Queues the updates. The decision repeats none that is under way, so each node is queued at most once."""
        for update in updates:
            for name in update.nodes:
                self.told[name] = Told(update.state, self._clock(), done=False)
            self._pending.setdefault((update.state, update.reason), []).extend(update.nodes)
            self._asked.set()

    def forget(self, tracked: Iterable[str]) -> None:
        """Drops what was told of nodes that are at rest again, so that the memory does not grow."""
        kept = set(tracked)
        self.told = {name: told for name, told in self.told.items() if name in kept or not told.done}

    async def run(self) -> None:
        """Never returns; what Slurm refuses is logged, and decided anew on the next view."""
        while True:
            await self._asked.wait()
            state, reason = next(iter(self._pending))
            nodes = self._pending.pop((state, reason))
            if not self._pending:
                self._asked.clear()
            await self._update(state, nodes, reason)
            for name in nodes:
                self.told[name] = Told(state, self._clock())
            self._done()

    async def _update(self, state: str, nodes: Sequence[str], reason: str) -> None:
        words = {"state": state, "nodes": fold(nodes), "count": len(nodes), **({"reason": reason} if reason else {})}
        try:
            # without a state it is the reason that is set, or emptied
            await self._slurm.update(state, nodes, reason if reason or not state else None)
        except (SlurmRefused, SlurmUnavailable) as error:
            _log.error("slurm_update_failed", **words, error=str(error), cure=_UPDATE_CURE)
        else:
            _log.info("slurm_updated", **words)


class Deleter:
    """Deletes pods, each only while it still is the very pod that was judged (uid precondition)."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._queue: asyncio.Queue[PodDelete] = asyncio.Queue()
        self._under_way: set[str] = set()

    def delete(self, deletes: Iterable[PodDelete]) -> None:
        """Queues deletions that are not under way. An accepted one is not repeated: the pod's end comes by watch."""
        for delete in deletes:
            if delete.uid not in self._under_way:
                self._under_way.add(delete.uid)
                self._queue.put_nowait(delete)

    def forget(self, uids: set[str]) -> None:
        """Keeps only what still exists."""
        self._under_way &= uids

    async def run(self) -> None:
        """Never returns. A deletion that fails is forgotten after a second, so that the next decision may ask again."""
        while True:
            delete = await self._queue.get()
            try:
                await self._kube.delete(f"/api/v1/namespaces/{self._namespace}/pods/{delete.name}", delete.uid)
            except KubeError as error:
                _log.error("pod_delete_failed", node=delete.name, reason=delete.reason, error=str(error), cure=_DELETE_CURE)
                await asyncio.sleep(1.0)
                self._under_way.discard(delete.uid)
            else:
                _log.info("pod_deleted", node=delete.name, reason=delete.reason)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that `kubectl describe` of a target should show. `reason` is a word in CamelCase."""

    target: Target
    reason: str
    message: str
    warning: bool = True


class Announcer:
    """Creates Events on the targets. They are for people: when the API server is away they are dropped, the log has them all.

    The same thing said of the same target within ten minutes is one Event: a group that fails again and again must not bury the others.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue: asyncio.Queue[Notice] = asyncio.Queue(maxsize=100)
        self._said: dict[tuple[str, str, str], float] = {}

    def announce(self, notices: Iterable[Notice]) -> None:
        """Queues notices; what does not fit is dropped."""
        now = asyncio.get_running_loop().time()
        self._said = {said: at for said, at in self._said.items() if now - at < _SAME}
        for notice in notices:
            said = (notice.target.uid, notice.reason, notice.message)
            if said not in self._said and not self._queue.full():
                self._said[said] = now
                self._queue.put_nowait(notice)

    async def run(self) -> None:
        """Never returns."""
        while True:
            notice = await self._queue.get()
            try:
                await self._kube.create_event(
                    involved(notice.target.ref, notice.target.uid), notice.reason, notice.message, warning=notice.warning
                )
            except KubeError as error:
                _log.warning("event_not_created", target=str(notice.target.ref), reason=notice.reason, error=str(error))
                self._said.pop((notice.target.uid, notice.reason, notice.message), None)
                await asyncio.sleep(1.0)
