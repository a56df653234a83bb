"""Bad requests: each a clear 4xx sentence, a log line, a count, and nothing changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from tests.unit.server_fixture import FakeCore, ask, raw, request, serving, settings_in, until


class Bad(NamedTuple):
    data: bytes
    status: int
    sentence: str
    action: str = "resume"
    outcome: str = "malformed"


def post(body: bytes, *headers: str) -> bytes:
    return request("POST", "/v1/resume", body, *headers)


CASES = {
    "not JSON": Bad(post(b"nodes=cpu-1"), 400, "not JSON"),
    "not UTF-8": Bad(post(b'{"nodes": "\xff\xfe\x80"}'), 400, "not JSON"),
    "nested without end": Bad(post(b"[" * 200_000), 400, "not JSON"),
    "no object": Bad(post(b'["cpu-1"]'), 400, "must be an object, not list"),
    "empty": Bad(post(b""), 400, "not JSON"),
    "no nodes": Bad(post(b"{}"), 400, "nodes in the body: a hostlist"),
    "nodes no text": Bad(post(b'{"nodes": ["cpu-1"]}'), 400, "nodes in the body: a hostlist"),
    "nodes blank": Bad(post(b'{"nodes": "  "}'), 400, "nodes in the body: a hostlist"),
    "no hostlist": Bad(post(b'{"nodes": "cpu-[1-"}'), 400, "nodes in the body: "),
    "unbounded": Bad(post(b'{"nodes": "n[0-999999999]"}'), 400, "nodes in the body: "),
    "wrong type": Bad(post(b'{"nodes": "cpu-1"}', "Content-Type: text/plain"), 415, "'text/plain'; send application/json"),
    "wrong method": Bad(request("GET", "/v1/resume"), 405, "/v1/resume takes POST, not 'GET'"),
    "wrong path": Bad(request("POST", "/v1/resme", b"{}"), 404, "there is no '/v1/resme'", "other"),
    "wait without nodes": Bad(request("GET", "/v1/wait"), 400, "nodes in the query: ", "wait"),
    "wait for no hostlist": Bad(request("GET", "/v1/wait?nodes=a[1-"), 400, "nodes in the query: ", "wait"),
    "wait for ever": Bad(request("GET", "/v1/wait?nodes=a&timeout=nan"), 400, "timeout in the query: 'nan'", "wait"),
    "wait backwards": Bad(request("GET", "/v1/wait?nodes=a&timeout=-1"), 400, "timeout in the query: '-1'", "wait"),
    "too large, announced": Bad(
        request("POST", "/v1/resume", None, "Content-Type: application/json", "Content-Length: 4194304"),
        413, "has 4194304 bytes, more than the 1048576", outcome="too_large",
    ),
    "too large, in chunks": Bad(
        request("POST", "/v1/resume", None, "Content-Type: application/json", "Transfer-Encoding: chunked")
        + b"200000\r\n" + b" " * 0x200000 + b"\r\n0\r\n\r\n",
        413, "the body is too large", outcome="too_large",
    ),
    "not HTTP": Bad(b"cpu-1 please\r\n\r\n", 400, "not a request of HTTP", "other"),
}  # fmt: skip


@pytest.mark.parametrize("bad", CASES.values(), ids=CASES.keys())
async def test_bad_input_is_refused_in_a_sentence_logged_and_counted(tmp_path: Path, bad: Bad) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        with capture_logs() as lines:
            answer = await raw(settings.socket, bad.data)
        assert (await ask(settings.socket, "POST", "/v1/suspend", {"nodes": "cpu-1"})).status == 202, "the server must go on"
    assert answer.status == bad.status
    assert bad.sentence in answer.body["error"]
    assert "\n" not in answer.body["error"]
    refusals = [line for line in lines if line["event"] == "request_refused"]
    assert [(line["status"], line["why"]) for line in refusals] == [(bad.status, answer.body["error"])]
    assert core.count(bad.action, bad.outcome) == 1
    assert [call.nodes for call in core.calls] == [("cpu-1",)], "only the good request may have reached the core"


HEAD = b"POST /v1/resume HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n"
SLOW = {
    "nothing": (b"", "other", "no whole request within"),
    "half a head": (HEAD[:40], "other", "no whole request within"),
    "half a body": (HEAD + b'{"nodes": "cpu-1"', "resume", "the body was not complete within"),
}


@pytest.mark.parametrize(("data", "action", "sentence"), SLOW.values(), ids=SLOW.keys())
async def test_a_slow_caller_is_told_so_and_let_go(tmp_path: Path, data: bytes, action: str, sentence: str) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings, patience=0.2):
        with capture_logs() as lines:
            answer = await raw(settings.socket, data)
    assert answer.status == 408
    assert sentence in answer.body["error"]
    assert [line["outcome"] for line in lines if line["event"] == "request_refused"] == ["slow"]
    assert core.count(action, "slow") == 1
    assert core.calls == []


async def test_a_caller_who_hangs_up_in_mid_body_changes_nothing(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        _, writer = await asyncio.open_unix_connection(str(settings.socket))
        writer.write(HEAD + b'{"nodes": "cpu-1"')
        await writer.drain()
        writer.close()
        await until(lambda: core.count("resume", "aborted") == 1)
    assert core.calls == []


async def test_a_long_connection_may_send_request_after_request(tmp_path: Path) -> None:
    """The deadline for the first head must not hit a connection that has asked already."""
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings, patience=0.1):
        with capture_logs() as lines:
            loop = asyncio.get_running_loop()
            start = loop.time()
            reader, writer = await asyncio.open_unix_connection(str(settings.socket))
            while loop.time() < start + 0.3:
                writer.write(request("GET", "/v1/groups"))
                assert (await reader.readuntil(b"}\n")).startswith(b"HTTP/1.1 200")
            writer.close()
    assert [line for line in lines if line["event"] == "request_refused"] == []


async def test_what_our_own_code_did_not_expect_is_a_500_with_the_cause_in_the_log_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret of the house")

    monkeypatch.setattr(core, "hook", broken)
    async with serving(core, settings):
        with capture_logs() as lines:
            answer = await ask(settings.socket, "POST", "/v1/resume", {"nodes": "cpu-1"})
    assert answer.status == 500
    assert "secret" not in str(answer.body)
    assert [type(line["exc_info"]) for line in lines if line["event"] == "request_failed"] == [ZeroDivisionError]
    assert core.count("resume", "error") == 1
