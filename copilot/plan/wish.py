"""What Slurm wants of one node, read from its state alone (Slurm 22.05 to 26.05)."""

from __future__ import annotations

from enum import Enum

from copilot.model import Node, SlurmView

# Reason that slurmctld itself writes when ResumeTimeout passes; such a node stays DOWN for ever and SuspendProgram is not called.
RESUME_TIMEOUT_REASON = "ResumeTimeout reached"
# What every reason that we write begins with.
OUR_PREFIX = "copilot:"
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN"})


class Wish(Enum):
    """The four answers. Only RELEASE ever takes a pod away at once; OFF needs a grace and two views."""

    RUN = "run"
    KEEP = "keep"
    RELEASE = "release"
    OFF = "off"


def wish(node: Node | None) -> Wish:
    """What should become of the node's pod.

    RUN: Slurm has it on or coming (POWERING_UP, or no power-down flag at all: also DOWN and drained nodes, and POWER_DOWN, which is only a wish).
    KEEP: touch nothing: unknown to Slurm, or a job is on it although it is powered (or powering) down. Allocated and POWERED_DOWN means
    "coming": ResumeProgram is called a second or two later, and a pod started before it could never register.
    RELEASE: POWERING_DOWN, or given up by ResumeTimeout.
    OFF: POWERED_DOWN and no job.
    """
    if node is None or node.base == "FUTURE":
        return Wish.KEEP
    if not node.flags & _POWER:
        return Wish.RUN
    if node.busy:
        return Wish.KEEP
    if "POWERING_DOWN" in node.flags or given_up(node):
        return Wish.RELEASE
    return Wish.OFF


def given_up(node: Node) -> bool:
    """ResumeTimeout passed: DOWN+POWERED_DOWN with Slurm's own words. An administrator's DOWN is left alone."""
    return node.base == "DOWN" and "POWERED_DOWN" in node.flags and node.reason.startswith(RESUME_TIMEOUT_REASON)


def active(view: SlurmView) -> frozenset[str]:
    """The nodes that are not quietly off. One pass a view; flag sets are shared between nodes, so it is a dictionary look-up each."""
    quiet: dict[tuple[str, frozenset[str]], bool] = {}
    found = []
    for name, node in view.nodes.items():
        key = (node.base, node.flags)
        known = quiet.get(key)
        if known is None:
            known = quiet[key] = node.base != "DOWN" and wish(node) is Wish.OFF and not mute_at_rest(node)
        if not known:
            found.append(name)
    return frozenset(found)


def mute_at_rest(node: Node) -> bool:
    """IDLE and powered down, but said not to respond: `resume` and `undrain` of a node that is off leave it so (measured, 22.05 and 24.11).

    It may be used all the same, until slurmctld restarts: then no job gets it any more (ReqNodeNotAvail; aws-parallelcluster #7577).
    """
    return (
        node.base == "IDLE"
        and {"POWERED_DOWN", "NOT_RESPONDING"} <= node.flags
        and not node.flags
        & {"DRAIN", "FAIL", "COMPLETING", "POWERING_UP", "POWERING_DOWN", "POWER_UP", "MAINTENANCE", "RESERVED"}
    )


def may_free(node: Node) -> bool:
    """Whether `state=resume` would only cut the rest of SuspendTimeout short, and not undo what an administrator set.

    It lifts drains and wipes the node's reason: both are only ours to undo when the reason is ours, or the one that slurmctld itself writes
    at ResumeTimeout, which 24.11 leaves when the node is freed.
    """
    return (
        node.base == "IDLE"
        and (not node.reason or node.reason.startswith((OUR_PREFIX, RESUME_TIMEOUT_REASON)))
        and "POWERING_DOWN" in node.flags
        and not node.flags & {"DRAIN", "FAIL", "COMPLETING", "POWERING_UP", "MAINTENANCE"}
    )
