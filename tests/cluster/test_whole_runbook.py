"""docs/runbook.md: every command in its text is run by a shell whose kubectl is the administrator's, in a cluster with a job on a node and a
copilot that has been restarted once."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.node.layout import need
from tests.lab.whole import overlay
from tests.unit.documents import TREE, blocks, read

TEXT = read("docs/runbook.md")
(FUNCTION,) = (block for block in blocks(TEXT, "") if "copilot()" in block)
# The deletion comes last: it takes the pod away that the others look at.
COMMANDS = sorted(set(re.findall(r"`((?:kubectl|copilot) [^`]+)`", TEXT)), key=lambda command: (" delete " in command, command))
NODE, GROUP = "cpu-6", "cpu"
# 1 of grep: nothing of the kind has happened here; 1 of status: something has failed.
MAY_BE_ONE = ("| grep ", "copilot status")


@pytest.fixture(scope="module")
def seen(whole: Whole) -> Iterator[Whole]:
    """A node that runs a job, and a copilot whose container has a predecessor."""

    def restarts() -> int:
        (head,) = (pod for pod in whole.pods() if pod["metadata"]["name"] == "head-0")
        statuses: list[dict[str, Any]] = head["status"]["containerStatuses"]
        return sum(one["restartCount"] for one in statuses if one["name"] == "copilot" and one["ready"])

    job = whole.submit(f"-w {NODE}", "sleep 600")
    whole.until_state(job, "RUNNING", 90)
    before = restarts()
    overlay.execute(whole.node, "head-0", "sh", "-c", "kill 1", container="copilot")
    until(lambda: restarts() > before, "the copilot to be there again", 60)
    yield whole
    whole.head(f"scancel {job}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works(seen: Whole, command: str) -> None:
    host = seen.kubectl("get", "nodes", "-o", "name").partition("/")[2].strip()
    for word, value in (("NODE", NODE), ("GROUP", GROUP), ("HOST", host)):
        command = re.sub(rf"\b{word}\b", value, command)
    path = f"{need('kubectl').parent}:{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(seen.node.kubeconfig), "PATH": path}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail\n{FUNCTION}\n{command}"],
        cwd=Path(TREE),
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    allowed = {0, 1} if any(words in command for words in MAY_BE_ONE) else {0}
    assert done.returncode in allowed, done.stdout + done.stderr
    assert done.stdout or done.returncode, "says nothing"
