"""GET /v1/wait: its answers, its bounds, and what a thousand of them leave behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from copilot.server import WaitAnswer, WaitState
from tests.unit.server_fixture import FakeCore, ask, raw, request, serving, settings_in, until

ANSWERS = {
    WaitState.UP: (WaitAnswer(WaitState.UP), 200, {"state": "up"}),
    WaitState.GONE: (WaitAnswer(WaitState.GONE), 200, {"state": "gone"}),
    WaitState.FAILED: (
        WaitAnswer(WaitState.FAILED, {"cpu-0": "quota", "cpu-2": "image_pull", "cpu-1": "quota"}, ["cpu-0", "cpu-1", "cpu-2"]),
        200,
        {
            "state": "failed",
            "failed": [{"nodes": "cpu-2", "reason": "image_pull"}, {"nodes": "cpu-[0-1]", "reason": "quota"}],
            "missing": "cpu-[0-2]",
        },
    ),
    WaitState.TIMEOUT: (WaitAnswer(WaitState.TIMEOUT, missing=["cpu-1"]), 504, {"state": "timeout", "missing": "cpu-1"}),
    WaitState.STOPPING: (WaitAnswer(WaitState.STOPPING), 503, {"state": "stopping", "error": "stopping, ask again"}),
}


@pytest.mark.parametrize("state", list(WaitState))
async def test_each_way_in_which_a_wait_ends(tmp_path: Path, state: WaitState) -> None:
    given, status, body = ANSWERS[state]
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        with capture_logs() as lines:
            asking = asyncio.create_task(ask(settings.socket, "GET", f"/v1/wait?nodes={quote('cpu-[0-2]')}&job=7"))
            await until(lambda: core.waiting)
            assert list(core.waiting.values()) == [("cpu-0", "cpu-1", "cpu-2")]
            core.settle(given)
            answer = await asking
    answer.body.pop("request_id")
    assert (answer.status, answer.body) == (status, body)
    assert ("Retry-After: 1" in answer.head) == (state is WaitState.STOPPING)
    assert [(line["job"], line["nodes"], line["state"]) for line in lines if line["event"] == "wait"] == [
        ("7", "cpu-[0-2]", state)
    ]


@pytest.mark.parametrize(("query", "seconds"), [("", 50), ("&timeout=7.5", 7.5), ("&timeout=9999", 50), ("&timeout=0", 0)])
async def test_the_deadline_is_the_callers_within_our_bound(tmp_path: Path, query: str, seconds: float) -> None:
    core, settings = FakeCore(), settings_in(tmp_path, wait_max=50.0)
    async with serving(core, settings):
        asking = asyncio.create_task(ask(settings.socket, "GET", f"/v1/wait?nodes=a{query}"))
        await until(lambda: core.deadlines)
        if seconds:
            core.settle(WaitAnswer(WaitState.UP))
        answer = await asking
    assert answer.status == (504 if seconds == 0 else 200)
    assert seconds - 5 < core.deadlines[0] <= seconds


async def test_a_hostlist_as_long_as_the_kernel_passes_arrives_whole(tmp_path: Path) -> None:
    names = [f"gpu-{i * 7}" for i in range(9000)]
    text = "gpu-[" + ",".join(name.removeprefix("gpu-") for name in names) + "]" + ",x" * 39000
    assert 120_000 < len(text) < 131_072
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        asking = asyncio.create_task(ask(settings.socket, "GET", f"/v1/wait?nodes={quote(text, safe='')}"))
        await until(lambda: core.waiting or asking.done())
        assert list(core.waiting.values()) == [(*names, "x")]
        core.settle(WaitAnswer(WaitState.UP))
        assert (await asking).status == 200


async def test_a_caller_who_goes_away_leaves_no_wait_behind(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        _, writer = await asyncio.open_unix_connection(str(settings.socket))
        writer.write(request("GET", "/v1/wait?nodes=a"))
        await until(lambda: core.waiting)
        writer.close()
        await until(lambda: not core.waiting)
    assert core.count("wait", "aborted") == 1


async def test_a_thousand_waits_end_together_when_their_nodes_are_up(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    gauge = "slurm_copilot_waits"
    async with serving(core, settings):
        asking = [asyncio.create_task(ask(settings.socket, "GET", "/v1/wait?nodes=a")) for _ in range(1000)]
        await until(lambda: len(core.waiting) == 1000)
        assert core.metrics.registry.get_sample_value(gauge) == 1000
        core.settle(WaitAnswer(WaitState.UP))
        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
        assert core.metrics.registry.get_sample_value(gauge) == 0


async def test_one_wait_too_many_is_told_to_ask_again(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path, max_waits=2)
    async with serving(core, settings):
        asking = [asyncio.create_task(ask(settings.socket, "GET", "/v1/wait?nodes=a")) for _ in range(2)]
        await until(lambda: len(core.waiting) == 2)
        answer = await ask(settings.socket, "GET", "/v1/wait?nodes=a")
        assert answer.status == 429
        assert "Retry-After: 1" in answer.head
        core.settle(WaitAnswer(WaitState.UP))
        assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
        again = asyncio.create_task(ask(settings.socket, "GET", "/v1/wait?nodes=a&timeout=0"))
        assert (await again).status == 504, "there is room again"


async def test_a_stop_answers_who_waits_and_ends_within_its_bound(tmp_path: Path) -> None:
    """Also with a caller in mid request, whom nothing can answer."""
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings) as server:
        asking = [asyncio.create_task(ask(settings.socket, "GET", "/v1/wait?nodes=a")) for _ in range(20)]
        half = asyncio.create_task(raw(settings.socket, b"POST /v1/resume HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"))
        await until(lambda: len(core.waiting) == 20)
        async with asyncio.timeout(3):
            await server.stop()
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {503}
        assert {answer.body["error"] for answer in answers} == {"stopping, ask again"}
        assert not core.waiting
        await asyncio.gather(half, return_exceptions=True)
        assert not settings.socket.exists()


async def test_what_comes_while_we_stop_is_told_to_ask_again(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings) as server:
        server._hooks.stop()
        answers = [
            await ask(settings.socket, "POST", "/v1/resume", {"nodes": "a"}),
            await ask(settings.socket, "GET", "/v1/wait?nodes=a"),
        ]
    for answer in answers:
        assert (answer.status, answer.body["error"]) == (503, "stopping, ask again")
        assert "Retry-After: 1" in answer.head
    assert core.calls == []
    assert core.deadlines == []
