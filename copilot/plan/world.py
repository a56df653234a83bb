"""What the decision is made from, and what it says: frozen values without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from copilot.model import FailureReason, Hint, Kind, KubeEvent, Phase, PodView, SlurmView, WorkerGroup
from copilot.plan.breaker import Breaker


class Pace(Enum):
    """How soon Slurm should be asked again."""

    QUIET = "quiet"
    ACTIVE = "active"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Told:
    """What we last said to Slurm of a node, and when scontrol answered. While it still runs, `done` is False."""

    state: str
    at: float
    done: bool = True


@dataclass(frozen=True, slots=True)
class Track:
    """What is remembered of one node between two decisions; everything else is recomputed from the views.

    The `*_at` fields are the stages of the current start, in seconds of the loop's clock.
    """

    phase: Phase
    since: float
    requested_at: float | None = None
    scaled_at: float | None = None
    pending_at: float | None = None
    scheduled_at: float | None = None
    running_at: float | None = None
    up_at: float | None = None
    hinted: bool = False
    request_id: str = ""
    jobs: tuple[int, ...] = ()
    # the pod that the node runs in, and how often its containers had restarted when a view last showed the node without a job;
    # of a node at rest: its pod as last seen, with `running_at`
    pod_uid: str = ""
    restarts: int = 0
    # a pod that is known to be older than the resume request (this one, or of a node at rest the next) and can never register,
    # unless its container restarts: `restarts` is as of then
    stale_uid: str = ""
    replaced: int = 0
    # off according to Slurm although a pod or its target says otherwise: since the view of that time
    orphan_since: float | None = None
    # only the target's nature keeps its pod (the window of a StatefulSet); it goes with the window, without a grace
    held: bool = False
    # when its pod was first found gone, replaced or restarted although Slurm has the node on
    missing_since: float | None = None
    # when Slurm was first seen to give it up: it is released without a grace until it is wanted again
    release_since: float | None = None
    missed_counted: bool = False
    # why its start is held up now, and since when; after the reason's grace it fails
    trouble: FailureReason | None = None
    trouble_since: float | None = None
    # when it was decided that it goes with a job that cannot have all of its nodes
    spare_since: float | None = None
    failure: FailureReason | None = None
    message: str = ""


# Phases of a node that is not wanted.
AT_REST = frozenset({Phase.OFF, Phase.HELD, Phase.RELEASING})


def changed(track: Track, phase: Phase, now: float, new: Mapping[str, Any]) -> Track:
    """The track in that phase with those fields; the very same object when nothing differs."""
    fields = {key: value for key, value in new.items() if getattr(track, key) != value}
    if phase is not track.phase:
        fields.update(phase=phase, since=now)
    return replace(track, **fields) if fields else track


@dataclass(frozen=True, slots=True)
class Member:
    """A node's place: its group and index."""

    group: WorkerGroup
    index: int


@dataclass(frozen=True, slots=True)
class Unpatched:
    """A target that the API server refuses to patch, with an answer: waiting alone does not mend it. `admission`: a webhook or policy did."""

    since: float
    words: str
    admission: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything a decision may look at.

    `active` are the names in `slurm` that are not quietly off (see `wish.active`), so that a table of 10,000 sleeping nodes costs nothing.
    `running_since`: in the first decision, when the earliest job on a node began, on slurmctld's clock.
    `members` maps every node name that belongs to a group. `covers` are the indexes that each group's target asks for now: as read where
    the object tells, else as of our last accepted patch. `hints` are the open resume hints: those that the view cannot know of, and once,
    with the first view that does, those that it confirms. `ordinals`: the server lets a StatefulSet's window begin above 0.
    """

    now: float
    slurm: SlurmView | None
    pods: PodView
    groups: Mapping[str, WorkerGroup]
    members: Mapping[str, Member]
    active: frozenset[str] = frozenset()
    running_since: Mapping[str, int] = field(default_factory=dict)
    covers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    hints: Mapping[str, Hint] = field(default_factory=dict)
    told: Mapping[str, Told] = field(default_factory=dict)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    ordinals: bool = True
    # by "Kind/name" of what it is about, then by its reason: the latest of each
    events: Mapping[str, Mapping[str, KubeEvent]] = field(default_factory=dict)
    # groups that an operator holds
    held: frozenset[str] = frozenset()
    # by group: why its target cannot be patched, since when (a reading of the clock); only while it lasts
    unpatched: Mapping[str, Unpatched] = field(default_factory=dict)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)


class What(Enum):
    """Kinds of outcome; the value is the event name in the log."""

    REQUESTED = "node_requested"
    SCHEDULED = "node_scheduled"
    RUNNING = "node_running"
    UP = "node_up"
    OFF = "node_off"
    FAILED = "node_failed"
    MISSED_HOOK = "missed_hook"
    ORPHAN = "orphan_removed"
    STALE = "stale_pod_replaced"
    UNKNOWN = "node_unknown_to_slurm"
    FREED = "node_freed"
    TROUBLE = "node_cannot_start"
    SPARE = "node_released_with_job"
    PAUSED = "node_waits_for_breaker"
    ELSEWHERE = "node_address_is_not_its_pods"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Something that happened to one node: becomes a log line (batched), a count, perhaps an Event."""

    what: What
    node: str
    group: str
    track: Track
    reason: FailureReason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """One `scontrol update nodename=... state=... [reason=...]`."""

    state: str
    nodes: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PodDelete:
    """A pod to delete, only while it still is this very one."""

    name: str
    uid: str
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be so (`desired`, by group) and what to do once (`deletes`, `updates`)."""

    desired: Mapping[str, frozenset[int]]
    deletes: tuple[PodDelete, ...]
    updates: tuple[NodeUpdate, ...]
    outcomes: tuple[Outcome, ...]
    tracks: Mapping[str, Track]
    pace: Pace
    breakers: Mapping[str, Breaker] = field(default_factory=dict)


def window(kind: Kind, desired: frozenset[int], ordinals: bool = True) -> range:
    """The indexes that the target's nature keeps for the sake of those desired: a StatefulSet runs an unbroken window.

    It begins at 0 on a server without ordinals.start. Empty for the kinds that can leave any index out.
    """
    if kind is not Kind.STATEFUL_SET or not desired:
        return range(0)
    return range(min(desired) if ordinals else 0, max(desired) + 1)


def window_forced(kind: Kind, desired: frozenset[int], index: int, ordinals: bool = True) -> bool:
    """Whether an unwanted index is in the window. For many indexes of one group compute `window` once: it looks at all that is desired."""
    return index not in desired and index in window(kind, desired, ordinals)
