"""What the daemon tells: structlog's configuration, and every metric, named once.

Label values are closed lists or the names of worker groups; there is no node label (10,000 of them stall each scrape by 80 ms).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from copilot.model import FailureReason, Phase, Verb

# A node takes from a second (image present) to half an hour (the autoscaler buys a machine).
NODE_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800)
CALL_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30)
# What a node passes on its way up; `node_stage_seconds` is the time spent until the stage was reached from the one before.
STAGES = (Phase.SCALED, Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING, Phase.UP)
# Phases that a node should leave by itself: one that stays in them is stuck.
PASSING = (Phase.REQUESTED, *STAGES[:-1], Phase.RELEASING)
REPLICAS = ("wanted", "target", "pods")
# Else every counter and histogram has one more series, with the time at which it was made, that nothing asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class HookOutcome(StrEnum):
    """How a request on the hooks' socket ended. `malformed` covers every 4xx that has no word of its own here."""

    ACCEPTED = "accepted"
    PARTLY = "partly"
    UNACCEPTABLE = "unacceptable"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    SLOW = "slow"
    ABORTED = "aborted"
    FORBIDDEN = "forbidden"
    STOPPING = "stopping"
    ERROR = "error"


class PatchOutcome(StrEnum):
    """How a patch of a target ended."""

    ACCEPTED = "accepted"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    ERROR = "error"


