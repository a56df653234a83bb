"""What slurm.conf says of nodes that are never powered down; tests/slurm/test_saving.py holds it against slurmctld."""

from __future__ import annotations

from copilot.model import Node
from copilot.slurm import PartitionConfig, Saving, saving_of

NOW = 1_800_000_000.0


def partition(name: str, nodes: str, suspend_time: str = "") -> PartitionConfig:
    return PartitionConfig(name, nodes, suspend_time, "", "")


def idle(name: str, *flags: str, seconds: int = 0) -> Node:
    return Node(name, "IDLE", frozenset({"CLOUD", *flags}), last_busy_epoch=int(NOW) - seconds)


def test_a_node_of_several_partitions_has_the_longest_of_their_times() -> None:
    saving = saving_of({"SuspendTime": "60 sec"}, [partition("a", "n[1-2]", "600"), partition("b", "n[2-3]", "300")])
    assert [saving.why(idle(name, seconds=500), NOW) != "" for name in ("n1", "n2", "n3", "n4")] == [False, False, True, True]


def test_power_saving_that_is_off_is_told_unless_a_partition_has_it() -> None:
    saving = saving_of({"SuspendTime": "INFINITE"}, [partition("a", "n1", "600")])
    assert saving.why(idle("n1"), NOW) == ""
    assert saving.why(idle("n2"), NOW) == "SuspendTime=INFINITE"


def test_a_state_that_is_excepted() -> None:
    saving = saving_of({"SuspendTime": "60 sec", "SuspendExcStates": "drain,PLANNED"}, [])
    assert saving.why(idle("n1", "PLANNED"), NOW) == "SuspendExcStates has PLANNED"
    assert saving.why(idle("n2"), NOW) == ""


def test_some_of_a_list_are_no_one_for_sure_and_nonsense_is_nobody() -> None:
    saving = saving_of({"SuspendTime": "60 sec", "SuspendExcNodes": "n[1-9]:4,m[1,3],x y", "SuspendExcParts": "(null)"}, [])
    assert set(saving.kept) == {"m1", "m3"}


def test_before_anything_is_known_nothing_is_said() -> None:
    assert Saving(time=float("inf")).why(idle("n1", seconds=10**6), NOW) == ""
    assert Saving(time=60.0).why(Node("n1", "IDLE"), NOW) == "", "Slurm has not said when it was last busy"
