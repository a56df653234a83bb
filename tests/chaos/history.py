"""What was seen while chaos went on. It is judged afterwards (see invariants.py), so that judging delays nothing and can be tested alone.

Times are seconds of the event loop's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from copilot.model import BUSY_BASES, Kind

States = Mapping[str, frozenset[str]]
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
_NOT_ON = _POWER | {"POWERING_UP"}


@dataclass(frozen=True, slots=True)
class Looked:
    """All node states, as slurmctld told them at some moment from `begun` to `ended`, and the nodes whose containers ran then."""

    begun: float
    ended: float
    states: States
    running: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a target asks for since this change of it. `asks` is None where the object does not tell which, only how many.

    `deletes`: indexes that it names as to be removed (SlurmCluster). `by_hand`: the change was one of our operations.
    """

    at: float
    group: str
    kind: Kind
    replicas: int
    asks: frozenset[int] | None
    deletes: frozenset[int] = frozenset()
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """A container was ended, with so many job steps in it."""

    at: float
    node: str
    steps: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """A pod was deleted by name: by the copilot, or by one of our operations."""

    at: float
    node: str
    by_hand: bool


@dataclass(frozen=True, slots=True)
class Hooked:
    """A hook that the copilot has accepted."""

    at: float
    verb: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Span:
    """Something was out of order. `harm`: it may have ended jobs. `forgets`: slurmctld may have come back without its latest."""

    begun: float
    ended: float
    what: str
    harm: bool = False
    forgets: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was submitted by an operation, and its end as Slurm tells it; `state` is empty when Slurm does not know the job."""

    name: str
    submitted: float
    cancelled: bool
    state: str
    restarts: int


@dataclass(slots=True)
class History:
    """Everything in the order of its times; `faults` are sentences about the copilot's process and log."""

    groups: dict[str, Kind]
    looks: list[Looked] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    hooks: list[Hooked] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    ended: float = 0.0


def on(words: frozenset[str]) -> bool:
    """The node is wanted: up, on its way up, or a job is on it."""
    return not words & _POWER or bool(words & BUSY_BASES)


def runs_job(words: frozenset[str]) -> bool:
    """A job is on the node, and the node is up: taking its pod away harms the job."""
    return bool(words & (BUSY_BASES | {"COMPLETING"})) and not words & _NOT_ON


def index_of(name: str, group: str) -> int | None:
    """The index in a node's name of this group, None for a node of another."""
    prefix, _, rest = name.rpartition("-")
    return int(rest) if prefix == group and rest.isdigit() else None
