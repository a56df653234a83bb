"""The runner behind `make test` hides nothing: what failed, what was skipped and why, what did not run at all."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiers import processes
from tests.tiers import schedule as schedule_module
from tests.tiers.outcome import Ended, Outcome, judge, merged, skipped, summary, total
from tests.tiers.schedule import Schedule
from tests.tiers.table import TIERS, TREE, Tier, choose, parts_of, select

MIXED = """
import pytest

def test_good(): pass
def test_bad(): assert 1 == 2, "the sum is wrong"
@pytest.fixture
def broken(): raise OSError("no such part")
def test_error(broken): pass
def test_here_not(): pytest.skip("needs a moon")
@pytest.mark.skip(reason="needs a moon")
def test_there_not(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""
BLOCKS = """
import os, pathlib, threading

def test_blocks(): pathlib.Path(os.environ["PID_FILE"]).write_text(str(os.getpid())); threading.Event().wait()
"""


def folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "test_it.py").write_text(content)
    return path


def plain(name: str, target: Path | str, *needs: str, limit: float = 60, env: Mapping[str, str] | None = None) -> Tier:
    return Tier(name, str(target), needs, isolated=False, limit=limit, env=env or {})


def scheduled(tmp_path: Path, *tiers: Tier, say: Callable[[str], None] = print) -> Schedule:
    return Schedule(tiers, jobs=2, logs=tmp_path, scratch=tmp_path, say=say)


def alive(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_the_default_is_every_tier_but_the_slurm_that_is_not_released() -> None:
    names = [tier.name for tier in select(None)]
    assert names[:2] == ["lint", "unit"]
    assert len(names) == len(set(names))
    assert set(names) == {tier.name for tier in TIERS if "26.05" not in tier.name}


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("unit,lint", ["lint", "unit"]),
        ("slurm", ["slurm-22.05", "slurm-24.11"]),
        (" slurm-26.05 ,", ["slurm-26.05"]),
        ("slurm,slurm-26.05", ["slurm-22.05", "slurm-24.11", "slurm-26.05"]),
    ],
)
def test_tiers_are_chosen_by_name_or_family(only: str, names: Sequence[str]) -> None:
    assert [tier.name for tier in select(only)] == names


@pytest.mark.parametrize("only", ["unit,units", "", ","])
def test_a_wrong_name_is_told_with_what_there_is(only: str) -> None:
    with pytest.raises(ValueError, match=r"there are: lint, unit, slurm-22\.05"):
        select(only)


def test_every_part_is_one_that_the_installer_knows() -> None:
    known = set(re.findall(r"^ +([\w.-]+)\) ", (TREE / "tests/lab/install").read_text(), re.MULTILINE))
    assert set(parts_of(TIERS)) <= known


def test_heavy_and_light_tiers_run_side_by_side() -> None:
    heavy, other, light = Tier("a", "t/a", heavy=True), Tier("b", "t/b", heavy=True), Tier("c", "t/c")
    assert choose([heavy, light], []) == heavy
    assert choose([other, light], [heavy]) == light
    assert choose([light, heavy], [light]) == heavy
    assert choose([other], [heavy]) == other
    assert choose([], [heavy]) is None


async def test_tests_are_counted_and_failures_and_skips_keep_their_words(tmp_path: Path) -> None:
    said: list[str] = []
    [outcome] = await scheduled(tmp_path, plain("mixed", folder(tmp_path / "mixed_tests", MIXED)), say=said.append).run()
    assert (outcome.result, outcome.counts) == ("failed", "1 passed, 2 failed, 3 skipped")
    lines = summary([outcome, skipped("other", "no Go")])
    text = "\n".join(lines)
    assert "the sum is wrong" in text
    assert "no such part" in text
    assert re.search(r"^skipped in mixed: \S+test_here_not and 1 more: needs a moon$", text, re.MULTILINE)
    assert re.search(r"^other +skipped +0 +0 +1 +0 +skipped: no Go$", text, re.MULTILINE)
    assert lines[-1] == "1 passed, 2 failed, 4 skipped"
    assert "mixed starts" in said[0]
    assert "mixed failed: 1 passed, 2 failed, 3 skipped" in said[-3]


