"""What is done to a cluster under chaos: a pure function of a seed, so that a number is enough to do it again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from copilot.hostlist import fold
from copilot.model import Kind


class Class(Enum):
    """Why an operation may be left out of a run."""

    USE = "use"  # what users and administrators do, which harms no job
    FAULT = "fault"  # trouble that may harm no job either
    HARM = "harm"  # may end a job's start, which Slurm then begins anew
    EMBEDDED = "embedded"  # a fault that only the embedded API server has
    REAL = "real"  # and one that only a real control plane has


@dataclass(frozen=True, slots=True)
class Sort:
    """A kind of operation, how often it is drawn, and its longest duration in seconds (0: it is over at once)."""

    word: str
    of: Class
    weight: int
    seconds: float = 0.0


SUBMIT = Sort("submit", Class.USE, 30)
CANCEL = Sort("cancel", Class.USE, 6)
RESIZE = Sort("resize", Class.USE, 4)
POWER_DOWN = Sort("power_down", Class.USE, 4)
REPEAT_HOOK = Sort("repeat hook", Class.USE, 4)
STRAY_HOOK = Sort("stray resume hook", Class.USE, 1)
DOUBLE_HOOKS = Sort("every hook twice", Class.USE, 2, 8.0)
UNDRAIN = Sort("undrain", Class.USE, 3)
LOSE_HOOKS = Sort("hooks lost", Class.FAULT, 2, 4.0)
KILL_COPILOT = Sort("kill -9 copilot", Class.FAULT, 3, 4.0)
STOP_COPILOT = Sort("restart copilot", Class.FAULT, 1, 1.0)
FREEZE_COPILOT = Sort("freeze copilot", Class.FAULT, 2, 5.0)
FREEZE_SLURMCTLD = Sort("freeze slurmctld", Class.FAULT, 2, 5.0)
RESTART_SLURMCTLD = Sort("restart slurmctld", Class.FAULT, 1)
API_AWAY = Sort("API server away", Class.FAULT, 2, 6.0)
ETCD_AWAY = Sort("etcd away", Class.REAL, 2, 4.0)
FULL_QUOTA = Sort("quota full", Class.REAL, 3, 8.0)
CUT = Sort("cut all connections", Class.EMBEDDED, 2)
CUT_WATCH = Sort("cut watches in a line", Class.EMBEDDED, 3)
GONE_WATCH = Sort("watches too old", Class.EMBEDDED, 2)
REFUSE_PATCH = Sort("refuse patches", Class.EMBEDDED, 4)
REFUSE_ALL = Sort("refuse requests", Class.EMBEDDED, 3)
SLOW = Sort("slow patches", Class.EMBEDDED, 2, 3.0)
HANG = Sort("patches without an answer", Class.EMBEDDED, 2, 4.0)
LOSE_ANSWER = Sort("answers of patches lost", Class.EMBEDDED, 3)
LOSE_PATCH = Sort("patches lost", Class.EMBEDDED, 2)
DRAIN = Sort("drain", Class.HARM, 3)
EDIT_REPLICAS = Sort("edit replicas", Class.HARM, 3)
DELETE_POD = Sort("delete pod", Class.HARM, 3)
EVICT = Sort("evict", Class.HARM, 1)
BAD_IMAGE = Sort("image not to be had", Class.HARM, 2, 8.0)
CRASHES = Sort("container crashes", Class.HARM, 1, 8.0)
NO_ROOM = Sort("no room for pods", Class.HARM, 2, 25.0)
KILL_SLURMD = Sort("kill -9 slurmd", Class.HARM, 2)
FREEZE_SLURMD = Sort("freeze slurmd", Class.HARM, 2, 6.0)
KILL_SLURMCTLD = Sort("kill -9 slurmctld", Class.HARM, 1, 1.0)
STEP_CLOCK = Sort("step the head's clock", Class.HARM, 2, 6.0)

SORTS: Final[tuple[Sort, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Sort))
# The worker groups: a name, its kind, and how many nodes it has.
GROUPS: Final[tuple[tuple[str, Kind, int], ...]] = (
    ("cpu", Kind.STATEFUL_SET, 8),
    ("gpu", Kind.ADVANCED_STATEFUL_SET, 8),
    ("demo-worker-a", Kind.SLURM_CLUSTER, 6),
)
LONGEST_JOB: Final = 4.0  # seconds
_MEAN_PAUSE: Final = 0.3  # seconds between operations
_STATUSES: Final = (409, 422, 429, 500, 503, 504)
_PASSING: Final = (429, 500, 503)
_STEPS: Final = (-15, -2, 2, 15, 90)  # seconds


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to do, `at` seconds after the start.

    `nodes` are indexes of `group`. `count`: nodes of a job without a list, replicas, how many requests a fault strikes, or by how many seconds
    a clock is stepped. `about` is the number of the submission that is cancelled or resized. `seconds`: how long a job or a fault lasts.
    `status`: an HTTP status.
    """

    number: int
    at: float
    sort: Sort
    group: str
    nodes: tuple[int, ...] = ()
    count: int = 0
    about: int = -1
    seconds: float = 0.0
    status: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.group}-{index}" for index in self.nodes)

    def __str__(self) -> str:
        parts = [f"{self.number} {self.sort.word}"]
        parts += [fold(self.names)] if self.nodes else [self.group] if self.sort in _OF_GROUPS else []
        parts += [f"count={self.count}"] if self.count else []
        parts += [f"of {self.about}"] if self.about >= 0 else []
        parts += [f"status={self.status}"] if self.status else []
        return " ".join(parts + ([f"for {self.seconds:.1f} s"] if self.seconds else []))


