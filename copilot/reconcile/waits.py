"""Prologs that wait for their job's nodes: each ends when its nodes are up, have failed, or are nobody's any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from copilot.model import Phase, SlurmView
from copilot.plan import Track
from copilot.server import WaitAnswer, WaitState

# A view this young answers a wait for nodes that are up already without another look: job after job on warm nodes costs no scontrol.
_YOUNG = 2.0
# Each answer is then logged and written, 0.1 ms: so many are given before the event loop gets its turn for other things.
_AT_ONCE = 100


@dataclass(slots=True, eq=False)
class _Waiter:
    nodes: tuple[str, ...]
    since: float
    answer: asyncio.Future[WaitAnswer]


class Waits:
    """All waits at once. `settle` goes through them after every decision; a thousand cost about a millisecond until they are answered."""

    def __init__(self, clock: Callable[[], float], request_look: Callable[[], None]) -> None:
        self._clock = clock
        self._request_look = request_look
        self._waiters: set[_Waiter] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(
        self, nodes: Sequence[str], deadline: float, view: SlurmView | None, tracks: Mapping[str, Track]
    ) -> WaitAnswer:
        """See `Core.wait`. The view is looked at first: a prolog runs for every job, also on nodes that are up."""
        now = self._clock()
        waiter = _Waiter(tuple(nodes), now - _YOUNG, asyncio.get_running_loop().create_future())
        if self._stopping:
            return WaitAnswer(WaitState.STOPPING, missing=waiter.nodes)
        if (
            view is not None
            and view.taken_at > waiter.since
            and (answer := _ended(waiter, view, tracks))
            and answer.state is WaitState.UP
        ):
            return answer
        waiter.since = now
        self._request_look()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter.answer
        except TimeoutError:
            return WaitAnswer(WaitState.TIMEOUT, missing=waiter.nodes)
        finally:
            self._waiters.discard(waiter)

    def settle(self, view: SlurmView | None, tracks: Mapping[str, Track]) -> None:
        """Answers the waits that have ended. Only a view that was asked for after the wait began says anything about it."""
        if view is None:
            return
        open_waits = (waiter for waiter in self._waiters if view.taken_at >= waiter.since and not waiter.answer.done())
        self._answer([(waiter, answer) for waiter in open_waits if (answer := _ended(waiter, view, tracks))])

    def _answer(self, ended: Sequence[tuple[_Waiter, WaitAnswer]]) -> None:
        for waiter, answer in ended[:_AT_ONCE]:
            if not waiter.answer.done():
                waiter.answer.set_result(answer)
        if len(ended) > _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._answer, ended[_AT_ONCE:])

    def stop(self) -> None:
        """Answers all of them, and every later one, with STOPPING."""
        self._stopping = True
        for waiter in self._waiters:
            if not waiter.answer.done():
                waiter.answer.set_result(WaitAnswer(WaitState.STOPPING, missing=waiter.nodes))


def _ended(waiter: _Waiter, view: SlurmView, tracks: Mapping[str, Track]) -> WaitAnswer | None:
    """The answer, or None while it is open. Allocated and POWERED_DOWN means "coming" (facts: for a second or more), never "off"."""
    missing = [name for name in waiter.nodes if (node := view.nodes.get(name)) is None or not node.up]
    if not missing:
        return WaitAnswer(WaitState.UP)
    failed = {name: track.message for name in missing if (track := tracks.get(name)) is not None and track.phase is Phase.FAILED}
    if failed:
        return WaitAnswer(WaitState.FAILED, failed, missing)
    if not any((node := view.nodes.get(name)) is not None and node.busy for name in waiter.nodes):
        return WaitAnswer(WaitState.GONE, missing=missing)
    return None
