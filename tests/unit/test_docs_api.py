"""docs/api.md: every example is run, with curl on the real server over the real loop; every table is compared with the code."""

from __future__ import annotations

import ast
import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from copilot.server import Server
from tests.unit.documents import TREE, blocks, examples, read, table, words
from tests.unit.known_world import known_world
from tests.unit.server_fixture import settings_in
from tests.unit.test_server_wait import ANSWERS

API = read("docs/api.md")
EXAMPLES = examples(API)


def masked(value: Any) -> Any:
    """Durations and ids differ from run to run; all else must be as it is shown."""
    if isinstance(value, dict):
        return {key: "id" if key == "request_id" and each else masked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each) for each in value]
    return "seconds" if isinstance(value, float) else value


def parsed(text: str) -> Any:
    """An answer in JSON and its status, or the text itself."""
    body, _, status = text.strip().rpartition("\n")
    return (masked(json.loads(body)), int(status)) if body else status


async def run(command: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """What the example prints, and the snapshot of the loop that was asked."""
    settings = settings_in(folder)
    loop = known_world(settings)
    server = Server(loop, settings)
    await server.start()
    try:
        assert server.metrics_address is not None
        script = blocks(API, "sh")[0] + command.replace(":9817/", f":{server.metrics_address.port}/")
        env = {"PATH": os.environ["PATH"], "COPILOT_SOCKET": str(settings.socket)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("bash", "-c", script, env=env, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        return out.decode(), loop.snapshot()
    finally:
        await server.stop()


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command[:60] for command, _ in EXAMPLES])
async def test_an_example_prints_what_is_shown_below_it(command: str, shown: str, tmp_path: Path) -> None:
    printed, _ = await run(command, tmp_path)
    assert parsed(printed) == parsed(shown)


def test_every_path_has_an_example() -> None:
    commands = " ".join(command for command, _ in EXAMPLES)
    for path in ("/v1/resume", "/v1/suspend", "/v1/wait", "/v1/nodes", "/healthz", "/readyz"):
        assert path in commands


async def test_the_keys_of_the_tables_are_those_of_the_snapshot(tmp_path: Path) -> None:
    _, snapshot = await run("true", tmp_path)

    def told(first: str) -> set[str]:
        return {key for row in table(API, first) for key in words(row[0])}

    assert told("key of a group") == snapshot["groups"][0].keys()
    assert told("key of a node") == snapshot["nodes"][0].keys()
    assert told("other key") == snapshot.keys() - {"groups", "nodes"}


def test_the_states_of_a_wait_are_told_with_their_statuses() -> None:
    told = {words(row[0])[0]: int(row[1]) for row in table(API, "answer")}
    assert told == {state: status for state, (_, status, _) in ANSWERS.items()}


def test_the_refusals_are_those_of_the_code() -> None:
    """Each is raised with its status and its outcome as constants, so the source tells them all."""
    raised = set()
    for source in sorted((TREE / "copilot/server").glob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "RefusedError":
                status, outcome = node.args[:2]
                if isinstance(status, ast.Constant) and isinstance(outcome, ast.Attribute):
                    raised.add((str(status.value), outcome.attr.lower()))
    told = {(status, outcome) for status, outcome, _ in table(API, "status")}
    assert len(raised) > 8
    assert told == raised