_OF_GROUPS: Final = (SUBMIT, EDIT_REPLICAS)
_OF_ONE_NODE: Final = (POWER_DOWN, STRAY_HOOK, DRAIN, UNDRAIN, DELETE_POD, EVICT, KILL_SLURMD, FREEZE_SLURMD, REPEAT_HOOK)
_OF_FAULTS: Final = (CUT_WATCH, GONE_WATCH, REFUSE_PATCH, REFUSE_ALL, SLOW, HANG, LOSE_ANSWER, LOSE_PATCH)

GENTLE: Final = frozenset({Class.USE, Class.FAULT, Class.EMBEDDED})
WILD: Final = GENTLE | {Class.HARM}


def classes(seed: int, *, real: bool = False) -> frozenset[Class]:
    """Every third seed does nothing that excuses a job's second start; the others do everything that the API server can."""
    chosen = GENTLE if seed % 3 == 0 else WILD
    return chosen - {Class.EMBEDDED} | {Class.REAL} if real else chosen


def operations(seed: int, length: int, allowed: Iterable[Class] = WILD) -> tuple[Operation, ...]:
    """That many operations of the allowed classes; the same for the same arguments, on every machine and Python."""
    source = random.Random(f"chaos {seed}")
    of = frozenset(allowed)
    sorts = [sort for sort in SORTS if sort.of in of]
    weights = [sort.weight for sort in sorts]
    made: list[Operation] = []
    at = 0.0
    for number in range(length):
        (sort,) = source.choices(sorts, weights)
        at += min(source.expovariate(1 / _MEAN_PAUSE), 2.0)
        made.append(_operation(source, number, round(at, 3), sort, [one.number for one in made if one.sort is SUBMIT]))
    return tuple(made)


def _operation(source: random.Random, number: int, at: float, sort: Sort, jobs: Sequence[int]) -> Operation:
    group, _, size = source.choice(GROUPS)
    nodes: tuple[int, ...] = ()
    count, about, seconds, status = 0, -1, source.uniform(0.3, 1.0) * sort.seconds, 0
    if sort is SUBMIT:
        count, seconds = source.choice((1, 1, 1, 2, 3, 4)), source.uniform(0.0, LONGEST_JOB)
        if source.random() < 0.5:
            nodes, count = tuple(sorted(source.sample(range(size), count))), 0
    elif sort in (CANCEL, RESIZE):
        # Rather a late one: the early ones have ended.
        about = source.choice(jobs[-8:]) if jobs else -1
        count = source.choice((1, 2, 3, 4)) if sort is RESIZE else 0
    elif sort is STEP_CLOCK:
        count = source.choice(_STEPS)
    elif sort is EDIT_REPLICAS:
        count = source.randrange(1, size + 1)
    elif sort in _OF_ONE_NODE:
        nodes = (source.randrange(size),)
    elif sort in (BAD_IMAGE, CRASHES, NO_ROOM):
        nodes = tuple(sorted(source.sample(range(size), 2)))
    elif sort in _OF_FAULTS:
        count = source.choice((1, 1, 2, 3, 5))
        status = source.choice(_STATUSES) if sort is REFUSE_PATCH else source.choice(_PASSING) if sort is REFUSE_ALL else 0
    return Operation(number, at, sort, group, nodes, count, about, round(seconds, 2), status)
