"""The hook scripts as slurmctld runs them, against the real server and against bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from copilot.config import Address
from copilot.model import Verb
from tests.unit.hook_fixture import SCRIPTS, Hooks, Start, reply, speaking
from tests.unit.server_fixture import FakeCore, folder_for_all, serving, settings_in, until

open_folder = pytest.fixture(folder_for_all)

both = pytest.mark.parametrize("how", list(Start))


@both
@pytest.mark.parametrize("verb", list(Verb))
async def test_the_hostlist_arrives_and_one_line_is_logged(tmp_path: Path, verb: Verb, how: Start) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await hooks.run(f"slurm-{verb}.sh", "cpu-[0-2],gpu-[01,03]", how=how)
    assert ended.code == 0
    (call,) = core.calls
    assert (call.verb, call.nodes) == (verb, ("cpu-0", "cpu-1", "cpu-2", "gpu-01", "gpu-03"))
    (line,) = ended.log.splitlines()
    assert f" slurm-{verb}.sh[" in line
    assert call.request_id in line
    assert ended.out == ""


@both
async def test_arguments_of_an_administrator_before_the_hostlist_do_not_matter(tmp_path: Path, how: Start) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", "--cloud", "two words", "cpu-[0-1]", how=how)
    assert ended.code == 0
    assert core.calls[0].nodes == ("cpu-0", "cpu-1")


@pytest.mark.parametrize("arguments", [(), ("",), ("cpu-1\ncpu-2",)])
async def test_a_call_without_a_hostlist_says_so(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = await Hooks.installed(tmp_path).run("slurm-resume.sh", *arguments)
    assert ended.code == 2
    (line,) = ended.log.splitlines()
    assert line.endswith("no hostlist among the arguments; slurmctld calls this with one")


async def test_the_longest_hostlist_that_the_kernel_passes(tmp_path: Path) -> None:
    names = [f"n{i:05}" for i in range(0, 58_000, 3)]
    text = ",".join(names)
    text = text[: text.rindex(",", 0, 131_071)]
    assert 131_000 < len(text) < 131_072
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await hooks.run("slurm-suspend.sh", text)
    assert ended.code == 0
    assert ",".join(core.calls[0].nodes) == text


V22 = '{"all_nodes": "a[1-2]", "jobs": [{"extra": null, "job_id": 5, "nodes": "a[1-2]", "oversubscribe": "OK"}]}'
V23 = '{"all_nodes_resume": "a[1-2]", "jobs": [{"job_id": 5, "nodes_alloc": "a[0-2]", "nodes_resume": "a[1-2]", "new": {"x": "}"}}]}\n'
FILES: dict[str, tuple[bytes | None, tuple[int, ...] | None]] = {
    "absent": (None, None),
    "empty": (b"", None),
    "cut": (V22[:50].encode(), None),
    "cut after a brace": (b'{"jobs": [{"job_id": 5}', None),
    "no JSON at all": (b"{ nodes }", None),
    "zero bytes": (b"{\0\0}", None),
    "no jobs": (b'{"all_nodes_resume": "a[1-2]", "jobs": []}', None),
    "null": (b"null", None),
    "as of 22.05": (V22.encode(), (5,)),
    "as of 23.02 and later": (V23.encode(), (5,)),
    "larger than an argument": (V22.replace('"extra": null', '"extra": "' + "x" * 300_000 + '"').encode(), (5,)),
    "larger than --max-body": (V22.replace('"extra": null', '"extra": "' + "x" * 1_100_000 + '"').encode(), None),
}


@pytest.mark.parametrize(("content", "jobs"), FILES.values(), ids=FILES.keys())
async def test_whatever_the_resume_file_is_the_nodes_are_resumed(
    tmp_path: Path, content: bytes | None, jobs: tuple[int, ...] | None
) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    file = tmp_path / "resume file"
    if content is not None:
        file.write_bytes(content)
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", "a[1-2]", env={"SLURM_RESUME_FILE": str(file)})
    assert ended.code == 0, ended
    (call,) = core.calls
    assert call.nodes == ("a1", "a2")
    assert call.jobs == ({"a1": jobs, "a2": jobs} if jobs else {})


async def test_a_resume_file_that_cannot_be_read_does_not_matter(tmp_path: Path) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", "a1", env={"SLURM_RESUME_FILE": str(tmp_path)})
    assert ended.code == 0
    assert [call.nodes for call in core.calls] == [("a1",)]


REFUSED = {
    "foreign-[1-2]": (422, "none of the nodes was accepted"),
    'a"b\\c': (400, "nodes in the body: "),
    "n[0-999999999]": (400, ""),
}


@pytest.mark.parametrize("hostlist", REFUSED)
async def test_a_refusal_is_told_once_and_not_repeated(tmp_path: Path, hostlist: str) -> None:
    status, sentence = REFUSED[hostlist]
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", hostlist)
    assert ended.code == 1
    (line,) = ended.log.splitlines()
    assert f"nothing was accepted, status {status}: " in line
    assert sentence in line
    assert core.count("resume", "unacceptable") + core.count("resume", "malformed") == 1


async def test_no_copilot_no_longer_than_a_few_seconds(tmp_path: Path) -> None:
    ended = await Hooks.installed(tmp_path).run("slurm-resume.sh", "cpu-1")
    assert ended.code == 1
    (line,) = ended.log.splitlines()
    assert "nothing was accepted, status 000: curl: (7)" in line


async def test_a_copilot_that_hangs_does_not_hold_the_hook(tmp_path: Path) -> None:
    hooks = Hooks.installed(tmp_path)
    async with speaking(tmp_path / "copilot.sock", lambda _: None) as heads:
        ended = await hooks.run("slurm-suspend.sh", "cpu-1")
    assert ended.code == 1
    assert "status 000: curl: (28)" in ended.log
    assert 1 < len(heads) < 5, "tried again, within a bound"


@pytest.mark.parametrize(
    "first", [reply(503, "stopping\n"), reply(429, "full\n"), b""], ids=["stopping", "full", "killed in mid request"]
)
async def test_a_copilot_that_comes_back_gets_the_hint(tmp_path: Path, first: bytes) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with speaking(settings.socket, lambda _: first) as heads:
        running = await hooks.start("slurm-resume.sh", "cpu-1")
        await until(lambda: heads)
    async with serving(core, settings):
        ended = await hooks.end(running)
    assert ended.code == 0
    assert [call.nodes for call in core.calls] == [("cpu-1",)]
    (line,) = ended.log.splitlines()
    assert core.calls[0].request_id in line


@both
async def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, how: Start) -> None:
    core, settings = FakeCore(), settings_in(tmp_path)
    hooks = Hooks.installed(tmp_path, COPILOT_HOOK_LOG=tmp_path)
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", "cpu-1", how=how)
    assert ended.code == 0
    assert [call.nodes for call in core.calls] == [("cpu-1",)]
    assert (core.calls[0].request_id in ended.out) == (how is Start.NEW), "to stderr where slurmctld gives one"


async def test_sixteen_hooks_at_once(tmp_path: Path) -> None:
    core, settings, hooks = FakeCore(), settings_in(tmp_path), Hooks.installed(tmp_path)
    async with serving(core, settings):
        ended = await asyncio.gather(*(hooks.run("slurm-resume.sh", f"cpu-{i}") for i in range(16)))
    assert {end.code for end in ended} == {0}
    assert {call.nodes for call in core.calls} == {(f"cpu-{i}",) for i in range(16)}
    assert len((tmp_path / "hooks.log").read_text().splitlines()) == 16


async def test_over_tcp_with_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("long-random-word\n")
    core = FakeCore()
    settings = settings_in(tmp_path, hooks_listen=Address("127.0.0.1", 0), hooks_token_file=token)
    async with serving(core, settings) as server:
        hooks = Hooks.installed(tmp_path, COPILOT_URL=f"http://{server.hooks_address}", COPILOT_TOKEN_FILE=token)
        good = await hooks.run("slurm-resume.sh", "cpu-1")
        token.write_text("wrong\n")
        bad = await hooks.run("slurm-resume.sh", "cpu-2")
    assert (good.code, bad.code) == (0, 1)
    assert [call.nodes for call in core.calls] == [("cpu-1",)]
    assert "status 401" in bad.log


async def test_without_hooks_conf_the_defaults_hold(tmp_path: Path) -> None:
    hooks = Hooks.installed(tmp_path)
    (tmp_path / "scripts" / "hooks.conf").unlink()
    core, settings = FakeCore(), settings_in(tmp_path)
    env = {"COPILOT_SOCKET": str(settings.socket), "COPILOT_HOOK_LOG": "/nonexistent/log"}
    async with serving(core, settings):
        ended = await hooks.run("slurm-resume.sh", "cpu-1", how=Start.NEW, env=env)
    assert ended.code == 0
    assert json.loads(ended.out.split(": ", 1)[1])["accepted"] == "cpu-1"


def test_slurmctld_accepts_the_files() -> None:
    """Slurm turns power saving off for a hook that others may write or SlurmUser may not execute. What git keeps is the x bit."""
    programs = sorted(SCRIPTS.glob("slurm-*.sh"))
    assert [path.name for path in programs] == ["slurm-prolog.sh", "slurm-resume-fail.sh", "slurm-resume.sh", "slurm-suspend.sh"]
    for path in programs:
        mode = path.stat().st_mode
        assert mode & stat.S_IXOTH
        assert not mode & stat.S_IWOTH
        assert path.read_text().startswith(("#!/bin/bash\n", "#!/bin/sh\n"))


@pytest.mark.skipif(os.geteuid() != 0, reason="must be root to run a hook as somebody else")
async def test_a_hook_of_another_user_is_refused_with_the_reason_in_its_log(open_folder: Path) -> None:
    hooks = Hooks.installed(open_folder)
    core, settings = FakeCore(), settings_in(open_folder, slurm_user="54321", socket_mode=0o666)
    open_folder.chmod(0o777)
    command = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        str(open_folder / "scripts" / "slurm-resume.sh"),
        "cpu-1",
    ]
    pipe = asyncio.subprocess.PIPE
    async with serving(core, settings):
        process = await asyncio.create_subprocess_exec(*command, env={"PATH": "/usr/bin:/bin"}, stdout=pipe)
        ended = await hooks.end(process)
    assert ended.code == 1
    assert "status 403" in ended.log
    assert "not the user with number 65534" in ended.log
    assert core.calls == []


async def test_the_log_is_kept_short(tmp_path: Path) -> None:
    """One line is more than the limit here, so each call's line makes the one before it the old one."""
    hooks = Hooks.installed(tmp_path, COPILOT_HOOK_LOG_MAX=20)
    for number in range(3):
        assert (await hooks.run("slurm-resume.sh", f"cpu-{number}\n")).code == 2
    assert not (tmp_path / "hooks.log").exists()
    (line,) = (tmp_path / "hooks.log.1").read_text().splitlines()
    assert "no hostlist among the arguments" in line


async def test_a_short_log_goes_on(tmp_path: Path) -> None:
    hooks = Hooks.installed(tmp_path)
    for _ in range(3):
        ended = await hooks.run("slurm-resume.sh", "")
    assert len(ended.log.splitlines()) == 3
    assert not (tmp_path / "hooks.log.1").exists()
