"""What came of a tier, read from pytest's JUnit report, and the summary of all of them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

NOTHING_CHOSEN: Final = 5  # pytest: no test was collected, or all were deselected
UNAVAILABLE: Final = 77  # tests/lab/isolated and tests/lab/install: "this machine cannot", with one sentence on stderr
_TAIL_LINES: Final = 40
_FAILURE_LINES: Final = 150
_CAUSE_LETTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts are of tests. `reason` is why the tier as a whole failed or was skipped; `failures` and `skips` are (test, text)."""

    tier: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""
    failures: tuple[tuple[str, str], ...] = ()
    skips: tuple[tuple[str, str], ...] = ()

    @property
    def result(self) -> str:
        """`passed` only where something passed and nothing failed."""
        return "failed" if self.failed else "passed" if self.passed else "skipped"

    @property
    def counts(self) -> str:
        """For people and for scripts: `3 passed, 0 failed, 1 skipped`."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    @property
    def told(self) -> list[str]:
        """A line for each test that failed: tier, test, and the first line of why."""
        return [f"failed: {self.tier}: {name}: {cause(text)}" for name, text in self.failures]

    @property
    def short(self) -> str:
        """The tests that failed by their own names only."""
        return ", ".join(name.rpartition("::")[2] for name, _ in self.failures)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `code` is None when it was stopped at its time limit."""

    code: int | None
    seconds: float
    log: Path


def skipped(tier: str, reason: str, seconds: float = 0.0) -> Outcome:
    """A tier that this machine cannot run. How many tests it has nobody knows, so it counts as one."""
    return Outcome(tier, skipped=1, seconds=seconds, reason=f"skipped: {reason}")


def failed(tier: str, reason: str, text: str = "", seconds: float = 0.0) -> Outcome:
    """A tier that failed as a whole."""
    return Outcome(tier, failed=1, seconds=seconds, reason=reason, failures=((tier, text or reason),))


def cause(text: str) -> str:
    """Of a failure's text the first line that pytest marks as the error, else the last that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (marked or lines[-1:] or ["no reason given"])[0][:_CAUSE_LETTERS]


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def last_sentence(log: Path) -> str:
    """The last line of a log that says something."""
    said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return said[-1] if said else "it did not say why"


def judge(tier: str, ended: Ended, limit: float, report: Path | None) -> Outcome:
    """The outcome of a process that ran a tier; `report` is where pytest was told to write, None for a tier that is one program."""
    if ended.code is None:
        return failed(tier, f"stopped at its limit of {limit:.0f} s", tail(ended.log), ended.seconds)
    if ended.code == UNAVAILABLE:
        return skipped(tier, last_sentence(ended.log), ended.seconds)
    if report is None:
        if ended.code == 0:
            return Outcome(tier, passed=1, seconds=ended.seconds)
        return failed(tier, f"ended with code {ended.code}", tail(ended.log), ended.seconds)
    if not report.is_file():
        return failed(tier, f"ended with code {ended.code} and no report", tail(ended.log), ended.seconds)
    return _with_code(read_report(tier, report, ended.seconds), ended)


def _with_code(outcome: Outcome, ended: Ended) -> Outcome:
    """The report says what the tests did; the exit code knows of what went wrong around them."""
    if not outcome.passed + outcome.failed + outcome.skipped:
        return failed(outcome.tier, "no test ran", tail(ended.log), ended.seconds)
    if ended.code and not outcome.failed:
        return failed(outcome.tier, f"pytest ended with code {ended.code}", tail(ended.log), ended.seconds)
    return outcome


def read_report(tier: str, report: Path, seconds: float) -> Outcome:
    """Counts the cases of a JUnit report. Raises ET.ParseError when it is not one."""
    passed = 0
    failures: list[tuple[str, str]] = []
    skips: list[tuple[str, str]] = []
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 (our own pytest wrote it)
        name = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
        bad = [element for tag in ("failure", "error") for element in case.findall(tag)]
        skip = case.find("skipped")
        if bad:
            failures.append((name, "\n".join(element.text or element.get("message") or "" for element in bad)))
        elif skip is not None:
            skips.append((name, skip.get("message", "") or "no reason given"))
        else:
            passed += 1
    return Outcome(tier, passed, len(failures), len(skips), seconds, failures=tuple(failures), skips=tuple(skips))


def merged(tier: str, parts: Mapping[str, Outcome], seconds: float) -> Outcome:
    """The outcome of a tier from those of its modules, by name; one that had nothing to run counts for nothing."""
    outcomes = list(parts.values())
    if outcomes and all(each.result == "skipped" and each.reason for each in outcomes):
        return replace(outcomes[0], seconds=seconds)
    reason = "; ".join(f"{name}: {each.reason}" for name, each in parts.items() if each.reason)
    failures = tuple(failure for each in outcomes for failure in each.failures)
    skips = tuple(skip for each in outcomes for skip in each.skips)
    sums = total(outcomes)
    whole = Outcome(tier, sums.passed, sums.failed, sums.skipped, seconds, reason, failures, skips)
    return whole if whole.passed + whole.failed + whole.skipped else failed(tier, "no test ran", "", seconds)


def total(outcomes: Sequence[Outcome]) -> Outcome:
    """All tiers as one."""
    return Outcome(
        "all",
        sum(each.passed for each in outcomes),
        sum(each.failed for each in outcomes),
        sum(each.skipped for each in outcomes),
        sum(each.seconds for each in outcomes),
    )


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines printed at the end: what failed, a line each; their texts; skipped tests with their reasons; the table; the counts (last).

    A log that is cut has the names at one end or the other: the table repeats them in short.
    """
    lines = ["", *(line for each in outcomes for line in each.told)] if any(each.failures for each in outcomes) else []
    for each in outcomes:
        for name, text in each.failures:
            lines += ["", f"FAILED {each.tier}: {name}", *_shortened(text)]
    for each in outcomes:
        by_reason: dict[str, list[str]] = {}
        for name, reason in each.skips:
            by_reason.setdefault(reason, []).append(name)
        lines += [f"skipped in {each.tier}: {_folded(names)}: {reason}" for reason, names in by_reason.items()]
    width = max([len(each.tier) for each in outcomes], default=0)
    lines += ["", f"{'tier':<{width}}  result   passed  failed  skipped  seconds"]
    for each in outcomes:
        numbers = f"{each.passed:>6}  {each.failed:>6}  {each.skipped:>7}  {each.seconds:>7.0f}"
        lines.append(f"{each.tier:<{width}}  {each.result:<7}  {numbers}  {each.reason or each.short}".rstrip())
    return [*lines, total(outcomes).counts]


def _shortened(text: str) -> list[str]:
    lines = text.rstrip().splitlines()
    cut = len(lines) - _FAILURE_LINES
    return lines if cut <= 0 else [f"    ({cut} lines before these are in the log)", *lines[-_FAILURE_LINES:]]


def _folded(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
