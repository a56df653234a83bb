"""The one shared poll of Slurm: how often, how fast, and never more than its share of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from copilot.config import Settings
from copilot.model import SlurmView
from copilot.plan import Pace

# Seconds that one look costs slurmctld and the machine at the most, whatever it took: that of an idle machine, twice over (a look at 10,000
# nodes takes 0.1 s). What is longer is waiting, and it is while twenty pods start on one machine that looks must not become rare.
_EACH = 0.01
_PER_NODE = 2e-5
_NOW = 0.001  # seconds; less than this is not worth a sleep
_WINDOW = 60.0  # seconds over which the share is counted


def cost(seconds: float, nodes: int) -> float:
    """What a look that took `seconds` is counted for, with so many nodes in the table."""
    return min(seconds, _EACH + _PER_NODE * nodes)


@dataclass(slots=True)
class Share:
    """Keeps the time that looks took within `share` of any minute (each holds slurmctld's node lock: facts, 15-33 ms at 10,000 nodes).

    Half of that comes back evenly as time passes, the other half may be taken in one burst, most of it only by looks that are urgent. When
    too much was taken, looks become rare (at 10,000 nodes one in 9 s or so) but never stop: one is due once the last is paid for by itself.
    """

    share: float
    _spent: float = 0.0  # seconds of looks, as of `_at`, that time has not paid for yet
    _last: float = 0.0  # seconds that the last look took
    _at: float = 0.0

    def add(self, ended: float, seconds: float) -> None:
        """A look ended at `ended` and took `seconds`."""
        self._spent = max(0.0, self._spent - (ended - self._at) * self.share / 2) + seconds
        self._last, self._at = seconds, ended

    def free_at(self, now: float, *, urgent: bool) -> float:
        """When the next look may start: `now`, or when enough of what the earlier ones took is paid for."""
        burst = self.share * _WINDOW / 2
        over = self._spent - (burst if urgent else burst / 3)
        # A third of what comes back is left over even then, so that the burst comes back too.
        pause = min(over / (self.share / 2), self._last / (self.share / 3))
        return max(now, self._at + pause)


class Looks:
    """Takes views of Slurm for ever: at the pace that the last decision set, at once when one is asked for."""

    def __init__(
        self,
        look: Callable[[], Awaitable[SlurmView]],
        failures: tuple[type[Exception], ...],
        settings: Settings,
        clock: Callable[[], float],
        on_view: Callable[[SlurmView], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._look = look
        self._failures = failures
        self._intervals = {Pace.QUIET: settings.poll_quiet, Pace.ACTIVE: settings.poll_active, Pace.FAST: settings.poll_fast}
        self._share = Share(settings.poll_share)
        self._clock = clock
        self._on_view = on_view
        self._on_failure = on_failure
        self._pace = Pace.ACTIVE
        self._asked_at = float("-inf")
        self._started = float("-inf")
        self._failed_in_a_row = 0
        self._changed = asyncio.Event()

    def request(self) -> None:
        """Asks for a view that is taken from now on. Many requests are answered by one look."""
        self._asked_at = self._clock()
        self._changed.set()

    def pace(self, pace: Pace) -> None:
        """How soon to look again; a faster pace takes effect at once."""
        if pace is not self._pace:
            self._pace = pace
            self._changed.set()

    async def run(self) -> None:
        """Never returns. A look that fails changes nothing but what `on_failure` does with it."""
        while True:
            await self._until_due()
            self._started = started = self._clock()
            try:
                view = await self._look()
            except self._failures as error:
                self._failed_in_a_row += 1
                self._on_failure(error)
            else:
                self._failed_in_a_row = 0
                self._share.add(self._clock(), cost(self._clock() - started, len(view.nodes)))
                self._on_view(view)

    async def _until_due(self) -> None:
        while (pause := self._due_at() - self._clock()) > _NOW:
            self._changed.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _due_at(self) -> float:
        """A dead slurmctld is asked at most once a second, and less often the longer it is dead."""
        asked = self._asked_at >= self._started
        due = self._clock() if asked else self._started + self._intervals[self._pace]
        if self._failed_in_a_row:
            due = max(due, self._started + min(1.0 * self._failed_in_a_row, 5.0))
        return max(due, self._share.free_at(self._clock(), urgent=asked or self._pace is Pace.FAST))
