"""Partitions with times of their own."""

from __future__ import annotations

import pytest

from copilot.check import partitions
from copilot.check.finding import Level
from copilot.check.slurm_conf import Needs, suspend_time
from copilot.slurm import NodeConfig, PartitionConfig
from copilot.slurm.output import partition_config

NEEDS = Needs(grace=30.0, failures=120.0, pull=100.0)
NODES = [NodeConfig("cpu-0", 4, 8000, 0, True), NodeConfig("rack1", 4, 8000, 0, False)]
OWN = PartitionConfig("own", "cpu-[0-9]", "600", "60", "900")


def test_a_line_of_each_release() -> None:
    old = "PartitionName=own AllowGroups=ALL Nodes=cpu-[0-9] State=UP TRES=cpu=4 ResumeTimeout=900 SuspendTimeout=60 SuspendTime=600"
    assert partition_config(old) == OWN
    new = "PartitionName=own Nodes=(null) TRES=(null) ResumeTimeout=GLOBAL SuspendTimeout=GLOBAL SuspendTime=INFINITE PowerDownOnIdle=NO"
    assert partition_config(new) == PartitionConfig("own", "", "INFINITE", "", "")
    assert partition_config("PartitionName=own Nodes=cpu-0 TRES=cpu=4") == PartitionConfig("own", "cpu-0", "", "", "")
    assert partition_config("No partitions in the system") is None


@pytest.mark.parametrize("partition", [OWN, PartitionConfig("cpu", "cpu-0", "", "", "")])
def test_good_ones(partition: PartitionConfig) -> None:
    [finding] = partitions.judge([partition], NODES, NEEDS)
    assert (finding.name, finding.level, finding.seen) == ("partitions", Level.OK, f"{partition.name} with CLOUD nodes")


@pytest.mark.parametrize(
    ("times", "name", "level", "cure"),
    [
        (("INFINITE", "", ""), "partition_suspend_time", Level.WARNING, "SuspendTime=300"),
        (("", "30", ""), "partition_suspend_timeout", Level.ERROR, "PartitionName=own SuspendTimeout=60"),
        (("", "", "150"), "partition_resume_timeout", Level.WARNING, "PartitionName=own ResumeTimeout=210"),
    ],
)
def test_wrong_ones(times: tuple[str, str, str], name: str, level: Level, cure: str) -> None:
    [finding] = partitions.judge([PartitionConfig("own", "cpu-[0-9]", *times)], NODES, NEEDS)
    assert (finding.name, finding.level) == (name, level)
    assert cure in finding.cure
    [fixed] = partitions.judge([PartitionConfig("own", "rack1", *times)], NODES, NEEDS)
    assert fixed.level is Level.OK, "machines that are no pods may have any times"


def test_a_partition_that_saves_power_by_itself() -> None:
    conf = {"SuspendTime": "INFINITE"}
    assert partitions.saving([OWN, PartitionConfig("other", "", "INFINITE", "", "")]) == ("own",)
    assert suspend_time(conf, Needs()).level is Level.ERROR
    finding = suspend_time(conf, Needs(saving=("own",)))
    assert (finding.level, finding.cure) == (Level.WARNING, "SuspendTime=300")
    assert "own" in finding.seen
