"""The command line as its users meet it: a process of its own, asking the real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from copilot import __version__
from tests.unit.server_fixture import FakeCore, folder_for_all, serving, settings_in

open_folder = pytest.fixture(folder_for_all)
GROUP = {"name": "cpu", "target": "statefulset/hpc/cpu", "replicas": 3, "pods": 3, "nodes": 10, "idle": 1, "problem": ""}


def node(name: str, phase: str, age: float, reason: str = "", jobs: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"name": name, "group": "cpu", "phase": phase, "age": age, "state": "IDLE+CLOUD", "reason": reason, "jobs": list(jobs)}


def table(*nodes: dict[str, Any], problem: str = "", **more: Any) -> dict[str, Any]:
    phases: dict[str, int] = {}
    for each in nodes:
        phases[each["phase"]] = phases.get(each["phase"], 0) + 1
    return {
        "groups": [GROUP | {"phases": phases, "problem": problem}],
        "nodes": list(nodes),
        "problems": {},
        "view_age": 0.5,
    } | more


async def copilot(*arguments: str, env: dict[str, str] | None = None) -> tuple[int | None, str, str]:
    """Exit code, stdout, stderr."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "copilot.cli", *arguments, stdout=pipe, stderr=pipe, env={"PATH": os.environ["PATH"], **(env or {})}
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def status(folder: Path, known: dict[str, Any], *arguments: str) -> tuple[int | None, str, str]:
    settings = settings_in(folder)
    async with serving(FakeCore(table=known), settings):
        return await copilot("status", "--socket", str(settings.socket), *arguments)


async def test_all_is_well(tmp_path: Path) -> None:
    known = table(node("cpu-0", "up", 7300, jobs=(7,)), node("cpu-1", "up", 5, jobs=(7,)), node("cpu-3", "pending", 12))
    code, out, err = await status(tmp_path, known)
    assert (code, err) == (0, "")
    rows = [re.split(r"  +", line) for line in out.splitlines()]
    assert rows == [
        ["GROUP", "SCALING", "UP", "COMING", "LEAVING", "HELD", "FAILED", "IDLE", "PODS", "REPLICAS", "NODES", "TARGET"],
        ["cpu", "on", "2", "1", "0", "0", "0", "1", "3", "3", "10", "statefulset/hpc/cpu"],
        [""],
        ["PHASE", "AGE", "NODES", "SLURM", "JOBS", "REASON"],
        ["pending", "12s", "cpu-3", "IDLE+CLOUD", "-", "-"],
        ["up", "2h", "cpu-[0-1]", "IDLE+CLOUD", "7", "-"],
        [""],
        ["Slurm last seen 0.5s ago"],
    ]


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (table(node("cpu-0", "failed", 3, "quota: exceeded\nquota")), "quota: exceeded quota"),
        (table(problem="patch refused"), "patch refused"),
        (table(problems={"slurm": "scontrol not found"}, view_age=None), "problem: slurm: scontrol not found"),
    ],
)
async def test_something_failed(tmp_path: Path, known: dict[str, Any], words: str) -> None:
    code, out, _ = await status(tmp_path, known)
    assert code == 1
    assert words in out


async def test_a_held_node_is_shown_and_is_no_trouble(tmp_path: Path) -> None:
    code, out, _ = await status(tmp_path, table(node("cpu-0", "held", 3)))
    assert code == 0
    assert "held" in out


async def test_for_machines(tmp_path: Path) -> None:
    known = table(*(node(f"cpu-{i}", "up", i) for i in range(1200)))
    code, out, _ = await status(tmp_path, known, "--json")
    assert code == 0
    assert json.loads(out) == known


async def test_nobody_to_ask(tmp_path: Path) -> None:
    code, out, err = await copilot("status", env={"COPILOT_SOCKET": str(tmp_path / "none")})
    assert (code, out) == (2, "")
    assert err.startswith(f"slurmctld-copilot: no answer at {tmp_path}/none: ")
    assert err.endswith("is it running? see --socket\n")
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="must be root to ask as somebody else")
async def test_a_user_who_may_not_ask_is_told_so(open_folder: Path) -> None:
    settings = settings_in(open_folder, slurm_user="54321", socket_mode=0o666)
    async with serving(FakeCore(), settings):
        # Imported first: the libraries may stand where this user cannot read.
        become = "import os, shutil, encodings.idna; from copilot.cli import main; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
        ask = f"{become}; exit(main(['status', '--socket', {str(settings.socket)!r}]))"
        code, out, err = await python(ask)
    assert (code, out) == (2, "")
    assert "only root and SlurmUser may ask here, not the user with number 65534" in err


async def test_an_answer_that_is_no_answer(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
    async with server:
        code, _, err = await copilot("status", "--socket", str(tmp_path / "s"))
    assert code == 2
    assert "SSH-2.0" in err


async def test_bad_settings_end_serve_with_all_of_them_in_one_line() -> None:
    code, out, err = await copilot("serve", "--listen", "x", "--slurm-user", "root", env={"COPILOT_TARGETS": "y"})
    assert (code, out) == (2, "")
    assert "2 bad settings: --listen='x'" in err
    assert "COPILOT_TARGETS='y'" in err
    assert len(err.splitlines()) == 1


async def test_help_is_quick_because_it_imports_no_network_libraries() -> None:
    code, out, err = await copilot("--version")
    assert (code, out, err) == (0, f"slurmctld-copilot {__version__}\n", "")
    code, out, _ = await copilot("serve", "--help")
    assert code == 0
    assert "COPILOT_POLL_QUIET" in out
    code, out, _ = await copilot("status", "--help")
    assert "exit codes:" in out
    code, out, _ = await python(
        "import copilot.cli, sys; print([m for m in ('aiohttp', 'kubernetes_asyncio', 'structlog') if m in sys.modules])"
    )
    assert out == "[]\n"


async def python(code: str) -> tuple[int | None, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()
