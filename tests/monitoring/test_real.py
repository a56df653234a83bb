"""Each alert fired once by breaking what it is about, on real Slurm and a real Prometheus; and the dashboard's expressions on the same data."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio

from tests.e2e.hook_script import instead
from tests.lab.cluster import Cluster
from tests.lab.embedded.faults import Action
from tests.lab.kubelet import GOOD, Behaviour
from tests.lab.prometheus import promtool
from tests.monitoring.conftest import rules
from tests.monitoring.dashboard import filled, load
from tests.monitoring.picture import draw
from tests.monitoring.scraped import Scraped, scraped

pytestmark = pytest.mark.asyncio(loop_scope="module")
WINDOW = "20s"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where SlurmUser may go, which pytest's own folders do not let him."""
    made = Path(tempfile.mkdtemp(prefix="copilot-mon-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(folder: Path) -> AsyncIterator[Scraped]:
    async with scraped(os.environ.get("COPILOT_SLURM", "22.05"), folder) as made:
        yield made


@pytest.fixture(scope="module")
def fired() -> set[str]:
    """The alerts that tests have seen firing."""
    return set()


async def fires(lab: Scraped, fired: set[str], name: str) -> list[Mapping[str, str]]:
    """Waits until the alert fires; its labels, once for each of its series that does."""
    now = await lab.prometheus.until_firing(name, seconds=90)
    fired.add(name)
    return now[name]


async def test_promtool_finds_no_fault_with_the_real_output(lab: Scraped) -> None:
    await lab.cluster.run_job("--nodelist=cpu-0")
    assert promtool("check", "metrics", text=(await lab.cluster.copilot.get("/metrics"))[1]) == ""


async def test_no_alert_fires_while_all_is_well(lab: Scraped) -> None:
    """Each rule has been evaluated on the real series, and gave nothing."""
    await lab.prometheus.until_quiet()
    evaluated = await lab.prometheus.rules()
    assert evaluated.keys() == {rule["alert"] for rule in rules()}
    assert set(evaluated.values()) == {"ok"}


async def test_hooks_go_wrong_and_nodes_are_slow(lab: Scraped, fired: set[str]) -> None:
    """A resume hook that is lost, a suspend hook that names strangers, an image that takes its time."""
    lab.cluster.kubelet.behave("cpu-2", Behaviour(start_seconds=7))
    # Each is waited for from the beginning: with windows of seconds the first is over before the last begins.
    told = asyncio.gather(
        *(fires(lab, fired, f"SlurmCopilot{name}") for name in ("HookErrors", "DriftRepaired", "ColdStartSlow"))
    )
    with instead(lab.cluster, "slurm-resume.sh", "exit 1"):
        jobs = asyncio.gather(*(lab.cluster.run_job(f"--nodelist=cpu-{index}") for index in (1, 2)))
        code, _ = await lab.cluster.hook("slurm-suspend.sh", "elsewhere-1")
        assert code == 1
        await jobs
    lab.cluster.kubelet.behave("cpu-2", GOOD)
    errors, repairs, slow = await told
    assert ("suspend", "unacceptable") in {(labels["action"], labels["outcome"]) for labels in errors}
    assert "hooks that were lost" in {labels["what"] for labels in repairs}
    assert {labels["group"] for labels in slow} == {"cpu"}


async def test_somebody_else_scales_the_set(lab: Scraped, fired: set[str]) -> None:
    names = [f"cpu-{index}" for index in range(4)]
    await lab.cluster.settle(off=names)
    lab.cluster.containers.mute.update(names)
    lab.cluster.audit.hinted(*names)
    await lab.cluster.patch_target("cpu", {"spec": {"replicas": 4, "ordinals": {"start": 0}}})
    await fires(lab, fired, "SlurmCopilotOrphans")
    await lab.cluster.settle(off=names)
    lab.cluster.containers.mute.clear()


async def test_a_hold_is_forgotten(lab: Scraped, fired: set[str]) -> None:
    await lab.cluster.patch_target("cpu", {"metadata": {"annotations": {"slurmctld-copilot/hold": "maintenance"}}})
    [held] = await fires(lab, fired, "SlurmCopilotGroupHeld")
    assert held["group"] == "cpu"
    await lab.cluster.patch_target("cpu", {"metadata": {"annotations": {"slurmctld-copilot/hold": None}}})
    await lab.prometheus.until_quiet("SlurmCopilotGroupHeld")


async def test_slurmctld_is_away(lab: Scraped, fired: set[str]) -> None:
    """That nothing is decided then is no second alert."""
    await lab.cluster.slurm.stop_slurmctld()
    await fires(lab, fired, "SlurmCopilotSlurmctldUnreachable")
    assert "SlurmCopilotLoopStalled" not in await lab.prometheus.firing()
    await lab.cluster.slurm.start_slurmctld()
    await lab.prometheus.until_quiet("SlurmCopilotSlurmctldUnreachable", "SlurmCopilotLoopStalled")


async def test_the_api_server_is_away(lab: Scraped, fired: set[str]) -> None:
    async with lab.cluster.api_away():
        seen = await fires(lab, fired, "SlurmCopilotKubernetesUnreachable")
        assert {labels["resource"] for labels in seen} <= {"pods", "statefulset", "kruise", "slurmcluster"}
    await lab.prometheus.until_quiet("SlurmCopilotKubernetesUnreachable")


async def test_the_copilot_is_down_and_then_may_not_read(lab: Scraped, fired: set[str]) -> None:
    await lab.cluster.copilot.stop()
    [down] = await fires(lab, fired, "SlurmCopilotDown")
    assert down["namespace"] == "slurm"
    assert lab.cluster.embedded is not None
    fault = lab.cluster.embedded.faults.add(Action.STATUS, verb="list|watch", path="/pods", status=403, times=None)
    await lab.start(ready=False)
    await fires(lab, fired, "SlurmCopilotLoopStalled")
    assert "SlurmCopilotSlurmctldUnreachable" not in await lab.prometheus.firing()
    lab.cluster.embedded.faults.remove(fault)
    await lab.cluster.copilot.stop()
    await lab.start()
    await lab.prometheus.until_quiet("SlurmCopilotDown", "SlurmCopilotLoopStalled")


async def test_nodes_fail_until_no_more_are_started(lab: Scraped, fired: set[str]) -> None:
    """Their slurmd never starts. One more node then waits behind the breaker, and is stuck."""
    names = [f"cpu-{index}" for index in range(10, 17)]
    lab.cluster.containers.mute.update(names)
    job = await submitted(lab.cluster, "--nodelist=cpu-[10-15]", "--nodes=6")
    failing, _ = await asyncio.gather(fires(lab, fired, "SlurmCopilotNodeFailures"), fires(lab, fired, "SlurmCopilotBreakerOpen"))
    assert {labels["reason"] for labels in failing} == {"registration_timeout"}
    waiting = await submitted(lab.cluster, "--nodelist=cpu-16")
    stuck = await fires(lab, fired, "SlurmCopilotNodesStuck")
    assert "requested" in {labels["phase"] for labels in stuck}
    await lab.cluster.slurm.run("scancel", str(job), str(waiting))
    lab.cluster.containers.mute.clear()


async def submitted(cluster: Cluster, *argv: str) -> int:
    """A job that the test cancels."""
    job = await cluster.sbatch(*argv)
    cluster.audit.may_end(job, "CANCELLED")
    return job


async def test_every_alert_was_seen_firing(fired: set[str]) -> None:
    """After the others of this module."""
    if not fired:
        pytest.skip("run with the other tests of the module")
    assert fired == {rule["alert"] for rule in rules()}


async def test_every_expression_of_the_dashboard_returns_data(lab: Scraped) -> None:
    """Over the time of the tests before, or of one job where there were none. Its group is one that no test has broken."""
    before = await lab.cluster.copilot.metric("slurm_copilot_node_ready_seconds_count")
    await lab.cluster.run_job("--partition=gpu", "--nodelist=demo-worker-gpu-0")
    await lab.prometheus.until(f"sum(slurm_copilot_node_ready_seconds_count) > {before:g}")
    panels = []
    for panel in load():
        asked = [filled(expression, window=WINDOW) for expression, _ in panel.targets]
        given = [await lab.prometheus.range(one, lab.began, time.time(), 1) for one in asked]
        panels.append((panel, given))
        for expression, found in zip(asked, given, strict=True):
            values = [value for series in found for _, value in series["values"]]
            assert [value for value in values if value != "NaN"], f"{panel.title}: nothing comes of {expression}"
    picture = draw(panels, lab.began, time.time())
    page = ElementTree.fromstring(picture)  # noqa: S314 - our own
    assert {panel.title for panel, _ in panels} <= {node.text for node in page.iter()}
    if path := os.environ.get("COPILOT_PICTURE"):
        Path(path).write_text(picture)
