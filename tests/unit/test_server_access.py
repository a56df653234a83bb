"""Who is let in: users by the kernel's word, tokens, and whose socket it is. Needs root, to be somebody else."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from copilot.config import Address
from copilot.server import Server, ServerError
from tests.unit.server_fixture import FakeCore, ask, folder_for_all, request, serving, settings_in, until

NOBODY = 65534
OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="must be root to ask as somebody else")
CLIENT = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.stdin.buffer.read())
print(s.makefile("rb").read().decode())
"""


async def ask_as(uid: int, path: Path) -> str:
    """The answer to a resume as a process of this user gets it, or the traceback that ended the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CLIENT,
        str(path),
        str(uid),
        stdin=-1,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(request("POST", "/v1/resume", b'{"nodes": "a"}', "Connection: close"))
    return out.decode()


folder = pytest.fixture(folder_for_all)


@as_root
async def test_only_root_and_slurm_user_are_obeyed(folder: Path) -> None:
    core, settings = FakeCore(), settings_in(folder, slurm_user=str(OTHER), socket_mode=0o666)
    async with serving(core, settings):
        with capture_logs() as lines:
            answers = [await ask_as(uid, settings.socket) for uid in (0, OTHER, NOBODY)]
    assert [answer.split()[1] for answer in answers] == ["202", "202", "403"]
    assert f"not the user with number {NOBODY}" in answers[2]
    assert len(core.calls) == 2
    assert core.count("resume", "forbidden") == 1
    assert [(line["uid"], line["status"]) for line in lines if line["event"] == "request_refused"] == [(NOBODY, 403)]


@as_root
async def test_the_files_mode_keeps_others_from_even_connecting(folder: Path) -> None:
    core, settings = FakeCore(), settings_in(folder, slurm_user=str(OTHER))
    before = os.umask(0)
    try:
        async with serving(core, settings):
            found = settings.socket.stat()
            answers = [await ask_as(uid, settings.socket) for uid in (OTHER, NOBODY)]
    finally:
        os.umask(before)
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o660, OTHER)
    assert " 202 " in answers[0]
    assert "PermissionError" in answers[1]


async def test_a_live_daemons_socket_is_never_taken(tmp_path: Path) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    async with serving(core, settings):
        with pytest.raises(ServerError, match=r"another slurmctld-copilot serves .*copilot\.sock: stop it or set --socket"):
            await Server(FakeCore(), settings).start()
        assert (await ask(settings.socket, "POST", "/v1/resume", {"nodes": "a"})).status == 202
    assert len(core.calls) == 1


async def test_a_dead_daemons_socket_is_taken_over(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(settings.socket))
    async with serving(FakeCore(), settings):
        assert (await ask(settings.socket, "POST", "/v1/resume", {"nodes": "a"})).status == 202
    async with serving(FakeCore(), settings):
        assert (await ask(settings.socket, "POST", "/v1/resume", {"nodes": "a"})).status == 202
    assert not settings.socket.exists()


async def test_another_programs_socket_is_not_taken(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(settings.socket))
        other.listen()
        with pytest.raises(ServerError, match="another program serves"):
            await Server(FakeCore(), settings).start()
    assert settings.socket.exists()


async def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.socket.write_text("precious")
    with pytest.raises(ServerError, match="is no socket: remove it or set --socket"):
        await Server(FakeCore(), settings).start()
    assert settings.socket.read_text() == "precious"


async def test_the_token_opens_the_tcp_port_and_nothing_else_does(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("long-random-word\n")
    settings = settings_in(tmp_path, hooks_listen=Address("127.0.0.1", 0), hooks_token_file=token)
    core = FakeCore()

    async def over_tcp(*headers: str) -> int:
        assert server.hooks_address
        reader, writer = await asyncio.open_connection(*server.hooks_address)
        writer.write(request("POST", "/v1/resume", b'{"nodes": "a"}', "Connection: close", *headers))
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1])

    async with serving(core, settings) as server:
        wrong = ["", "Bearer", "Bearer ", "Bearer long-random", "Bearer long-random-word-and-more", "Basic long-random-word"]
        assert [await over_tcp(*([f"Authorization: {text}"] if text else [])) for text in wrong] == [401] * len(wrong)
        assert core.calls == []
        assert await over_tcp("Authorization: Bearer long-random-word") == 202
        assert (await ask(settings.socket, "POST", "/v1/suspend", {"nodes": "a"})).status == 202, "the socket needs no token"
    assert core.count("resume", "forbidden") == len(wrong)


async def test_an_empty_token_opens_nothing(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("\n")
    settings = settings_in(tmp_path, hooks_listen=Address("127.0.0.1", 0), hooks_token_file=token)
    with pytest.raises(ServerError, match="is empty"):
        await Server(FakeCore(), settings).start()


async def test_what_cannot_be_started_leaves_nothing_listening(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = Address(*taken.getsockname())
        settings = settings_in(tmp_path, listen=address)
        with pytest.raises(ServerError, match=f"cannot listen on {address}: .*; set --listen"):
            await Server(FakeCore(), settings).start()
    assert not settings.socket.exists()
    async with serving(FakeCore(), settings):
        await until(settings.socket.exists)
