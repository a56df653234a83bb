"""Metrics carry the names that the documentation promises; log lines are JSON and hold no secrets."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest

from copilot.logs import configure_logging
from copilot.model import FailureReason, Phase, Verb
from copilot.telemetry import HookOutcome, Metrics, PatchOutcome


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def lines_of(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_line_of_json() -> None:
    out = io.StringIO()
    configure_logging("info", "auto", out)
    with structlog.contextvars.bound_contextvars(request_id="abc"):
        structlog.get_logger().info("hook", nodes="cpu-[0-2]", reason="two\nlines")
    structlog.get_logger().debug("detail")
    (line,) = lines_of(out)
    assert line.pop("time").endswith("Z")
    assert line == {"event": "hook", "nodes": "cpu-[0-2]", "reason": "two\nlines", "request_id": "abc", "level": "info"}


def test_libraries_and_warnings_come_out_the_same_way() -> None:
    out = io.StringIO()
    configure_logging("info", "json", out)
    logging.getLogger("aiohttp.server").warning("lost %s", "it")
    logging.getLogger("aiohttp.server").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = lines_of(out)
    assert (first["event"], first["library"], first["message"]) == ("library", "aiohttp.server", "lost it")
    assert (second["event"], second["library"]) == ("library", "py.warnings")
    assert "old" in second["message"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variables(form: str) -> None:
    out = io.StringIO()
    configure_logging("info", form, out)
    token = "hunter2"
    for logger in (structlog.get_logger(), logging.getLogger("library")):
        try:
            raise RuntimeError(str(len(token)))
        except RuntimeError:
            logger.exception("failed")
    assert out.getvalue().count("RuntimeError") >= 2
    assert "hunter2" not in out.getvalue()


def test_every_metric_has_its_name() -> None:
    metrics = Metrics()
    metrics.build("0.1.0", "22.05.8")
    metrics.hook(Verb.RESUME, HookOutcome.ACCEPTED)
    metrics.hook("surprise", HookOutcome.MALFORMED)
    metrics.waiting(3)
    metrics.nodes("cpu", {Phase.UP: 2})
    metrics.ready("cpu", 4.0, nodes=2)
    metrics.stage(Phase.SCALED, 0.2)
    metrics.failure("cpu", FailureReason.QUOTA, 3)
    metrics.patch("cpu", PatchOutcome.CONFLICT)
    metrics.replicas("cpu", wanted=2, target=1, pods=0)
    metrics.reconciled(0.01, ok=True)
    metrics.scontrol("show nodes", 0.1, ok=True)
    metrics.scontrol("show config", 9.0, ok=False)
    metrics.kube("patch", 0.01)
    metrics.kube("patch", 0.01, error="409")
    metrics.missed_hooks(2)
    metrics.orphans_removed(1)
    metrics.breaker("cpu", is_open=True)
    metrics.held("cpu", is_held=True)
    metrics.stale_replaced(2)
    metrics.drift_repaired("cpu")
    metrics.watch("pods", lambda: True)
    metrics.watch("kruise", lambda: False)
    metrics.oldest("cpu", {Phase.PENDING: 100.0})
    metrics.viewed()
    expected = {
        ("build_info", (("slurm_version", "22.05.8"), ("version", "0.1.0"))): 1,
        ("hook_requests_total", (("action", "resume"), ("outcome", "accepted"))): 1,
        ("hook_requests_total", (("action", "other"), ("outcome", "malformed"))): 1,
        ("waits", ()): 3,
        ("nodes", (("group", "cpu"), ("phase", "up"))): 2,
        ("nodes", (("group", "cpu"), ("phase", "failed"))): 0,
        ("node_ready_seconds_count", (("group", "cpu"),)): 2,
        ("node_ready_seconds_sum", (("group", "cpu"),)): 8,
        ("node_stage_seconds_count", (("stage", "scaled"),)): 1,
        ("node_failures_total", (("group", "cpu"), ("reason", "quota"))): 3,
        ("target_patches_total", (("group", "cpu"), ("outcome", "conflict"))): 1,
        ("replicas", (("group", "cpu"), ("kind", "wanted"))): 2,
        ("replicas", (("group", "cpu"), ("kind", "target"))): 1,
        ("replicas", (("group", "cpu"), ("kind", "pods"))): 0,
        ("reconcile_duration_seconds_count", ()): 1,
        ("scontrol_duration_seconds_count", (("command", "show_nodes"),)): 1,
        ("scontrol_errors_total", ()): 1,
        ("kube_request_duration_seconds_count", (("verb", "patch"),)): 2,
        ("kube_errors_total", (("status", "409"), ("verb", "patch"))): 1,
        ("missed_hooks_total", ()): 2,
        ("orphans_removed_total", ()): 1,
        ("breaker_open", (("group", "cpu"),)): 1,
        ("held", (("group", "cpu"),)): 1,
        ("stale_pods_replaced_total", ()): 2,
        ("drift_repaired_total", (("group", "cpu"),)): 1,
        ("watch_open", (("resource", "pods"),)): 1,
        ("watch_open", (("resource", "kruise"),)): 0,
        ("phase_oldest_timestamp_seconds", (("group", "cpu"), ("phase", "running"))): 0,
        ("node_failures_total", (("group", "cpu"), ("reason", "evicted"))): 0,
    }
    found = {key: metrics.registry.get_sample_value(f"slurm_copilot_{key[0]}", dict(key[1])) for key in expected}
    assert found == expected
    value = metrics.registry.get_sample_value
    reconciled, viewed = (
        value(f"slurm_copilot_{name}_timestamp_seconds") or 0 for name in ("reconcile_last_success", "slurm_last_view")
    )
    assert 1.7e9 < reconciled <= viewed
    pending = value("slurm_copilot_phase_oldest_timestamp_seconds", {"group": "cpu", "phase": "pending"}) or 0
    assert 1.7e9 < pending <= viewed - 99
    assert b"process_resident_memory_bytes" in generate_latest(metrics.registry)


def test_buckets_reach_from_a_tenth_of_a_second_to_half_an_hour() -> None:
    metrics = Metrics()
    metrics.ready("cpu", 0.1)
    metrics.ready("cpu", 1800.0)
    value = metrics.registry.get_sample_value
    assert value("slurm_copilot_node_ready_seconds_bucket", {"group": "cpu", "le": "0.1"}) == 1
    assert value("slurm_copilot_node_ready_seconds_bucket", {"group": "cpu", "le": "1800.0"}) == 2


def test_a_group_that_is_gone_leaves_no_gauges_behind() -> None:
    metrics = Metrics()
    metrics.nodes("cpu", {Phase.UP: 2})
    metrics.oldest("cpu", {Phase.PENDING: 3.0})
    metrics.replicas("cpu", wanted=2, target=2, pods=2)
    metrics.breaker("cpu", is_open=True)
    metrics.held("cpu", is_held=True)
    for times in (5, 0, 0):
        gauges = {
            family.name
            for family in metrics.registry.collect()
            if family.type == "gauge" and any(sample.labels.get("group") == "cpu" for sample in family.samples)
        }
        assert len(gauges) == times
        metrics.forget("cpu")


def test_no_metric_has_a_node_label() -> None:
    for family in Metrics().registry.collect():
        for sample in family.samples:
            assert "node" not in sample.labels
