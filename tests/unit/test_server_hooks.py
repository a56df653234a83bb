"""Good requests: what the core is told, and what the caller and the log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from copilot.model import Verb
from tests.unit.server_fixture import FakeCore, ask, serving, settings_in


@pytest.mark.parametrize("verb", list(Verb))
async def test_a_hook_is_taken_in_and_answered_with_what_was_accepted(tmp_path: Path, verb: Verb) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        answer = await ask(settings.socket, "POST", f"/v1/{verb}", {"nodes": "cpu-[0-2]", "resume_file": None})
    (call,) = core.calls
    assert (call.verb, call.nodes, call.jobs) == (verb, ("cpu-0", "cpu-1", "cpu-2"), {})
    assert answer.status == 202
    assert answer.body == {"request_id": call.request_id, "accepted": "cpu-[0-2]", "ignored": []}
    assert core.count(verb, "accepted") == 1


async def test_one_foreign_name_does_not_spoil_the_others(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        with capture_logs() as lines:
            answer = await ask(settings.socket, "POST", "/v1/resume", {"nodes": "cpu-1,foreign-[1-2]"})
    assert answer.status == 202
    assert answer.body["accepted"] == "cpu-1"
    assert answer.body["ignored"] == [{"nodes": "foreign-[1-2]", "reason": "no worker group has this name"}]
    assert core.count("resume", "partly") == 1
    (line,) = [line for line in lines if line["event"] == "hook"]
    assert (line["nodes"], line["ignored"]) == ("cpu-1", answer.body["ignored"])


async def test_nothing_acceptable_is_422_with_the_reasons(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        answer = await ask(settings.socket, "POST", "/v1/resume", {"nodes": "foreign-[1-2]"})
    assert answer.status == 422
    assert answer.body["ignored"] == [{"nodes": "foreign-[1-2]", "reason": "no worker group has this name"}]
    assert "none of the nodes" in answer.body["error"]
    assert core.count("resume", "unacceptable") == 1


async def test_a_node_named_twice_is_told_once(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        await ask(settings.socket, "POST", "/v1/resume", {"nodes": "cpu-1,cpu-[0-1]"})
    assert core.calls[0].nodes == ("cpu-1", "cpu-0")


async def test_jobs_of_the_resume_file_reach_the_core_for_the_nodes_asked_for(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    file = {
        "all_nodes_resume": "cpu-[0-1]",
        "jobs": [{"job_id": 7, "nodes_resume": "cpu-[0-1],cpu-9"}, {"job_id": 8, "nodes_resume": "cpu-1"}],
    }
    async with serving(core, settings):
        with capture_logs() as lines:
            await ask(settings.socket, "POST", "/v1/resume", {"nodes": "cpu-[0-1]", "resume_file": file})
    assert core.calls[0].jobs == {"cpu-0": (7,), "cpu-1": (7, 8)}
    assert [line["jobs"] for line in lines if line["event"] == "hook"] == [[7, 8]]


async def test_sixteen_hooks_at_once_lose_nothing(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        answers = await asyncio.gather(*(ask(settings.socket, "POST", "/v1/resume", {"nodes": f"cpu-{i}"}) for i in range(16)))
    assert {answer.status for answer in answers} == {202}
    assert {call.nodes for call in core.calls} == {(f"cpu-{i}",) for i in range(16)}
    assert len({call.request_id for call in core.calls}) == 16


async def test_the_node_table_comes_whole_though_written_in_pieces(tmp_path: Path) -> None:
    rows = [{"name": f"cpu-{i}", "phase": "up"} for i in range(1201)]
    core, settings = FakeCore(table={"groups": [{"name": "cpu"}], "nodes": rows}), settings_in(tmp_path)
    async with serving(core, settings):
        reader, writer = await asyncio.open_unix_connection(str(settings.socket))
        writer.write(b"GET /v1/nodes HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        groups = await ask(settings.socket, "GET", "/v1/groups")
    assert head.startswith(b"HTTP/1.0 200")
    told = json.loads(body)
    assert told["nodes"] == rows
    assert told["groups"] == [{"name": "cpu"}]
    assert groups.body["groups"] == [{"name": "cpu"}]
    assert "nodes" not in groups.body
