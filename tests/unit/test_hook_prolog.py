"""The prolog: it ends when there is nothing more to wait for, and always with 0, since anything else requeues the job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from copilot.config import Address
from copilot.server import WaitAnswer, WaitState
from tests.unit.hook_fixture import Hooks, Start, reply, speaking
from tests.unit.server_fixture import FakeCore, serving, settings_in, until

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "cpu-[0-2],gpu-[01,03]"}
NODES = ("cpu-0", "cpu-1", "cpu-2", "gpu-01", "gpu-03")
SCRIPT = "slurm-prolog.sh"


@pytest.mark.parametrize("how", list(Start))
@pytest.mark.parametrize("state", [WaitState.UP, WaitState.FAILED, WaitState.GONE])
async def test_it_waits_until_the_copilot_has_an_answer(tmp_path: Path, how: Start, state: WaitState) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        running = await hooks.start(SCRIPT, how=how, env=JOB)
        await until(lambda: core.waiting)
        assert running.returncode is None
        assert list(core.waiting.values()) == [NODES]
        core.settle(WaitAnswer(state))
        ended = await hooks.end(running)
    assert (ended.code, ended.out, ended.log) == (0, "", "")
    assert len(core.deadlines) == 1


async def test_over_tcp_with_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("long-random-word\n")
    core = FakeCore()
    settings = settings_in(tmp_path, hooks_listen=Address("127.0.0.1", 0), hooks_token_file=token)
    async with serving(core, settings) as server:
        hooks = Hooks.installed(tmp_path, COPILOT_URL=f"http://{server.hooks_address}", COPILOT_TOKEN_FILE=token)
        running = await hooks.start(SCRIPT, env=JOB)
        await until(lambda: core.waiting)
        core.settle(WaitAnswer(WaitState.UP))
        good = await hooks.end(running)
        token.write_text("wrong\n")
        bad = await hooks.run(SCRIPT, env=JOB)
    assert (good.code, good.log, bad.code) == (0, "", 0)
    assert "status 401" in bad.log
    assert len(core.deadlines) == 1


async def test_while_there_is_no_answer_it_asks_again(tmp_path: Path) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path, wait_max=0.05), Hooks.installed(tmp_path)
    async with serving(core, settings):
        running = await hooks.start(SCRIPT, env=JOB)
        await until(lambda: len(core.deadlines) >= 3)
        await until(lambda: core.waiting)
        core.settle(WaitAnswer(WaitState.UP))
        ended = await hooks.end(running)
    assert (ended.code, ended.log) == (0, "")


async def test_a_graceful_restart_of_the_copilot_does_not_end_the_wait(tmp_path: Path) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        running = await hooks.start(SCRIPT, env=JOB)
        await until(lambda: core.waiting)
    assert running.returncode is None
    async with serving(core, settings):
        await until(lambda: len(core.deadlines) == 2)
        core.settle(WaitAnswer(WaitState.UP))
        ended = await hooks.end(running)
    assert (ended.code, ended.log) == (0, "")


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["before", "in mid answer"])
async def test_a_copilot_that_is_killed_does_not_end_the_wait(tmp_path: Path, last_words: bytes) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with speaking(settings.socket, lambda _: last_words) as heads:
        running = await hooks.start(SCRIPT, env=JOB)
        await until(lambda: heads)
    async with serving(core, settings):
        await until(lambda: core.waiting)
        core.settle(WaitAnswer(WaitState.UP))
        ended = await hooks.end(running)
    assert (ended.code, ended.log) == (0, "")


@pytest.mark.parametrize("how", list(Start))
async def test_without_a_copilot_it_gives_up_within_its_bound_and_says_so(tmp_path: Path, how: Start) -> None:
    ended = await Hooks.installed(tmp_path, COPILOT_WAIT=2).run(SCRIPT, how=how, env=JOB)
    assert ended.code == 0
    (line,) = ended.log.splitlines()
    assert "job 7: no answer to wait for" in line
    assert "curl 7" in line


async def test_a_copilot_that_hangs_does_not_hold_the_job_for_ever(tmp_path: Path) -> None:
    hooks = Hooks.installed(tmp_path, COPILOT_WAIT=1)
    async with speaking(tmp_path / "copilot.sock", lambda _: None) as heads:
        ended = await hooks.run(SCRIPT, env=JOB)
    assert ended.code == 0
    assert "curl 28" in ended.log
    assert len(heads) == 1


async def test_a_refusal_is_not_repeated(tmp_path: Path) -> None:
    hooks = Hooks.installed(tmp_path)
    async with speaking(tmp_path / "copilot.sock", lambda _: reply(403, '{"error": "not you"}\n')) as heads:
        ended = await hooks.run(SCRIPT, env=JOB)
    assert (ended.code, len(heads)) == (0, 1)
    assert 'status 403: {"error": "not you"}' in ended.log


async def test_a_job_without_nodes_is_not_held(tmp_path: Path) -> None:
    ended = await Hooks.installed(tmp_path).run(SCRIPT, env={"SLURM_JOB_ID": "7"})
    assert (ended.code, ended.log) == (0, "")


TROUBLE = {
    "settings that are no shell": {"COPILOT_WAIT": "'unclosed"},
    "no curl": {"PATH": "/nonexistent", "COPILOT_WAIT": "1"},
    "a wait that is no number": {"COPILOT_WAIT": "'a b'"},
    "a token file that is not there": {
        "COPILOT_URL": "http://127.0.0.1:1",
        "COPILOT_TOKEN_FILE": "/nonexistent",
        "COPILOT_WAIT": "1",
    },
    "a folder for a log": {"COPILOT_HOOK_LOG": "/", "COPILOT_WAIT": "1"},
}


@pytest.mark.parametrize("how", list(Start))
@pytest.mark.parametrize("conf", TROUBLE.values(), ids=TROUBLE.keys())
async def test_whatever_is_wrong_the_job_is_not_requeued(tmp_path: Path, conf: dict[str, str], how: Start) -> None:
    assert (await Hooks.installed(tmp_path, **conf).run(SCRIPT, how=how, env=JOB)).code == 0


async def test_a_killed_curl_does_not_requeue_the_job(tmp_path: Path) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        running = await hooks.start(SCRIPT, env=JOB)
        await until(lambda: core.waiting)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        (curl,) = (int(child) for child in children)
        assert Path(f"/proc/{curl}/comm").read_text() == "curl\n", "one process beside the shell, and no more"
        kill = await asyncio.create_subprocess_exec("kill", "-KILL", str(curl))
        await kill.wait()
        ended = await hooks.end(running)
    assert ended.code == 0
