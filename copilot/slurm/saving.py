"""Which nodes slurmctld never powers down, and why: from `scontrol show config` and `show partition`. Pure.

Man page slurm.conf: SuspendTime, SuspendExcNodes, SuspendExcParts, SuspendExcStates (since 23.02); SuspendTime of a partition since 21.08.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from copilot.hostlist import HostlistError, expand
from copilot.model import Node
from copilot.slurm.output import PartitionConfig, seconds

# slurmctld looks for idle nodes every 10 s, and suspends no more than SuspendRate of them a minute.
_LATE = 120.0
_ELEMENT = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")


@dataclass(frozen=True, slots=True)
class Saving:
    """`kept`: why a node is never powered down, by name. `times`: SuspendTime in seconds of nodes whose partitions have one of their own;
    `time` that of all others, None while it is INFINITE. `states`: a node in one of these is kept as long."""

    kept: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    time: float | None = None
    states: frozenset[str] = frozenset()

    def why(self, node: Node, now: float) -> str:
        """Why an idle node that is up is not going to be powered down, or is overdue; "" while all is as it should be. `now` is Unix time."""
        if words := self.kept.get(node.name):
            return words
        if states := sorted(self.states & {node.base, *node.flags}):
            return f"SuspendExcStates has {states[0]}"
        time = self.times.get(node.name, self.time)
        if time is None:
            return "SuspendTime=INFINITE"
        idle = now - node.last_busy_epoch if node.last_busy_epoch is not None else 0.0
        if idle <= time + _LATE:
            return ""
        return f"SuspendTime is {time:g} s, but slurmctld has not suspended it: see SuspendProgram and SuspendRate, its log, reservations"


def saving_of(config: Mapping[str, str], partitions: Sequence[PartitionConfig]) -> Saving:
    """What is not a hostlist is passed over: what `check` says of it is for another place."""
    kept = dict.fromkeys(_excepted(_value(config, "SuspendExcNodes")), "SuspendExcNodes has it")
    excepted = set(_value(config, "SuspendExcParts").split(","))
    times: dict[str, float] = {}
    for partition in partitions:
        own = seconds(partition.suspend_time)
        words = ""
        if partition.name in excepted:
            words = f"SuspendExcParts has its partition {partition.name}"
        elif partition.suspend_time and own is None:
            words = f"its partition {partition.name} has SuspendTime={partition.suspend_time}"
        if not words and own is None:
            continue
        for name in _names(partition.nodes):
            if words:
                kept.setdefault(name, words)
            elif own is not None:
                # a node of several partitions has the longest of their times
                times[name] = max(own, times.get(name, own))
    states = frozenset(word.upper() for word in _value(config, "SuspendExcStates").split(",") if word)
    return Saving(kept, times, seconds(config.get("SuspendTime", "")), states)


def _value(config: Mapping[str, str], key: str) -> str:
    value = config.get(key, "")
    return "" if value == "(null)" else value


def _excepted(text: str) -> Iterator[str]:
    """The names of SuspendExcNodes. `n[1-9]:4` keeps any four of nine, so it tells of no node for sure that it is kept."""
    for element in _ELEMENT.findall(text):
        if ":" not in element:
            yield from _names(element)


def _names(text: str) -> Sequence[str]:
    try:
        return expand(text) if text else ()
    except HostlistError:
        return ()
