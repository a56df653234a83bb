"""A small world for tests of the pure decision: Slurm's table, pods, targets and a clock, all set by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from copilot.model import Hint, Kind, KubeEvent, Node, Pod, PodView, SlurmView, TargetRef, Verb, WorkerGroup
from copilot.plan import Breaker, Member, Plan, Policy, Told, Track, Unpatched, What, World, active, plan

OFF = "IDLE+CLOUD+POWERED_DOWN"
COMING = "MIXED+CLOUD+POWERED_DOWN"
UP = "IDLE+CLOUD"
BUSY = "ALLOCATED+CLOUD"
POWERING_UP = "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP"
POWERING_DOWN = "IDLE+CLOUD+POWERING_DOWN"
GIVEN_UP = "DOWN+CLOUD+POWERED_DOWN"


def node(name: str, state: str, reason: str = "") -> Node:
    base, *flags = state.split("+")
    return Node(name, base, frozenset(flags), reason)


class Small:
    """Groups `a` (StatefulSet unless told otherwise) of `size` nodes; `plan()` decides and keeps the memory as the loop does."""

    def __init__(self, kind: Kind = Kind.ADVANCED_STATEFUL_SET, size: int = 10, policy: Policy | None = None) -> None:
        self.group = WorkerGroup("a", TargetRef(kind, "ns", "a"))
        self.policy = policy or Policy()
        self.now = 1000.0
        self.states = {f"a-{index}": node(f"a-{index}", OFF) for index in range(size)}
        self.members = {name: Member(self.group, index) for index, name in enumerate(self.states)}
        self.view: SlurmView | None = None
        self.pods: dict[str, Pod] = {}
        self.synced = True
        self.covers: frozenset[int] = frozenset()
        self.hints: dict[str, Hint] = {}
        self.told: dict[str, Told] = {}
        self.tracks: dict[str, Track] = {}
        self.breakers: dict[str, Breaker] = {}
        self.events: dict[str, dict[str, KubeEvent]] = {}
        self.held: frozenset[str] = frozenset()
        self.unpatched: dict[str, Unpatched] = {}
        self.running_since: dict[str, int] = {}
        self.said: list[tuple[What, str]] = []
        self.last: Plan | None = None

    def slurm(self, names: Iterable[str] | str, state: str, reason: str = "") -> None:
        for name in [names] if isinstance(names, str) else names:
            self.states[name] = node(name, state, reason)

    def pod(self, name: str, uid: str = "u1", running: bool = True, **fields: object) -> None:
        pod = Pod(
            name,
            uid,
            first_seen=self.now,
            phase="Running" if running else "Pending",
            scheduled=running,
            running=running,
            ready=running,
        )
        self.pods[name] = replace(pod, **fields)  # type: ignore[arg-type]

    def hint(self, name: str, verb: Verb = Verb.RESUME) -> None:
        self.hints[name] = Hint(verb, self.now, "r1", (7,))

    def look(self, after: float = 1.0) -> Plan:
        """Time goes on, Slurm is asked, and the decision is made."""
        self.now += after
        self.view = SlurmView(self.now, dict(self.states))
        return self.plan()

    def plan(self, after: float = 0.0) -> Plan:
        """The decision on the last view."""
        self.now += after
        world = World(
            now=self.now,
            slurm=self.view,
            pods=PodView(self.synced, dict(self.pods)),
            groups={"a": self.group},
            members=self.members,
            active=active(self.view) if self.view else frozenset(),
            covers={"a": self.covers},
            hints=self.hints,
            told=self.told,
            tracks=self.tracks,
            events=self.events,
            held=self.held,
            unpatched=self.unpatched,
            running_since=self.running_since,
            breakers=self.breakers,
        )
        made = plan(world, self.policy)
        assert plan(world, self.policy) == made, "the decision is not pure"
        self.tracks, self.breakers = dict(made.tracks), dict(made.breakers)
        self.running_since = {}  # for the first decision only
        self.said += [(outcome.what, outcome.node) for outcome in made.outcomes]
        self.last = made
        return made

    def tell(self, made: Plan) -> None:
        """What the loop does with the updates: they are sent and answered at once."""
        for update in made.updates:
            for name in update.nodes:
                self.told[name] = Told(update.state, self.now)

    def wanted(self) -> set[int]:
        assert self.last is not None
        return set(self.last.desired["a"])

    def start(self, name: str) -> None:
        """A whole start of a node: hint, powering up, pod, registered."""
        self.hint(name)
        self.plan()
        self.slurm(name, POWERING_UP)
        self.look()
        self.covers = frozenset(self.wanted())
        self.pod(name)
        self.look()
        self.slurm(name, UP)
        self.look()
