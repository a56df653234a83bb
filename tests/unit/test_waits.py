"""Prologs that wait (issue: fast start), in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from copilot.model import Phase, SlurmView
from copilot.plan import Track
from copilot.reconcile.waits import Waits
from copilot.server import WaitAnswer, WaitState
from tests.unit.worlds import BUSY, COMING, OFF, POWERING_UP, UP, node

pytestmark = pytest.mark.looptime
IDLE_POWERING_UP = "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP"


class Bench:
    """Waits with a view that the test sets."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests = 0
        self.waits = Waits(self.loop.time, self.request)
        self.view: SlurmView | None = None
        self.tracks: dict[str, Track] = {}

    def request(self) -> None:
        self.requests += 1

    def look(self, **states: str) -> None:
        self.view = SlurmView(self.loop.time(), {name: node(name, state) for name, state in states.items()})
        self.waits.settle(self.view, self.tracks)

    def wait(self, *nodes: str, seconds: float = 100) -> asyncio.Task[WaitAnswer]:
        return asyncio.create_task(self.waits.wait(nodes, self.loop.time() + seconds, self.view, self.tracks))


async def test_it_ends_when_all_nodes_are_up() -> None:
    bench = Bench()
    waiting = bench.wait("a", "b")
    await asyncio.sleep(1)
    bench.look(a=POWERING_UP, b=POWERING_UP)
    bench.look(a=BUSY, b=POWERING_UP)
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.look(a=BUSY, b=BUSY)
    assert (await waiting).state is WaitState.UP


async def test_allocated_and_powered_down_means_coming() -> None:
    bench = Bench()
    waiting = bench.wait("a")
    for _ in range(3):
        await asyncio.sleep(1)
        bench.look(a=COMING)
    assert not waiting.done()
    bench.look(a=BUSY)
    assert (await waiting).state is WaitState.UP


@pytest.mark.parametrize("state", [IDLE_POWERING_UP, OFF])
async def test_it_ends_when_the_job_is_gone(state: str) -> None:
    bench = Bench()
    waiting = bench.wait("a")
    await asyncio.sleep(1)
    bench.look(a=POWERING_UP)
    await asyncio.sleep(1)
    bench.look(a=state)
    assert await waiting == WaitAnswer(WaitState.GONE, missing=["a"])


async def test_a_view_from_before_the_wait_says_nothing_about_it() -> None:
    bench = Bench()
    await asyncio.sleep(1)
    bench.look(a=OFF)
    await asyncio.sleep(1)
    waiting = bench.wait("a")
    await asyncio.sleep(0)
    bench.waits.settle(bench.view, {})
    await asyncio.sleep(1)
    assert not waiting.done()
    assert bench.requests == 1
    waiting.cancel()


async def test_nodes_that_are_up_in_a_young_view_need_no_look() -> None:
    bench = Bench()
    await asyncio.sleep(10)
    bench.look(a=UP)
    await asyncio.sleep(1)
    assert (await bench.wait("a")).state is WaitState.UP
    assert bench.requests == 0
    await asyncio.sleep(10)
    late = bench.wait("a")
    await asyncio.sleep(0)
    assert bench.requests == 1
    bench.look(a=UP)
    assert (await late).state is WaitState.UP


async def test_it_tells_which_nodes_failed_and_why() -> None:
    bench = Bench()
    bench.tracks = {"b": Track(Phase.FAILED, 0.0, message="no such image")}
    waiting = bench.wait("a", "b")
    await asyncio.sleep(1)
    bench.look(a=BUSY, b=POWERING_UP)
    assert await waiting == WaitAnswer(WaitState.FAILED, {"b": "no such image"}, ["b"])


async def test_it_ends_at_its_deadline_and_leaves_nothing_behind() -> None:
    bench = Bench()
    waiting = bench.wait("a", seconds=60)
    assert await waiting == WaitAnswer(WaitState.TIMEOUT, missing=("a",))
    assert bench.loop.time() == pytest.approx(60, abs=0.1)
    assert len(bench.waits) == 0


async def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    bench = Bench()
    waiting = bench.wait("a")
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.sleep(0.1)
    assert len(bench.waits) == 0


async def test_stopping_answers_all_and_every_later_one() -> None:
    bench = Bench()
    several = [bench.wait("a") for _ in range(50)]
    await asyncio.sleep(1)
    bench.waits.stop()
    answers = await asyncio.gather(*several, bench.wait("a"))
    assert {answer.state for answer in answers} == {WaitState.STOPPING}


async def test_a_thousand_waits_are_answered_without_holding_up_the_loop() -> None:
    """All of them, but not in one piece: each answer is logged and written."""
    bench = Bench()
    waiting = [bench.wait("a") for _ in range(1000)]
    await asyncio.sleep(1)
    bench.look(a=BUSY)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < sum(each.done() for each in waiting) < 500
    answers = await asyncio.gather(*waiting)
    assert {answer.state for answer in answers} == {WaitState.UP}
