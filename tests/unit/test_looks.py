"""How often Slurm is asked (design: section 7), in virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from copilot.config import Settings
from copilot.model import Node, SlurmView
from copilot.plan import Pace
from copilot.reconcile.looks import Looks, Share

pytestmark = pytest.mark.looptime


class Slurmctld:
    """Answers after `takes` seconds, or fails. Without `busy` its table is as large as that time says: 10 us for each node."""

    def __init__(self, takes: float = 0.02, *, busy: bool = False) -> None:
        self.takes = takes
        node = Node("n", "IDLE")
        self.nodes = {str(index): node for index in range(10 if busy else int(takes * 1e5))}
        self.asked: list[float] = []
        self.views: list[SlurmView] = []
        self.dead = False
        self.errors = 0

    async def look(self) -> SlurmView:
        now = asyncio.get_running_loop().time()
        self.asked.append(now)
        await asyncio.sleep(self.takes)
        if self.dead:
            raise ConnectionError("slurmctld is away")
        return SlurmView(now, self.nodes)

    def failed(self, _error: Exception) -> None:
        self.errors += 1


def looks_of(slurmctld: Slurmctld, settings: Settings | None = None) -> Looks:
    clock = asyncio.get_running_loop().time
    return Looks(slurmctld.look, (ConnectionError,), settings or Settings(), clock, slurmctld.views.append, slurmctld.failed)


async def for_a_while(looks: Looks, seconds: float) -> None:
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(seconds)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_quiet_asks_twice_a_minute() -> None:
    slurmctld = Slurmctld()
    looks = looks_of(slurmctld)
    looks.pace(Pace.QUIET)
    await for_a_while(looks, 301)
    assert len(slurmctld.asked) == 11


async def test_a_request_is_answered_by_a_look_that_begins_after_it() -> None:
    slurmctld = Slurmctld(takes=1.0)
    looks = looks_of(slurmctld)
    looks.pace(Pace.QUIET)
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(0.5)  # a look is under way: it cannot know what happens now
    for _ in range(100):
        looks.request()
    await asyncio.sleep(5)
    running.cancel()
    assert slurmctld.asked == pytest.approx([0.0, 1.0], abs=0.01)


async def test_a_faster_pace_takes_effect_at_once() -> None:
    slurmctld = Slurmctld(takes=0.001)
    looks = looks_of(slurmctld)
    looks.pace(Pace.QUIET)
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(10)
    looks.pace(Pace.FAST)
    await asyncio.sleep(1.0)
    running.cancel()
    assert len(slurmctld.asked) >= 7


@pytest.mark.parametrize("takes", [0.02, 0.2, 1.0])
async def test_looks_never_take_more_than_their_share_of_a_minute(takes: float) -> None:
    slurmctld = Slurmctld(takes)
    looks = looks_of(slurmctld, Settings(poll_share=0.05))
    looks.pace(Pace.FAST)
    await for_a_while(looks, 600)
    for start in range(0, 540, 10):
        spent = sum(takes for asked in slurmctld.asked if start <= asked < start + 60)
        assert spent <= 0.05 * 60 + 2 * takes
    assert len(slurmctld.asked) * takes >= 0.5 * 0.05 * 600, "the share is there to be used"


async def test_a_dead_slurmctld_is_asked_at_most_once_a_second_and_never_given_up() -> None:
    slurmctld = Slurmctld(takes=0.001)
    slurmctld.dead = True
    looks = looks_of(slurmctld)
    looks.pace(Pace.FAST)
    running = asyncio.create_task(looks.run())
    for _ in range(100):
        looks.request()
        await asyncio.sleep(0.5)
    assert 5 <= len(slurmctld.asked) <= 50
    slurmctld.dead = False
    await asyncio.sleep(6)
    running.cancel()
    assert slurmctld.views


def test_a_burst_is_allowed_after_a_quiet_time() -> None:
    share = Share(0.05)
    for step in range(60):
        now = 100 + step * 0.15
        assert share.free_at(now, urgent=True) == now, "sixty looks of 20 ms are 1.2 s of the 3 s that a minute allows"
        share.add(now, 0.02)
    assert share.free_at(1000.0, urgent=True) == 1000.0


async def test_after_a_burst_looks_become_rare_but_never_stop() -> None:
    """Looks of 0.2 s, as at 10,000 nodes: to spend a minute's share in a few seconds must not leave us blind for the rest of the minute."""
    slurmctld = Slurmctld(takes=0.2)
    looks = looks_of(slurmctld, Settings(poll_share=0.05))
    looks.pace(Pace.FAST)
    await for_a_while(looks, 120)
    gaps = [later - earlier for earlier, later in pairwise(slurmctld.asked)]
    assert gaps[0] < 0.5, "a burst"
    assert max(gaps) == pytest.approx(0.2 / 0.025, abs=0.3)


async def test_looks_that_wait_for_a_busy_machine_do_not_become_rare() -> None:
    """Twenty pods that start on one machine make each look at a small table take over a second: their registration is to be seen at once."""
    slurmctld = Slurmctld(takes=1.6, busy=True)
    looks = looks_of(slurmctld, Settings(poll_share=0.05))
    looks.pace(Pace.FAST)
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(20)
    slurmctld.takes = 0.02
    await asyncio.sleep(5)
    running.cancel()
    gaps = [later - earlier for earlier, later in pairwise(slurmctld.asked)]
    assert max(gaps) == pytest.approx(1.6, abs=0.2)
    assert min(gaps) == pytest.approx(0.15, abs=0.02)


async def test_looks_at_intervals_leave_a_burst_for_what_is_urgent() -> None:
    """A pod that takes a minute to start is looked after once a second; when it runs, its registration is to be seen at once."""
    slurmctld = Slurmctld(takes=0.2)
    looks = looks_of(slurmctld, Settings(poll_share=0.05))
    looks.pace(Pace.ACTIVE)
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(60)
    before = len(slurmctld.asked)
    looks.pace(Pace.FAST)
    await asyncio.sleep(1.5)
    running.cancel()
    assert len(slurmctld.asked) - before >= 5


async def test_a_slurmctld_that_was_away_or_frozen_is_seen_soon_after_it_is_back() -> None:
    slurmctld = Slurmctld(takes=10.0, busy=True)
    slurmctld.dead = True
    looks = looks_of(slurmctld)
    looks.pace(Pace.ACTIVE)
    running = asyncio.create_task(looks.run())
    await asyncio.sleep(120)
    slurmctld.dead = False  # but each answer still takes 10 s, as during `scontrol reconfigure`
    await asyncio.sleep(60)
    assert len(slurmctld.views) >= 2
    slurmctld.takes, before = 0.02, len(slurmctld.views)
    await asyncio.sleep(60)
    running.cancel()
    assert len(slurmctld.views) - before >= 10


async def test_a_burst_of_urgent_looks_does_not_hold_up_the_later_ones_at_intervals() -> None:
    """Hooks and prologs ask for a look each; then a node that powers down is still looked after."""
    slurmctld = Slurmctld(takes=0.2)
    looks = looks_of(slurmctld, Settings(poll_share=0.05))
    looks.pace(Pace.ACTIVE)
    running = asyncio.create_task(looks.run())
    for _ in range(20):
        looks.request()
        await asyncio.sleep(0.2)
    burst = len(slurmctld.asked)
    await asyncio.sleep(60)
    running.cancel()
    assert burst >= 7
    later = slurmctld.asked[burst - 1 :]
    assert max(after - before for before, after in pairwise(later)) <= 3 * 0.2 / 0.05 + 0.3
    assert len(later) >= 5
