"""A run in words: one line when all was well, and the trace of one that was not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.chaos.operations import Operation
from tests.chaos.run import Report
from tests.chaos.scene import Done


def summary(seed: int, slurm: str, kubernetes: str, report: Report) -> str:
    """Who ran what, and how it ended."""
    head = f"seed {seed}, Slurm {slurm}, {kubernetes}: {len(report.done)} operations"
    if report.lab:
        return f"{head}: the lab failed: {report.lab}"
    away = sum(bool(one.outcome) for one in report.done)
    jobs = ", ".join(f"{count} {state or 'unknown to Slurm'}" for state, count in report.jobs.most_common())
    ends = f"ended after {report.seconds_to_end:.0f} s, at rest {report.seconds_to_rest:.0f} s later"
    ends += f", {report.forgotten} jobs forgotten by slurmctld" if report.forgotten else ""
    verdict = f"{len(report.violations)} VIOLATIONS" if report.violations else "ok"
    return f"{head} ({away} without effect), jobs: {jobs}, {report.restarts} restarts; {ends}: {verdict}"


def trace(seed: int, operations: int, slurm: str, kubernetes: str, plan: Sequence[Operation], report: Report, logs: Path) -> str:
    """What was violated, the operations that may have to do with it, and how to do it again."""
    nodes = frozenset().union(*(one.nodes for one in report.violations)) if report.violations else frozenset()
    lines = [f"seed {seed}:", *(f"  {one.at - report.began:7.1f} s  VIOLATION {one.words}" for one in report.violations)]
    lines += [f"  after these of {len(report.done)} operations:", *(f"  {one}" for one in relevant(report.done, nodes))]
    numbers = ",".join(str(one.number) for one in plan)
    short = f" ONLY={numbers}" if len(plan) < operations else ""
    lines += [f"  logs: {logs}"]
    return "\n".join(
        [*lines, f"  again: make chaos SLURM={slurm} KUBERNETES={kubernetes} SEED={seed} OPERATIONS={operations}{short}"]
    )


def relevant(done: Sequence[Done], nodes: frozenset[str]) -> list[Done]:
    """Without the operations that concern other nodes only. Without nodes, all of them."""
    groups = {name.rpartition("-")[0] for name in nodes}

    def concerns(operation: Operation) -> bool:
        if operation.nodes:
            return bool(nodes & set(operation.names))
        return operation.group in groups or operation.sort.of.value != "use"

    return [one for one in done if not nodes or concerns(one.operation)]
