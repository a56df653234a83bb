"""What is told of a node that fails: looked at in all the places where an operator, Slurm or an alert would see it."""

from __future__ import annotations

from copilot.hostlist import expand
from copilot.model import FailureReason
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.daemon import Line
from tests.lab.endpoint import resource


def lines_of(lab: Cluster, event: str, node: str, **values: str) -> list[Line]:
    """The log's lines with this event that name the node: nodes to which the same happened share one."""
    return [line for line in lab.copilot.log(event, **values) if node in expand(line["nodes"], 1000)]


async def failed(lab: Cluster, node: str, reason: FailureReason, seconds: float = 120) -> Line:
    """Waits until the node has failed for this reason; the log's line."""
    await lab.copilot.until(
        f"{node} to fail: {reason}", lambda: lines_of(lab, "node_failed", node, reason=reason.value), seconds=seconds
    )
    return lines_of(lab, "node_failed", node, reason=reason.value)[-1]


async def told_everywhere(lab: Cluster, node: str, reason: FailureReason, words: str) -> None:
    """One line in the log, the same words in Slurm's Reason and in an Event on the target, and the count."""
    [line] = lines_of(lab, "node_failed", node)
    assert (line["reason"], words in line["message"]) == (reason.value, True), line
    group = line["group"]
    # slurmctld's own log, since the Reason is gone again as soon as a job gets the node.
    set_to = f"update_node: node {node} reason set to: copilot: {reason}: {line['message']}"
    await lab.copilot.until(f"slurmctld to log: {set_to}", lambda: set_to in _slurmctld_log(lab))
    lines = [one for one in lab.copilot.log("node_failed", reason=reason.value) if one["group"] == group]
    failures = await lab.copilot.metric("slurm_copilot_node_failures_total", group=group, reason=reason.value)
    assert failures == sum(one["count"] for one in lines)
    told = f"{line['count']} node(s), {line['nodes']}: {reason}: {line['message']}"
    await lab.copilot.until(f"the Event {told}", lambda: _has_event(lab, "NodeFailed", group, told))


async def pod_gone(lab: Cluster, node: str) -> None:
    """Waits until the node has no pod: one that came right while its node is given up would register in between."""

    async def gone() -> bool:
        return node not in await lab.pods()

    await lab.copilot.until(f"the pod of {node} to be gone", gone)


async def freed(lab: Cluster, node: str) -> None:
    """Waits until its pod was seen gone and slurmctld was told so: the node is idle, off and usable again."""
    await lab.copilot.until(f"{node} to be freed", lambda: lines_of(lab, "slurm_updated", node, state="resume"))


def _slurmctld_log(lab: Cluster) -> str:
    return (lab.slurm.folder / "log/slurmctld.log").read_text(errors="replace")


async def _has_event(lab: Cluster, reason: str, group: str, message: str) -> bool:
    return message in await events(lab, reason, group)


async def events(lab: Cluster, reason: str, group: str) -> list[str]:
    """The messages of the copilot's Events with this reason on the group's target."""
    name = group.partition("-worker-")[0]
    found = await lab.admin.list(resource("v1", "events", NAMESPACE))
    return [one["message"] for one in found if (one["reason"], one["involvedObject"]["name"]) == (reason, name)]
