"""A stop, a second daemon, and callers who may not ask."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e.begun import begun_with, ready, second_daemon
from tests.e2e.conftest import make
from tests.e2e.pace import OPTIONS, SETTINGS, looked
from tests.lab import workloads
from tests.lab.cluster import Cluster

pytestmark = pytest.mark.any_api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def test_two_daemons_on_one_socket(lab: Cluster) -> None:
    """The second says who is in the way, and ends; the first does not notice."""
    second = second_daemon(lab)
    await second.start(ready=False)
    assert await second.ended() == 1
    [line] = second.log()
    assert (line["event"], line["error"]) == (
        "cannot_listen",
        f"another slurmctld-copilot serves {lab.copilot.socket}: stop it or set --socket",
    )
    assert (await lab.copilot.status())[0] == 0


async def test_told_to_stop_it_answers_who_waits_and_sends_what_was_asked_for(lab: Cluster) -> None:
    """Within 5 s. The next hint would have had to wait for as long before it became a patch."""
    lab.containers.hold("cpu-2", "cpu-3")
    await lab.copilot.stop()
    await lab.copilot.start(coalesce="5")
    jobs = [await lab.sbatch("--nodelist=cpu-2")]
    await lab.containers.arrived["cpu-2"].wait()
    jobs.append(await lab.sbatch("--nodelist=cpu-3"))
    await lab.copilot.until_logged("hook", action="resume", nodes="cpu-3")
    await lab.copilot.until("both prologs to wait", lambda: _waiting(lab, 2))
    assert await lab.copilot.stop(grace=5) == 0
    assert len(lab.copilot.log("wait", state="stopping")) == 2
    assert workloads.asked(Kind.STATEFUL_SET, await lab.target("cpu")) == {2, 3}
    await lab.copilot.start()
    lab.containers.release()
    for job in jobs:
        await lab.slurm.wait_job(job, "COMPLETED")
    assert [lab.containers.starts[name] for name in ("cpu-2", "cpu-3")] == [1, 1]


async def _waiting(lab: Cluster, prologs: int) -> bool:
    return await lab.copilot.metric("slurm_copilot_waits") == prologs


async def _asked(lab: Cluster) -> tuple[int, object]:
    """All of the target but its status, which its controller may write at any time."""
    target = await lab.target("cpu")
    return target["metadata"]["generation"], target["spec"]


async def _curl_as(lab: Cluster, user: str) -> tuple[int, str]:
    """A resume of cpu-4 by that user: curl's exit code and what it printed."""
    argv = [
        "setpriv",
        f"--reuid={user}",
        "--regid=65534",
        "--clear-groups",
        "curl",
        "-sS",
        "--unix-socket",
        str(lab.copilot.socket),
    ]
    argv += [
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"nodes": "cpu-4"}',
        "-w",
        "\n%{http_code}",
        "http://copilot/v1/resume",
    ]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe, env={"PATH": os.environ["PATH"]})
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + err).decode()


async def test_who_is_neither_root_nor_slurm_user_changes_nothing(lab: Cluster) -> None:
    """Kept out by the socket's mode, and where that is laxer by the kernel's word for who calls."""
    before = await _asked(lab)
    assert (await _curl_as(lab, "nobody"))[0] == 7
    async with begun_with(lab, socket_mode="0666") as so_far:
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        code, said = await _curl_as(lab, "nobody")
        body, _, status = said.rpartition("\n")
        assert (code, status) == (0, "403")
        assert "only root and SlurmUser may ask here" in json.loads(body)["error"]
        await looked(lab)
        assert await _asked(lab) == before
        events = [line.get("event") for line in lab.copilot.log()[len(so_far) :]]
        assert ("hook" in events, events.count("request_refused")) == (False, 1)
        assert await lab.copilot.metric("slurm_copilot_hook_requests_total", action="resume", outcome="forbidden") == 1
        lab.audit.hinted("cpu-4")
        assert (await _curl_as(lab, "slurm"))[1].endswith("\n202")
    await lab.settle(off=["cpu-4"])
