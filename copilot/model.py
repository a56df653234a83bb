"""Value types shared by every module: pure, frozen, without I/O.

Times are seconds. `at`, `taken_at`, `received_at` and the like are readings of one monotonic clock (the event loop's);
fields that come from Slurm or Kubernetes and are wall-clock times say so (`*_epoch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What kind of object scales a worker group. The value is the word used in settings, logs and metrics."""

    SLURM_CLUSTER = "slurmcluster"
    STATEFUL_SET = "statefulset"
    ADVANCED_STATEFUL_SET = "kruise"

    @property
    def api_kind(self) -> str:
        """The API's own word: OpenKruise's sets have the name of the built-in ones, in a group of their own."""
        return "SlurmCluster" if self is Kind.SLURM_CLUSTER else "StatefulSet"


@dataclass(frozen=True, slots=True, order=True)
class TargetRef:
    """Names one scalable object in the cluster."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def about(self) -> str:
        """As in `KubeEvent.about`."""
        return f"{self.kind.api_kind}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class WorkerGroup:
    """Nodes `<name>-0`, `<name>-1`, ... whose pods one target runs. The name is unique within a namespace.

    A SlurmCluster `demo` with the group `cpu` is the WorkerGroup `demo-worker-cpu`; a StatefulSet `gpu` is the group `gpu`.
    """

    name: str
    target: TargetRef

    def node(self, index: int) -> str:
        """The node's name, which is its pod's name too."""
        return f"{self.name}-{index}"


class Phase(StrEnum):
    """Where a node is on its way from wanted to up and back (design: requested, scaled, pending, ... off, held, failed)."""

    OFF = "off"
    REQUESTED = "requested"
    SCALED = "scaled"
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    UP = "up"
    RELEASING = "releasing"
    HELD = "held"
    FAILED = "failed"


class FailureReason(StrEnum):
    """Why a node could not be brought up: a closed list, safe as a metric label."""

    UNSCHEDULABLE = "unschedulable"
    QUOTA = "quota"
    IMAGE_PULL = "image_pull"
    CONTAINER_CONFIG = "container_config"
    CRASH_LOOP = "crash_loop"
    EVICTED = "evicted"
    POD_LOST = "pod_lost"
    REGISTRATION_TIMEOUT = "registration_timeout"
    INVALID_REGISTRATION = "invalid_registration"
    STALE_POD = "stale_pod"
    REJECTED = "rejected"
    API_ERROR = "api_error"


class Verb(StrEnum):
    """What a hook asks for. Values are the paths under /v1/ and the metric label `action`."""

    RESUME = "resume"
    SUSPEND = "suspend"
    RESUME_FAIL = "resume-fail"


@dataclass(frozen=True, slots=True)
class Hint:
    """What a hook said of one node, and when it reached us."""

    verb: Verb
    received_at: float
    request_id: str
    jobs: tuple[int, ...] = ()


# Slurm's node state is BASE+FLAG+FLAG...; unknown words come and go with releases, so only subsets are ever tested.
BUSY_BASES = frozenset({"ALLOCATED", "MIXED"})
UP_BASES = BUSY_BASES | {"IDLE"}
# A node in one of these is not usable by a job now, whatever its base state says.
NOT_UP_FLAGS = frozenset({"POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "NOT_RESPONDING", "INVALID_REG"})


@dataclass(frozen=True, slots=True)
class Node:
    """One line of `scontrol -o show nodes`, as far as we use it.

    `boot_epoch`, `slurmd_start_epoch` and `last_busy_epoch` are wall-clock seconds, None where Slurm prints None or Unknown;
    `version` is slurmd's, empty while no slurmd has ever registered.
    """

    name: str
    base: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    address: str = ""
    version: str = ""
    boot_epoch: int | None = None
    slurmd_start_epoch: int | None = None
    last_busy_epoch: int | None = None

    @property
    def busy(self) -> bool:
        """A job is on it, or its epilog still runs: its pod must stay."""
        return self.base in BUSY_BASES or "COMPLETING" in self.flags

    @property
    def up(self) -> bool:
        """Registered with slurmctld and usable."""
        return self.base in UP_BASES and not (self.flags & NOT_UP_FLAGS)

    @property
    def state(self) -> str:
        """BASE+FLAG+FLAG, flags sorted, for logs and status."""
        return "+".join((self.base, *sorted(self.flags)))


@dataclass(frozen=True, slots=True)
class SlurmView:
    """The whole node table. `taken_at` is when the question was *asked*: what happened later cannot be in it."""

    taken_at: float
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of a worker group, as far as we use it. `first_seen` is on our own clock."""

    name: str
    uid: str
    first_seen: float
    created_epoch: float = 0.0
    # wall clock: when the youngest of its containers that run began; 0.0 while none does
    started_epoch: float = 0.0
    phase: str = "Pending"
    scheduled: bool = False
    ready: bool = False
    running: bool = False
    terminating: bool = False
    # our clock: when the grace of a terminating pod is over; None while it is not terminating
    ends_at: float | None = None
    restarts: int = 0
    host: str = ""
    ip: str = ""
    # the name of its controller: a pod that merely has a node's name is none of ours
    owner: str = ""
    # the first container's waiting/terminated reason and message (init containers first), or the scheduler's words; "" when all is well
    trouble: str = ""
    message: str = ""
    # how a container ended that has restarted since: exit code and reason; it may run again by the time that anybody hears of its end
    last_end: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """All pods of the worker groups by name. `synced` is False until the first list, and while the watch is broken for long."""

    synced: bool
    pods: Mapping[str, Pod] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """What Kubernetes told of one object and that object alone shows nowhere else. `seen_at` is on our clock: when it last happened.

    `about` is "Kind/name" of the object, as in `Pod/cpu-0`.
    """

    about: str
    reason: str
    message: str
    seen_at: float


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a target asks for one of its groups now.

    `covers` holds the indexes whose pods the target is bound to run; None where the object alone does not tell (SlurmCluster).
    """

    group: WorkerGroup
    replicas: int
    covers: frozenset[int] | range | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One scalable object as read. `states` keeps the object's order; a group name that is there twice is a fault of the object.

    `deleting`: the object is on its way out, so a patch would be in vain.
    `held`: the groups that an operator's annotation holds: nothing is started, stopped or told of them.
    `warnings`: sentences for an operator, what is set badly and why.
    """

    ref: TargetRef
    uid: str
    generation: int
    states: tuple[GroupState, ...]
    deleting: bool = False
    held: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[WorkerGroup, ...]:
        return tuple(state.group for state in self.states)