class Metrics:
    """Every metric of the daemon, in a registry of its own; the methods keep label values within their lists."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._hooks = self._counter(
            "hook_requests", "Requests of hooks, by what they asked and how it ended.", "action", "outcome"
        )
        self._waits = self._gauge("waits", "Prolog requests that wait for their nodes now.")
        self._nodes = self._gauge("nodes", "Nodes of a worker group by phase.", "group", "phase")
        self._ready = self._histogram("node_ready_seconds", "From resume request to registered node.", NODE_BUCKETS, "group")
        self._stage = self._histogram("node_stage_seconds", "From the stage before to this one.", NODE_BUCKETS, "stage")
        self._failures = self._counter("node_failures", "Nodes that could not be brought up or were lost.", "group", "reason")
        self._patches = self._counter("target_patches", "Patches of a worker group's target.", "group", "outcome")
        self._replicas = self._gauge("replicas", "Replicas: wanted by us, said by the target, pods that exist.", "group", "kind")
        self._reconcile = self._histogram("reconcile_duration_seconds", "One round of the loop.", CALL_BUCKETS)
        self._success = self._gauge("reconcile_last_success_timestamp_seconds", "When a round last ended well, as Unix time.")
        self._scontrol = self._histogram("scontrol_duration_seconds", "One scontrol call.", CALL_BUCKETS, "command")
        self._scontrol_errors = self._counter("scontrol_errors", "scontrol calls that failed.")
        self._kube = self._histogram("kube_request_duration_seconds", "One request to the API server.", CALL_BUCKETS, "verb")
        self._kube_errors = self._counter("kube_errors", "Failed requests to the API server.", "verb", "status")
        self._missed = self._counter("missed_hooks", "Nodes that Slurm powers up although no hook told us.")
        self._orphans = self._counter("orphans_removed", "Pods removed because Slurm has their node off.")
        self._stale = self._counter("stale_pods_replaced", "Pods replaced because slurmctld would never hear their slurmd.")
        self._drift = self._counter("drift_repaired", "Targets set back after others had changed what scales them.", "group")
        self._breaker = self._gauge("breaker_open", "1 while scaling up of the group is paused after failures.", "group")
        self._held = self._gauge("held", "1 while an operator's annotation holds the group.", "group")
        self._oldest = self._gauge(
            "phase_oldest_timestamp_seconds",
            "Since when the group's longest waiting node is in the phase; 0: none is.",
            "group",
            "phase",
        )
        self._view = self._gauge("slurm_last_view_timestamp_seconds", "When slurmctld last gave its nodes, as Unix time.")
        self._watch = self._gauge("watch_open", "1 while what the API server told is kept up to date by a watch.", "resource")
        self._build = Info("slurm_copilot_build", "Versions.", registry=self.registry)
        self._groups: set[str] = set()
        for verb in Verb:
            for outcome in HookOutcome:
                self._hooks.labels(verb, outcome)

    def _meet(self, group: str) -> None:
        """A group's counters are there, at 0, before they count: an increase from nothing to 1 is none to Prometheus."""
        if group not in self._groups:
            self._groups.add(group)
            self._ready.labels(group)
            self._drift.labels(group)
            for reason in FailureReason:
                self._failures.labels(group, reason)
            for outcome in PatchOutcome:
                self._patches.labels(group, outcome)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"slurm_copilot_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"slurm_copilot_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"slurm_copilot_{name}", text, labels, registry=self.registry, buckets=buckets)

    def build(self, version: str, slurm_version: str) -> None:
        """Which copilot talks to which Slurm; the latter is empty until known."""
        self._build.info({"version": version, "slurm_version": slurm_version})

    def hook(self, action: str, outcome: HookOutcome) -> None:
        """Counts a request. `action` is a Verb, `wait` or `status`; anything else is counted as `other`."""
        self._hooks.labels(action if action in _ACTIONS else "other", outcome).inc()

    def waiting(self, requests: int) -> None:
        """How many prologs wait now."""
        self._waits.set(requests)

    def nodes(self, group: str, phases: Mapping[Phase, int]) -> None:
        """Nodes of the group by phase; phases left out have none."""
        self._meet(group)
        for phase in Phase:
            self._nodes.labels(group, phase).set(phases.get(phase, 0))

    def oldest(self, group: str, ages: Mapping[Phase, float]) -> None:
        """How long, in seconds, the longest waiting node has been in each of the PASSING phases; phases left out have none."""
        now = time.time()
        for phase in PASSING:
            self._oldest.labels(group, phase).set(now - ages[phase] if phase in ages else 0)

    def ready(self, group: str, seconds: float, nodes: int = 1) -> None:
        """Nodes that have registered, `seconds` after they were asked for."""
        series = self._ready.labels(group)
        for _ in range(nodes):
            series.observe(seconds)

    def stage(self, stage: Phase, seconds: float) -> None:
        """A node reached `stage` (one of STAGES), `seconds` after the stage before."""
        if stage in STAGES:
            self._stage.labels(stage).observe(max(0.0, seconds))

    def failure(self, group: str, reason: FailureReason, nodes: int = 1) -> None:
        """Nodes of the group failed."""
        self._failures.labels(group, reason).inc(nodes)

    def patch(self, group: str, outcome: PatchOutcome) -> None:
        """A patch was sent for the group."""
        self._patches.labels(group, outcome).inc()

    def replicas(self, group: str, *, wanted: int, target: int, pods: int) -> None:
        """The three numbers that agree when all is quiet."""
        for kind, count in zip(REPLICAS, (wanted, target, pods), strict=True):
            self._replicas.labels(group, kind).set(count)

    def reconciled(self, seconds: float, *, ok: bool) -> None:
        """One round of the loop has ended."""
        self._reconcile.observe(seconds)
        if ok:
            self._success.set_to_current_time()

    def scontrol(self, command: str, seconds: float, ok: bool) -> None:
        """One scontrol call has ended; `command` is what follows `scontrol`, such as `show nodes` or `update`."""
        self._scontrol.labels("_".join(command.split()[:2])).observe(seconds)
        if not ok:
            self._scontrol_errors.inc()

    def kube(self, verb: str, seconds: float, error: str = "") -> None:
        """One request to the API server has ended. `error`: empty, an HTTP status, or a word for none: see docs/metrics.md."""
        self._kube.labels(verb).observe(seconds)
        if error:
            self._kube_errors.labels(verb, error).inc()

    def missed_hooks(self, nodes: int) -> None:
        """Nodes found powering up that no hook had told us of."""
        self._missed.inc(nodes)

    def orphans_removed(self, pods: int) -> None:
        """Pods removed because Slurm has their nodes off."""
        self._orphans.inc(pods)

    def stale_replaced(self, pods: int) -> None:
        """Pods deleted because they are older than the resume request, or their slurmd has no `-b`."""
        self._stale.inc(pods)

    def drift_repaired(self, group: str) -> None:
        """A patch was accepted that wants what the target had said before: somebody else had changed it."""
        self._drift.labels(group).inc()

    def breaker(self, group: str, *, is_open: bool) -> None:
        """Whether scaling up of the group is paused."""
        self._breaker.labels(group).set(is_open)

    def held(self, group: str, *, is_held: bool) -> None:
        """Whether an operator holds the group."""
        self._held.labels(group).set(is_held)

    def viewed(self) -> None:
        """slurmctld has given its node table."""
        self._view.set_to_current_time()

    def watch(self, resource: str, is_open: Callable[[], bool]) -> None:
        """A collection that is watched: `pods`, or a Kind. `is_open` is asked at each scrape, because a broken watch says nothing itself."""
        self._watch.labels(resource).set_function(is_open)

    def forget(self, group: str) -> None:
        """The group is gone: its gauges must not stay as they were last. Counters and histograms may."""
        for gauge, words in ((self._nodes, Phase), (self._replicas, REPLICAS), (self._oldest, PASSING)):
            _remove(gauge, ((group, word) for word in words))
        for gauge in (self._breaker, self._held):
            _remove(gauge, [(group,)])


_ACTIONS = frozenset({*Verb, "wait", "status"})


def _remove(gauge: Gauge, series: Iterable[tuple[str, ...]]) -> None:
    for labels in series:
        try:
            gauge.remove(*labels)
        except KeyError:  # never set, or removed before
            continue