async def test_what_failed_is_told_at_once_and_again_before_the_texts_and_in_the_table(tmp_path: Path) -> None:
    said: list[str] = []
    [outcome] = await scheduled(tmp_path, plain("mixed", folder(tmp_path / "mixed_tests", MIXED)), say=said.append).run()
    bad, error = outcome.told
    assert re.fullmatch(r"failed: mixed: \S+::test_bad: AssertionError: the sum is wrong", bad)
    assert re.fullmatch(r"failed: mixed: \S+::test_error: OSError: no such part", error)
    assert [line.partition("] ")[2] for line in said[-2:]] == [bad, error]
    lines = summary([outcome, skipped("other", "no Go")])
    assert lines[1:3] == [bad, error]
    assert next(number for number, line in enumerate(lines) if line.startswith("FAILED")) > 2
    assert any(re.match(r"mixed +failed .* test_bad, test_error$", line) for line in lines)


def in_modules(path: Path, **contents: str) -> Tier:
    path.mkdir()
    for name, content in contents.items():
        (path / f"test_{name}.py").write_text(content)
    return replace(plain(path.name, path), modules_at_once=2)


async def test_modules_that_run_each_by_itself_are_one_tier(tmp_path: Path) -> None:
    tier = in_modules(tmp_path / "parts", good="def test_good(): pass", mixed=MIXED, none="")
    [outcome] = await scheduled(tmp_path, tier).run()
    assert (outcome.result, outcome.counts) == ("failed", "2 passed, 2 failed, 3 skipped")
    assert [name.rpartition("::")[2] for name, _ in outcome.failures] == ["test_bad", "test_error"]
    log = (tmp_path / "parts.log").read_text()
    assert set(re.findall(r"^==> (\S+)$", log, re.MULTILINE)) == {"test_good.py", "test_mixed.py", "test_none.py"}
    assert "the sum is wrong" in log


async def test_a_module_over_the_tier_s_limit_is_named_and_the_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = processes.run

    async def stopped(argv: Sequence[str], log: Path, limit: float, env: Mapping[str, str] | None = None) -> Ended:
        if "test_slow" not in argv[-1]:
            return await really(argv, log, limit, env)
        log.write_text("still at it\n")
        return Ended(None, limit, log)

    monkeypatch.setattr(schedule_module, "run", stopped)
    [outcome] = await scheduled(tmp_path, in_modules(tmp_path / "parts", slow=MIXED, good="def test_good(): pass")).run()
    assert (outcome.counts, outcome.reason) == ("1 passed, 1 failed, 0 skipped", "test_slow: stopped at its limit of 60 s")
    assert "still at it" in outcome.failures[0][1]


async def test_modules_of_which_none_has_a_test_are_a_failure(tmp_path: Path) -> None:
    [outcome] = await scheduled(tmp_path, in_modules(tmp_path / "parts", one="", two="")).run()
    assert (outcome.result, outcome.reason) == ("failed", "no test ran")


def test_modules_that_the_machine_cannot_run_are_one_skipped_tier() -> None:
    parts = {"a": skipped("t", "no namespaces"), "b": skipped("t", "no namespaces")}
    assert merged("t", parts, 3.0) == replace(skipped("t", "no namespaces"), seconds=3.0)
    half = merged("t", {**parts, "c": Outcome("t", passed=2)}, 3.0)
    assert (half.result, half.counts, half.reason.count("no namespaces")) == ("passed", "2 passed, 0 failed, 2 skipped", 2)


async def test_a_tier_that_runs_no_test_or_is_not_there_has_failed(tmp_path: Path) -> None:
    empty = plain("empty", folder(tmp_path / "empty_tests", ""))
    syntax = plain("syntax", folder(tmp_path / "syntax_tests", "def"))
    gone = plain("gone", tmp_path / "nowhere")
    module = plain("module", "tests.nowhere")
    outcomes = {each.tier: each for each in await scheduled(tmp_path, empty, syntax, gone, module).run()}
    assert {name: each.result for name, each in outcomes.items()} == dict.fromkeys(
        ("empty", "syntax", "gone", "module"), "failed"
    )
    assert outcomes["empty"].reason == "no test ran"
    assert "is not there" in outcomes["gone"].reason
    assert "is not there" in outcomes["module"].reason


