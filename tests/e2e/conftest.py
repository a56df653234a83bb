"""The end-to-end tier: everything real but the kubelet, for one Slurm version and one API server, named by COPILOT_SLURM and
COPILOT_KUBERNETES. Run it inside tests/lab/isolated.

A module starts one cluster (its fixture `cluster`); each test takes it as `lab`, in which every node is off and nothing is left of the test
before. Afterwards all sides must agree, no job be harmed, and docs/logs.md tell of every line in the log. After a test that failed the
cluster is made anew, so that one failure stays one. What does not depend on the API server is marked `any_api` and runs with the embedded one
only; `any_slurm` likewise with 22.05 only; `embedded` needs what only the embedded one can do, `real` what only a real control plane does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio

from tests.lab.cluster import Cluster
from tests.lab.kubelet import GOOD
from tests.lab.rest import rest
from tests.lab.slurm_conf import slurmctld_parameters
from tests.unit.log_table import surprise

SLURM = os.environ.get("COPILOT_SLURM", "22.05")
KUBERNETES: Literal["embedded", "real"] = "real" if os.environ.get("COPILOT_KUBERNETES") == "real" else "embedded"
MARKS = {
    "any_api": "does not depend on the API server",
    "any_slurm": "does not depend on the Slurm version",
    "embedded": "needs faults that only the embedded API server has",
    "real": "needs what only the real API server does",
}
# slurmctld's parameters: suspended nodes are left as they were (drained, say), or, as recommended, made idle.
LEFT_AS_THEY_ARE = slurmctld_parameters(SLURM, "power_save_interval=1")
MADE_IDLE = slurmctld_parameters(SLURM, "power_save_interval=1", "idle_on_node_suspend")
_FAILED: pytest.StashKey[bool] = pytest.StashKey()
_BROKEN: pytest.StashKey[bool] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    for mark, words in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {words}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One event loop a module, for its cluster; and what another combination runs is left to that one."""
    left = {"any_api", "embedded"} if KUBERNETES == "real" else {"real"}
    left |= {"any_slurm"} if SLURM != "22.05" else set()
    ours = [item for item in items if "e2e" in item.path.parts]
    for item in ours:
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
    away = [item for item in ours if any(item.get_closest_marker(mark) for mark in left)]
    if away:
        config.hook.pytest_deselected(items=away)
        items[:] = [item for item in items if item not in away]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    assert isinstance(report, pytest.TestReport)
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Where SlurmUser may go, which pytest's own folders do not let him. Kept, for its logs, when a test has failed."""
    made = Path(tempfile.mkdtemp(prefix="copilot-e2e-", dir="/tmp"))
    before = request.session.testsfailed
    yield made
    if request.session.testsfailed == before:
        shutil.rmtree(made)
    else:
        print(f"the logs of {request.node.name} are in {made}")


@pytest_asyncio.fixture(loop_scope="module")
async def lab(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """The module's cluster; what a test did to it must have come to rest."""
    module = request.node.parent
    if module.stash.get(_BROKEN, False):
        await _anew(cluster)
    module.stash[_BROKEN] = True  # until this test has ended well
    await rest(cluster)
    yield cluster
    cluster.kubelet.behave("*", GOOD)
    cluster.containers.mend()
    if not request.node.stash.get(_FAILED, False):
        await cluster.settle()
        await cluster.audit.assert_clean()
        assert {words for line in cluster.copilot.log() if (words := surprise(line))} == set()
        module.stash[_BROKEN] = False


async def _anew(cluster: Cluster) -> None:
    """Whatever the parts of a broken cluster say at their end: that it is broken has been told."""
    try:
        await cluster.anew()
    except Exception as error:  # noqa: BLE001 - a part may end with any
        print(f"the cluster that a test had broken ended with {type(error).__name__}: {error}")
        await cluster.anew()


def make(folder: Path, options: Mapping[str, str | None] | None = None, **given: Any) -> Cluster:
    """A cluster of this run's combination, in which slurmctld looks every second for nodes to resume or suspend (10 s by default)."""
    merged = {"SlurmctldParameters": MADE_IDLE, **(options or {})}
    return Cluster(SLURM, folder, kubernetes=KUBERNETES, options=merged, unhurried=True, **given)
