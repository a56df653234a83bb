"""Partitions may have times of power saving of their own, which overrule those of slurm.conf for their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from copilot.check.finding import Finding, error, ok, warning
from copilot.check.slurm_conf import Needs
from copilot.hostlist import HostlistError, expand
from copilot.slurm import NodeConfig, PartitionConfig, seconds


def saving(partitions: Sequence[PartitionConfig]) -> tuple[str, ...]:
    """Those with a finite SuspendTime: for their nodes power saving is on even with SuspendTime=INFINITE in slurm.conf."""
    return tuple(each.name for each in partitions if seconds(each.suspend_time) is not None)


def judge(partitions: Sequence[PartitionConfig], nodes: Sequence[NodeConfig], needs: Needs) -> list[Finding]:
    """Of partitions with CLOUD nodes only: fixed machines may have any times."""
    cloud = {node.name for node in nodes if node.cloud}
    of_pods = [each for each in partitions if not cloud.isdisjoint(_members(each))]
    found = [finding for each in of_pods for check in _CHECKS if (finding := check(each, needs))]
    return found or [ok("partitions", f"{', '.join(each.name for each in of_pods) or 'none'} with CLOUD nodes")]


def _members(partition: PartitionConfig) -> Sequence[str]:
    try:
        return expand(partition.nodes) if partition.nodes else ()
    except HostlistError:
        # more nodes than the copilot takes in one list: then judged as none of ours
        return ()


def _suspend_time(partition: PartitionConfig, _: Needs) -> Finding | None:
    if not partition.suspend_time or seconds(partition.suspend_time) is not None:
        return None
    seen = f"PartitionName={partition.name} has SuspendTime={partition.suspend_time}"
    cure = f"remove SuspendTime from PartitionName={partition.name}, or SuspendTime=300"
    return warning("partition_suspend_time", seen, "its nodes are never powered down", cure)


def _suspend_timeout(partition: PartitionConfig, needs: Needs) -> Finding | None:
    value = seconds(partition.suspend_timeout)
    if value is None or value > needs.grace:
        return None
    seen = f"PartitionName={partition.name} has SuspendTimeout={value:g}, pods have {needs.grace:g} s to end"
    why = "slurmctld would use a node again whose old pod is still ending"
    return error("partition_suspend_timeout", seen, why, f"PartitionName={partition.name} SuspendTimeout={needs.grace + 30:.0f}")


def _resume_timeout(partition: PartitionConfig, needs: Needs) -> Finding | None:
    value = seconds(partition.resume_timeout)
    if value is None or value > needs.start:
        return None
    seen = f"PartitionName={partition.name} has ResumeTimeout={value:g}, {needs.start:g} s may pass until it is known why a node does not come"
    why = "slurmctld would give up nodes that are still on their way"
    return warning("partition_resume_timeout", seen, why, f"PartitionName={partition.name} ResumeTimeout={needs.start + 60:.0f}")


_CHECKS: tuple[Callable[[PartitionConfig, Needs], Finding | None], ...] = (_suspend_time, _suspend_timeout, _resume_timeout)
