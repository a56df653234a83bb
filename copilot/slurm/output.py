"""What scontrol prints: pure. No regular expression over lines, no stall: 10,000 lines take some 50 ms in all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern

from copilot.hostlist import HostlistError, expand
from copilot.model import Node

# The ` [root@1796078081]` that Slurm appends to a Reason (SLURM_TIME_FORMAT=%s).
_REASON_END = re.compile(r" \[[^\s@\[\]]+@(?:\d+|Unknown|None|N/A)\](?=\s|$)")

# gpu:2, gpu:a100:2, gpu:a100:2(S:0-1), with commas between
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]*[^\d:,()][^:,()]*)?(?::(\d+))?")


def seconds(text: str) -> float | None:
    """A time of `show config` ("10 sec") in seconds; None for INFINITE, NONE and whatever is no number."""
    number = text.split()[0] if text.split() else ""
    return float(number) if number.isdigit() else None


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node as slurm.conf describes it: CPUs, RealMemory in MiB, the number of GPUs in Gres, State=CLOUD or not."""

    name: str
    cpus: int
    memory: int
    gpus: int
    cloud: bool


def node_config(line: str) -> NodeConfig | None:
    """From a line of `scontrol -o show nodes`; None for a line that is not a node's."""
    state_at = line.find(" State=")
    if state_at < 0 or not line.startswith("NodeName="):
        return None
    head = line[:state_at]
    flags = _word(line, state_at + 7).split("+")
    gpus = sum(int(count or 1) for count in _GPUS.findall(_value(head, " Gres=")))
    return NodeConfig(_word(line, 9), _number(head, " CPUTot="), _number(head, " RealMemory="), gpus, "CLOUD" in flags)


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """A partition's own times of power saving, as words ("600", "INFINITE"); "" where slurm.conf's apply. `nodes` is a hostlist."""

    name: str
    nodes: str
    suspend_time: str
    suspend_timeout: str
    resume_timeout: str


def partition_config(line: str) -> PartitionConfig | None:
    """From a line of `scontrol -o show partition`; None for one that is not a partition's. 22.05 shows the times only where they are set."""
    if not line.startswith("PartitionName="):
        return None
    times = {key: _value(line, f" {key}=") for key in ("SuspendTime", "SuspendTimeout", "ResumeTimeout")}
    own = {key: "" if value == "GLOBAL" else value for key, value in times.items()}
    nodes = _value(line, " Nodes=")
    return PartitionConfig(
        name=_word(line, 14),
        nodes="" if nodes == "(null)" else nodes,
        suspend_time=own["SuspendTime"],
        suspend_timeout=own["SuspendTimeout"],
        resume_timeout=own["ResumeTimeout"],
    )


def running_job(line: str) -> tuple[Sequence[str], int] | None:
    """The nodes and the start (slurmctld's clock, Unix time) of a job, from a line of `squeue -h -o "%S %N"` with SLURM_TIME_FORMAT=%s.

    There is nothing in it that a user could have written, as in the names and comments of `scontrol show jobs`. None for a job without nodes.
    """
    start, _, nodes = line.strip().partition(" ")
    try:
        return (expand(nodes), int(start)) if start.isdigit() and nodes else None
    except HostlistError:
        return None


def _number(line: str, key: str) -> int:
    value = _value(line, key)
    return int(value) if value.isdigit() else 0


class NodeLines:
    """Parses lines of `scontrol -o show nodes` and shares what repeats, so that 10,000 nodes cost little memory."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, frozenset[str]]] = {}

    def node(self, line: str) -> Node | None:
        """None for a line that is not a node's: "Node x not found", or a part of somebody's multi-line Reason."""
        state_at = line.find(" State=")
        if state_at < 0 or not line.startswith("NodeName="):
            return None
        # The numbers come before Reason, Comment and Extra, which are free text and stand at the end.
        head, raw_state = line[:state_at], _word(line, state_at + 7)
        reason_at = line.find(" Reason=", state_at)
        name, address = intern(_word(line, 9)), _value(head, " NodeAddr=")
        state = self._states.get(raw_state)
        if state is None:
            base, *flags = (intern(each) for each in raw_state.split("+"))
            state = self._states[raw_state] = (base.rstrip("*~#!%$@^-"), frozenset(flags))
        return Node(
            name=name,
            base=state[0],
            flags=state[1],
            reason=_reason(line[reason_at + 8 :]) if reason_at >= 0 else "",
            address=name if address == name else address,
            version=intern(_value(head, " Version=")),
            boot_epoch=_epoch(line, " BootTime=", state_at),
            slurmd_start_epoch=_epoch(line, " SlurmdStartTime=", state_at),
            last_busy_epoch=_epoch(line, " LastBusyTime=", state_at),
        )


def _word(line: str, start: int) -> str:
    end = line.find(" ", start)
    return line[start:] if end < 0 else line[start:end]


def _value(line: str, key: str, start: int = 0) -> str:
    at = line.find(key, start)
    return "" if at < 0 else _word(line, at + len(key))


def _epoch(line: str, key: str, start: int) -> int | None:
    value = _value(line, key, start)
    return int(value) if value.isdigit() else None


def _reason(text: str) -> str:
    """Without the ` [user@time]` that Slurm appends, and without the Comment and Extra that may follow it."""
    end = _REASON_END.search(text)
    return (text[: end.start()] if end else text).strip()