async def test_a_tier_whose_part_cannot_be_installed_has_failed_with_the_installer_s_words(tmp_path: Path) -> None:
    [outcome] = await scheduled(tmp_path, plain("needy", folder(tmp_path / "t", MIXED), "moon")).run()
    assert outcome.result == "failed"
    assert "unknown part: moon" in outcome.failures[0][1]


async def test_a_tier_whose_part_this_machine_cannot_have_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cannot(argv: Sequence[str], log: Path, limit: float, *_env: object) -> Ended:
        log.write_text(f"==> looking\n{argv[0]}: no moon tonight\n")
        return Ended(77, limit, log)

    monkeypatch.setattr(schedule_module, "run", cannot)
    [outcome] = await scheduled(tmp_path, plain("needy", folder(tmp_path / "t", MIXED), "moon")).run()
    assert (outcome.result, outcome.skipped) == ("skipped", 1)
    assert outcome.reason == "skipped: tests/lab/install: no moon tonight"


async def test_a_tier_over_its_limit_is_stopped_and_has_failed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    blocks = plain("blocks", folder(tmp_path / "t", BLOCKS), limit=5, env={"PID_FILE": str(pid_file)})
    [outcome] = await scheduled(tmp_path, blocks).run()
    assert (outcome.result, outcome.reason) == ("failed", "stopped at its limit of 5 s")
    assert not alive(pid_file)


async def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    blocks = plain("blocks", folder(tmp_path / "t", BLOCKS), env={"PID_FILE": str(pid_file)})
    running = asyncio.create_task(scheduled(tmp_path, blocks).run())
    async with asyncio.timeout(30):
        while not (pid_file.is_file() and pid_file.read_text()):  # noqa: ASYNC110 (another process writes it)
            await asyncio.sleep(0.02)
    assert alive(pid_file)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid_file)


@pytest.mark.parametrize(
    ("code", "result", "reason"),
    [
        (0, "passed", ""),
        (1, "failed", "ended with code 1"),
        (77, "skipped", "skipped: this machine is too small"),
        (None, "failed", "stopped"),
    ],
)
def test_a_program_is_one_test(tmp_path: Path, code: int | None, result: str, reason: str) -> None:
    log = tmp_path / "log"
    log.write_text("begin\nthis machine is too small\n\n")
    outcome = judge("demo", Ended(code, 3.0, log), 10.0, None)
    assert (outcome.result, outcome.passed + outcome.failed + outcome.skipped) == (result, 1)
    assert outcome.reason.startswith(reason)


def test_a_process_that_died_before_its_report_has_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Fatal Python error\n")
    outcome = judge("unit", Ended(-11, 3.0, log), 10.0, tmp_path / "none.xml")
    assert outcome.counts == "0 passed, 1 failed, 0 skipped"
    assert "Fatal Python error" in outcome.failures[0][1]


def test_a_bad_exit_code_is_not_overruled_by_a_good_report(tmp_path: Path) -> None:
    report, log = tmp_path / "report.xml", tmp_path / "log"
    report.write_text('<testsuites><testsuite><testcase classname="t" name="a"/></testsuite></testsuites>')
    log.write_text("INTERNALERROR\n")
    assert judge("unit", Ended(0, 1.0, log), 10.0, report).result == "passed"
    assert judge("unit", Ended(3, 1.0, log), 10.0, report).result == "failed"


def test_the_total_is_the_sum() -> None:
    outcomes = [Outcome("a", passed=3, skipped=1, seconds=2), Outcome("b", passed=1, failed=2, seconds=1)]
    assert total(outcomes).counts == "4 passed, 2 failed, 1 skipped"
    assert [each.result for each in outcomes] == ["passed", "failed"]
    assert Outcome("c", skipped=4).result == "skipped"
