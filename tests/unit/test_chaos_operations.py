"""The plans of chaos: the same number always means the same operations, and what shrinks a plan keeps it failing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.chaos import operations as ops
from tests.chaos.__main__ import only
from tests.chaos.faults import FAULTS
from tests.chaos.invariants import Violation
from tests.chaos.operations import GENTLE, GROUPS, SORTS, STEP_CLOCK, WILD, Class, Operation, classes, operations
from tests.chaos.run import Report
from tests.chaos.scene import Done
from tests.chaos.shrink import before_violation, shrunk
from tests.chaos.telling import relevant, trace
from tests.chaos.uses import USES
from tests.unit.documents import TREE


def test_a_seed_says_all() -> None:
    assert operations(7, 200) == operations(7, 200)
    assert operations(7, 200) != operations(8, 200)


def test_a_longer_plan_begins_like_a_shorter_one() -> None:
    assert operations(7, 200)[:50] == operations(7, 50)


def test_the_same_in_every_process() -> None:
    """A failure that is reported by its number can be repeated elsewhere."""
    code = "from tests.chaos.operations import operations; print(*operations(1, 100), sep='\\n')"
    other = subprocess.run([sys.executable, "-c", code], cwd=TREE, env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True)
    assert other.stdout.splitlines() == [str(one) for one in operations(1, 100)], other.stderr


def test_every_kind_of_operation_comes_up_and_can_be_done() -> None:
    everything = frozenset(Class)
    drawn = {one.sort for seed in range(10) for one in operations(seed, 300, everything)}
    assert drawn == set(SORTS)
    assert USES.keys() | FAULTS.keys() == set(SORTS)
    assert not USES.keys() & FAULTS.keys()


def test_operations_make_sense() -> None:
    sizes = {group: size for group, _, size in GROUPS}
    for one in operations(3, 2000):
        assert all(0 <= index < sizes[one.group] for index in one.nodes)
        assert one.sort is STEP_CLOCK or 0 <= one.count <= max(sizes.values())
        assert one.seconds <= max(one.sort.seconds, ops.LONGEST_JOB)
        assert one.about < one.number
        assert (one.status != 0) == (one.sort in (ops.REFUSE_PATCH, ops.REFUSE_ALL))
    assert all(earlier.at <= later.at for earlier, later in pairwise(operations(3, 2000)))


def test_every_third_seed_excuses_no_second_start() -> None:
    assert classes(6) == GENTLE
    assert classes(7) == classes(8) == WILD
    assert not any(one.sort.of is Class.HARM for one in operations(6, 500, classes(6)))


def test_a_real_server_gets_no_faults_of_the_embedded_one() -> None:
    allowed = classes(1, real=True)
    assert Class.EMBEDDED not in allowed
    assert Class.REAL in allowed


def test_only_some_numbers_keep_their_times() -> None:
    plan = operations(5, 20)
    assert only(plan, "3,7") == (plan[3], plan[7])
    assert only(plan, "") == plan


def failing(*at: float) -> Report:
    return Report(violations=[Violation(one, "wrong") for one in at])


async def test_shrinking_finds_the_two_that_matter() -> None:
    plan = operations(9, 64)
    calls = []

    async def play(part: Sequence[Operation]) -> Report:
        calls.append(len(part))
        return failing(1.0) if {plan[11], plan[37]} <= set(part) else Report()

    report = Report(violations=[Violation(100.0, "wrong")], done=[Done(one.at, one) for one in plan])
    fewer, last = await shrunk(plan, report, play, 60.0)
    assert fewer == (plan[11], plan[37])
    assert last.failed
    assert len(calls) < 64


async def test_shrinking_ends_when_its_time_is_up_with_what_failed_last() -> None:
    plan = operations(9, 64)
    ticks = iter(range(100))

    async def play(_: Sequence[Operation]) -> Report:
        return Report()

    fewer, last = await shrunk(plan, failing(1.0), play, 5.0, clock=lambda: next(ticks))
    assert fewer == plan
    assert last.failed


def test_what_came_after_the_violation_goes_first() -> None:
    plan = operations(2, 10)
    report = Report(violations=[Violation(50.01 + plan[4].at, "wrong")], done=[Done(one.at, one) for one in plan], began=50.0)
    assert before_violation(plan, report) == plan[:5]


def test_a_trace_names_the_seed_the_operations_of_the_node_and_how_to_repeat() -> None:
    mine = Operation(1, 0.5, ops.DRAIN, "cpu", (3,))
    other = Operation(2, 0.7, ops.DRAIN, "cpu", (4,))
    fault = Operation(3, 0.9, ops.KILL_COPILOT, "gpu", seconds=1.0)
    done = [Done(one.at, one) for one in (mine, other, fault)]
    assert relevant(done, frozenset({"cpu-3"})) == [done[0], done[2]]
    assert relevant(done, frozenset()) == done
    report = Report(violations=[Violation(12.0, "cpu-3 is lost", frozenset({"cpu-3"}))], done=done, began=10.0)
    text = trace(42, 100, "22.05", "embedded", [mine, fault], report, Path("/logs"))
    assert "2.0 s  VIOLATION cpu-3 is lost" in text
    assert "0.5 s  1 drain cpu-3" in text
    assert "drain cpu-4" not in text
    assert "make chaos SLURM=22.05 KUBERNETES=embedded SEED=42 OPERATIONS=100 ONLY=1,3" in text
