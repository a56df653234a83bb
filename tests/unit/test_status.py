"""What `status` prints: on narrow and wide screens, with colours and without, of thousands of nodes, and of one."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from copilot.status.picture import overview, story, troubled
from copilot.status.table import Screen, age, table
from tests.unit.server_fixture import FakeCore, serving, settings_in
from tests.unit.test_cli import copilot
from tests.unit.test_cli import node as row
from tests.unit.test_cli import table as known

STORY: dict[str, Any] = {
    **row("cpu-2", "scheduled", 12.0, "image_pull: ErrImagePull: no such tag", (7,)),
    "failure": "",
    "request_id": "1f6b3d55",
    "stages": {"scaled": 0.1, "pending": 0.2},
    "target": "statefulset/hpc/cpu",
    "next": "it fails (image_pull) in 18 s unless the cause ends",
    "pod": {
        "uid": "u",
        "phase": "Pending",
        "age": 11.9,
        "host": "worker-3",
        "ip": "",
        "scheduled": True,
        "running": False,
        "ready": False,
        "terminating": False,
        "restarts": 0,
        "trouble": "ErrImagePull",
        "message": "no such tag",
    },
    "events": [{"about": "Pod/cpu-2", "reason": "FailedMount", "message": 'secret "x" not found', "age": 3.0}],
}
WIDE = Screen()
BREAKER = {"failures": 5, "reason": "quota", "message": "m", "probe": "", "next_try": 20.0}


def test_ten_thousand_nodes_are_a_few_lines() -> None:
    nodes = [row(f"cpu-{index}", "up", index) for index in range(9000)] + [
        row(f"cpu-{index}", "pending", 3) for index in range(9000, 10000)
    ]
    lines = overview(known(*nodes), WIDE)
    assert len(lines) < 12
    assert any("cpu-[0-8999]" in line for line in lines)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("colours", [False, True])
def test_no_line_is_wider_than_the_screen(width: int, colours: bool) -> None:
    screen = Screen(width, colours)
    picture = known(row("cpu-0", "failed", 3, "x" * 500), problem="y " * 300, problems={"slurm": "z " * 200})
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in (*overview(picture, screen), *story(STORY, screen))]
    assert max(map(len, lines)) <= width
    assert any(line.endswith("…") for line in lines)
    text = "".join(lines).replace(" ", "")
    assert "y" * 300 in text and "z" * 200 in text, "a problem is told in full"


def test_on_eighty_columns_what_matters_is_there() -> None:
    scattered = [row(f"cpu-{index}", "failed", 3, "quota: exceeded", (index,)) for index in range(0, 400, 2)]
    picture = known(*scattered)
    picture["groups"][0] |= {"breaker": BREAKER, "held": False}
    text = "\n".join(overview(picture, Screen(80)))
    for words in ("SCALING", "paused", "FAILED", "IDLE", "breaker open after 5 failures", "AGE", "(200)"):
        assert words in text, words


def test_a_job_for_each_of_ten_thousand_nodes_is_one_row() -> None:
    lines = overview(known(*(row(f"cpu-{index}", "up", 3, "", (index,)) for index in range(10000))), WIDE)
    assert len(lines) < 10
    assert any("0,1,2,+9997" in line for line in lines)


def test_colours_only_where_they_are_wanted() -> None:
    lines = overview(known(row("cpu-0", "failed", 3)), Screen(None, colours=True))
    assert any("\x1b[31m" in line for line in lines)
    assert not any("\x1b" in line for line in overview(known(row("cpu-0", "failed", 3)), WIDE))
    assert re.sub(r"\x1b\[\d+m", "", "\n".join(lines)) == "\n".join(overview(known(row("cpu-0", "failed", 3)), WIDE))


def test_a_breaker_a_hold_and_what_came_last_are_told() -> None:
    picture = known(
        last_hook={"action": "resume", "nodes": "cpu-[0-3]", "accepted": 4, "request_id": "ab", "age": 2.0},
        last_error={"event": "target_patch_failed", "error": "403", "age": 130.0},
    )
    picture["groups"] = [picture["groups"][0] | {"breaker": BREAKER}, picture["groups"][0] | {"name": "gpu", "held": True}]
    text = "\n".join(overview(picture, WIDE))
    assert "breaker open after 5 failures (quota: m), next try in 20s" in text
    assert "held by an operator" in text
    assert "Last hook 2.0s ago: resume cpu-[0-3] (4 accepted, request ab)" in text
    assert "Last error 2m ago: target_patch_failed: 403" in text
    assert troubled(picture)


def test_idle_nodes_that_stay_on_are_named_with_the_reason() -> None:
    picture = known(row("cpu-3", "up", 3))
    picture["groups"][0] |= {"idle": 2, "kept_up": [{"nodes": "cpu-[3-4]", "count": 2, "why": "SuspendExcNodes has it"}]}
    assert "cpu: idle but never suspended: cpu-[3-4]: SuspendExcNodes has it" in overview(picture, WIDE)
    assert "  idle     never suspended: SuspendTime=INFINITE" in story(STORY | {"kept_up": "SuspendTime=INFINITE"}, WIDE)


def test_the_story_of_a_node() -> None:
    text = "\n".join(story(STORY, WIDE))
    for words in (
        "scheduled for 12s",
        "reason   image_pull: ErrImagePull: no such tag",
        "next     it fails (image_pull) in 18 s",
        "start    scaled +0.1 s, pending +0.2 s, 0.3 s in all",
        "pod      Pending on worker-3 for 12s, scheduled, 0 restarts",
        'event    3.0s ago, Pod/cpu-2: FailedMount: secret "x" not found',
    ):
        assert words in text
    assert "pod      none" in "\n".join(story(STORY | {"pod": None}, WIDE))


def test_ages_and_columns() -> None:
    assert [age(seconds) for seconds in (0.25, 11.6, 130, 7200, 172800)] == ["0.2s", "12s", "2m", "2h", "2d"]
    assert table([["A", "B"], ["x\ny", 1]], WIDE) == ["A    B", "x y  1"]


async def test_status_of_nodes(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with serving(FakeCore(stories={"cpu-2": STORY}), settings):
        socket = str(settings.socket)
        code, out, err = await copilot("status", "cpu-2", "--socket", socket)
        assert (code, err) == (0, "")
        assert "it fails (image_pull)" in out
        code, out, err = await copilot("status", "cpu-[2-3]", "--socket", socket)
        assert code == 2
        assert "no worker group has a node" in err
        assert "cpu-2" in out
        code, _, err = await copilot("status", "cpu-[", "--socket", socket)
        assert code == 2
        assert "no hostlist" in err


async def test_watch_prints_again_and_ends_well_with_ctrl_c(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with serving(FakeCore(table=known(row("cpu-0", "up", 3))), settings):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "copilot.cli",
            "status",
            "--watch",
            "--socket",
            str(settings.socket),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        seen = 0
        async with asyncio.timeout(60):
            while seen < 2:
                seen += b"GROUP" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        await process.stdout.read()
        assert await process.wait() == 0


async def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with serving(FakeCore(table=known(row("cpu-0", "up", 3))), settings):
        command = f"{sys.executable} -m copilot.cli status --watch --socket {settings.socket} | head -n 1"
        process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    assert (out.decode().split()[0], err.decode()) == ("GROUP", "")
