"""docs/metrics.md against the real output: every metric, every label value, and how many series there can be."""

from __future__ import annotations

import re
from itertools import product

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from copilot import config
from copilot.model import FailureReason, Kind, Phase, PodView, TargetRef, Verb, WorkerGroup
from copilot.plan import Member, Track, World
from copilot.reconcile import report
from copilot.telemetry import PASSING, REPLICAS, STAGES, HookOutcome, Metrics, PatchOutcome
from tests.unit.documents import read, table, words

TEXT = read("docs/metrics.md")
ACTIONS = {*Verb, "wait", "status", "other"}
COMMANDS = ("ping", "show_config", "show_nodes", "show_partition", "squeue", "update", "version")
REQUESTS = ("create", "delete", "get", "list", "patch", "watch")
WITHOUT_STATUS = ("timeout", "network", "token", "garbled")
ERRORS = (*WITHOUT_STATUS, "400", "401", "403", "404", "409", "410", "422", "429", "500", "503", "504")


def names(metric: MetricWrapperBase) -> tuple[str, tuple[str, ...]]:
    """As the table has it. Label names are known to the metric alone, until it has a value."""
    (family,) = metric.describe()
    name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
    return name, metric._labelnames or {"info": ("version", "slurm_version")}.get(family.type, ())


def rows() -> str:
    """The table, as the document must have it."""
    lines = ["| metric | type | labels | what it tells |", "| --- | --- | --- | --- |"]
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            name, labels = names(metric)
            told = ", ".join(f"`{label}`" for label in labels) or "none"
            lines.append(f"| `{name}` | {family.type} | {told} | {family.documentation} |")
    return "\n".join(lines) + "\n"


def world(groups: int, nodes: int) -> World:
    """So many groups of so many nodes, all of them on their way up or down."""
    made = [WorkerGroup(f"g{number}", TargetRef(Kind.STATEFUL_SET, "ns", f"g{number}")) for number in range(groups)]
    members = {group.node(index): Member(group, index) for group in made for index in range(nodes)}
    phases = list(Phase)
    tracks = {name: Track(phases[member.index % len(phases)], since=1.0) for name, member in members.items()}
    pods = PodView(synced=True)
    return World(now=2.0, slurm=None, pods=pods, groups={group.name: group for group in made}, members=members, tracks=tracks)


def exercised(groups: int, nodes: int) -> Metrics:
    """Everything has happened that can happen, to every group."""
    metrics = Metrics()
    metrics.build("0.1.0", "24.11.5")
    for action, hooked in product(ACTIONS, HookOutcome):
        metrics.hook(action, hooked)
    metrics.waiting(1)
    seen = world(groups, nodes)
    report.gauges(seen, {}, metrics)
    for name in seen.groups:
        metrics.ready(name, 1.0)
        metrics.drift_repaired(name)
        for reason in FailureReason:
            metrics.failure(name, reason)
        for patched in PatchOutcome:
            metrics.patch(name, patched)
    for stage in STAGES:
        metrics.stage(stage, 1.0)
    for command in COMMANDS:
        metrics.scontrol(command, 0.1, ok=False)
    for verb, error in product(REQUESTS, ERRORS):
        metrics.kube(verb, 0.1, error)
    for resource in ("pods", *Kind):
        metrics.watch(resource, lambda: True)
    for event in (metrics.missed_hooks, metrics.orphans_removed, metrics.stale_replaced):
        event(1)
    metrics.reconciled(0.1, ok=True)
    metrics.viewed()
    return metrics


def series(metrics: Metrics) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """What a scrape stores, without process_*."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("slurm_copilot_")]
    return {(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples}


def test_every_metric_is_told() -> None:
    assert rows().count("\n| `slurm_copilot_") > 20
    assert rows() in TEXT


def test_every_metric_that_is_told_is_served_with_these_labels() -> None:
    """Not the definitions once more: what the text of a scrape has."""
    served: dict[str, set[str]] = {}
    for name, labels in series(exercised(1, 1)):
        plain = re.sub(r"_(bucket|sum|count)$", "", name)
        served.setdefault(plain, set()).update(label for label, _ in labels if label != "le")
    told = {words(row[0])[0]: set(words(row[2])) for row in table(TEXT, "metric")}
    assert told == served


def test_every_label_value_is_told() -> None:
    told = {label: set(words(values)) for label, values in table(TEXT, "label")}
    assert told == {
        "`phase`": set(Phase),
        "`phase` of `phase_oldest`": set(PASSING),
        "`stage`": set(STAGES),
        "`reason`": set(FailureReason),
        "`kind`": set(REPLICAS),
        "`action`": ACTIONS,
        "`outcome` of a hook": set(HookOutcome),
        "`outcome` of a patch": set(PatchOutcome),
        "`command`": set(COMMANDS),
        "`verb`": set(REQUESTS),
        "`status`": set(WITHOUT_STATUS),
        "`resource`": {"pods", *config.TARGETS},
    }


@pytest.mark.parametrize("nodes", [0, 500])
def test_the_number_of_series_is_as_told_whatever_the_number_of_nodes(nodes: int) -> None:
    twenty, one = len(series(exercised(20, nodes))), len(series(exercised(1, nodes)))
    told = re.search(r"With 20 groups.*?has ([\d,]+) series, with one group ([\d,]+).*adds ([\d,]+)\.", TEXT, re.DOTALL)
    assert told is not None
    assert [int(count.replace(",", "")) for count in told.groups()] == [twenty, one, (twenty - one) // 19]
