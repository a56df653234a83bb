"""The rules that end in an act, one small function each; every one says why in its first lines."""

from __future__ import annotations

from copilot.model import UP_BASES, FailureReason, Node, Pod
from copilot.plan.causes import evicted
from copilot.plan.facts import Facts, asks_an_earlier_pod, ended, is_home, is_stale, other_address, unannounced
from copilot.plan.policy import Policy
from copilot.plan.wish import Wish, given_up, may_free, mute_at_rest
from copilot.plan.world import Track, World

FREE = "resume"
GIVE_UP = "power_down_force"
TAKE_DOWN = "down"
POWER_DOWN = "power_down"
# The update that only empties the Reason.
CLEAR = ""
# With this every Reason begins that we write; others are never touched.
OURS = "copilot: "
_POWER = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})
# Set by administrators (DRAIN by slurmctld too): power_down_force would wipe them out.
_RESERVED = frozenset({"DRAIN", "FAIL"})


def keeps(facts: Facts, track: Track | None, world: World, policy: Policy) -> bool:
    """Whether an unwanted node's pod stays for now.

    Unknown is never down: a node that Slurm does not list, or that a job is on, keeps what it has. A node that is plainly off keeps it
    for a grace that is measured between Slurm's views, so that at least two of them agree. What Slurm was seen to give up, and what only
    the target's nature holds, goes at once.
    """
    if not has(facts, track):
        return False
    if facts.wish is Wish.KEEP:
        return True
    if facts.wish is Wish.RELEASE or track is None or track.release_since is not None or track.orphan_since is None:
        return False
    assert world.slurm is not None
    return world.slurm.taken_at - track.orphan_since < policy.orphan_grace


def orphan(facts: Facts, track: Track) -> bool:
    """A pod that is let go although Slurm was never seen to give its node up."""
    return track.orphan_since is not None and track.release_since is None and facts.pod is not None and not facts.pod.terminating


def has(facts: Facts, track: Track | None) -> bool:
    """Whether there is a pod to keep. One that goes already is not: to keep it would be to order another, too early for the next start."""
    if facts.covered:
        return True
    return facts.pod is not None and not facts.pod.terminating and (track is None or track.release_since is None)


def trusted(world: World, policy: Policy) -> bool:
    """Whether both sides are known well enough to take something away."""
    return world.pods.synced and world.slurm is not None and world.now - world.slurm.taken_at <= policy.trust_view


def may_tell(name: str, state: str, world: World, policy: Policy) -> bool:
    """Whether an update may be sent: none is under way, Slurm was asked since the last, and the same one is not repeated too fast."""
    told = world.told.get(name)
    if not trusted(world, policy):
        return False
    if told is None:
        return True
    if not told.done or world.slurm is None or world.slurm.taken_at <= told.at:
        return False
    return told.state != state or world.now - told.at >= policy.repeat_update


def frees(facts: Facts, track: Track | None, world: World, policy: Policy) -> bool:
    """The pod of a node that powers down is seen gone: `state=resume` frees the node now instead of after SuspendTimeout.

    Also for a node that ResumeTimeout left DOWN+POWERED_DOWN, which Slurm would leave so for ever. A pod that nobody has seen may still be
    in the making when its target was shrunk a moment ago: it is given `settle` seconds to show.
    """
    node = facts.node
    if (
        node is None
        or facts.pod is not None
        or facts.covered
        or not world.pods.synced
        or track is None
        or track.release_since is None
    ):
        return False
    if given_up(node):
        return not node.flags & _RESERVED
    if not policy.free_early or not may_free(node):
        return False
    return bool(track.pod_uid) or world.now - track.release_since >= policy.settle


def at_rest_anew(facts: Facts, world: World) -> bool:
    """An off node without a pod that slurmctld takes for one that does not respond: powered down once more, and freed, it is as good as new."""
    return world.pods.synced and facts.pod is None and not facts.covered and facts.node is not None and mute_at_rest(facts.node)


def stale(facts: Facts, track: Track, world: World, policy: Policy) -> str:
    """The uid of a running pod that can never register because it is older than the resume request, or "".

    Only ever on a view that shows the node POWERING_UP: then no job can run in that pod, whatever the older views said.
    """
    pod = facts.pod
    if pod is None or pod.terminating or not facts.powering_up or not judged(facts, track, world, policy):
        return ""
    if is_stale(pod, track):
        return pod.uid
    if track.replaced or track.running_at is None:
        return ""
    if _ignored(facts) and _old_enough(track.running_at, policy.ignored_grace, world):
        return pod.uid
    if not _old_enough(track.running_at, policy.stale_grace, world):
        return ""
    found_running = track.pending_at is not None and track.requested_at is not None and pod.first_seen <= track.requested_at
    return pod.uid if found_running or _boots_before_its_pod(facts) else ""


def _ignored(facts: Facts) -> bool:
    """slurmctld has heard this pod's slurmd (its start time is known) and still waits: it took the node to have booted before the request.

    With -b too, about one start in some hundred: slurmd counts its age in whole seconds of the machine's uptime, which may turn over just
    then, so a slurmd that starts within the second of the request boots a second before it (seen on 22.05.8). It registers only once.
    """
    node, pod = facts.node, facts.pod
    if node is None or pod is None or not node.version or node.slurmd_start_epoch is None or not pod.created_epoch:
        return False
    return node.slurmd_start_epoch >= pod.created_epoch


def _boots_before_its_pod(facts: Facts) -> bool:
    """slurmd runs without -b: it has talked to slurmctld (Version is set) since this pod was made, and reports the host's boot time."""
    node, pod = facts.node, facts.pod
    if node is None or pod is None or not node.version or node.boot_epoch is None or node.slurmd_start_epoch is None:
        return False
    return node.slurmd_start_epoch >= pod.created_epoch - 2 > node.boot_epoch + 2


def never_registers(facts: Facts, track: Track, world: World, policy: Policy) -> tuple[FailureReason, str] | None:
    """A pod that runs but whose node does not come up: why it is given up, in words that fit for all nodes alike."""
    if track.running_at is None or not facts.powering_up or facts.fresh_pod is None or not judged(facts, track, world, policy):
        return None
    if facts.node is None or not may_be_forced(facts.node):
        return None
    if track.replaced and _old_enough(track.running_at, policy.stale_grace, world) and _boots_before_its_pod(facts):
        return (
            FailureReason.STALE_POD,
            "slurmd reports a boot time before the resume request, so slurmctld ignores it: start slurmd with -b",
        )
    if _old_enough(track.running_at, policy.registration_timeout, world):
        words = f"the pod runs but slurmd has not registered within {policy.registration_timeout:g} s: check its log, SlurmctldHost, munge key and port 6817"
        return FailureReason.REGISTRATION_TIMEOUT, words
    return None


def may_be_forced(node: Node) -> bool:
    """Whether `power_down_force` would not undo what an administrator did: it wipes DRAIN and DOWN (measured on 22.05)."""
    return node.base in UP_BASES and not node.flags & _RESERVED


def may_fail(facts: Facts, track: Track, world: World, policy: Policy) -> bool:
    """Whether a start that is held up may be ended: Slurm waits for it, both sides are known well enough, and no administrator has a say.

    The drain of a node that registered with too little (INVALID_REG) is slurmctld's own.
    """
    node = facts.node
    if node is None or not (facts.powering_up or facts.refused) or not judged(facts, track, world, policy):
        return False
    return may_be_forced(node) or facts.refused


def elsewhere(facts: Facts) -> str:
    """Both addresses, where slurmd registered from another one than its pod's: slurmctld then talks to something else (slurm-operator #88)."""
    node, pod = facts.node, facts.pod
    if node is None or pod is None or not other_address(pod, node):
        return ""
    return f"slurmctld has {node.address}, the pod has {pod.ip}: check hostNetwork, NodeAddr and cloud_reg_addrs"


def reason_is_old(facts: Facts) -> bool:
    """A healthy node that still bears the reason of an earlier failure, which we wrote: `sinfo -R` would list it for ever."""
    node = facts.node
    return node is not None and node.up and node.reason.startswith(OURS) and not node.flags & (_RESERVED | _POWER)


def taken_down(facts: Facts) -> bool:
    """A node that we took down because its pod was lost under a job, which has freed the job: now it may go the ordinary way of a failure.

    `power_down_force` alone would leave the job COMPLETING, since no slurmd is there to end it (measured on 22.05 to 26.05). Read from Slurm's
    state, so it survives a restart of ours in between.
    """
    node = facts.node
    return (
        node is not None
        and node.base == "DOWN"
        and node.reason.startswith(OURS)
        and not node.flags & (_RESERVED | _POWER | {"COMPLETING"})
    )


def lost(facts: Facts, track: Track, world: World, policy: Policy) -> tuple[FailureReason, str] | None:
    """Why a node that Slurm has on is not there any more, or None.

    Told only on a Slurm view that was asked for after the loss was seen, and only for a pod that this process has seen before, so that
    a pod list that is wrong can never power a cluster down. A node that is DOWN, or drained and without a job, Slurm does not use anyway.
    """
    node, pod = facts.node, facts.pod
    if track.missing_since is None or facts.powering_up or node is None or node.base not in UP_BASES or world.slurm is None:
        return None
    if world.slurm.taken_at <= track.missing_since or facts.overruled or not (node.busy or may_be_forced(node)):
        return None
    if pod is None:
        return FailureReason.POD_LOST, "its pod is gone"
    same = is_home(pod, track)
    # A job on a pod that has ended is dead already; all else may heal: its controller replaces the pod, its host answers again.
    if same and not (ended(pod) and node.busy) and not _old_enough(track.missing_since, policy.pod_lost_grace, world):
        return None
    if same:
        return _lost_in_place(pod, node)
    if not node.busy:
        return None
    words = (
        "its pod was replaced under a job" if pod.uid != track.pod_uid else f"its container restarted under a job{_last_end(pod)}"
    )
    return FailureReason.POD_LOST, words


def _lost_in_place(pod: Pod, node: Node) -> tuple[FailureReason, str]:
    """The pod is still listed, but nothing of it runs, or nobody can tell."""
    if ended(pod):
        return FailureReason.EVICTED if evicted(pod) else FailureReason.POD_LOST, f"its pod ended: {pod.trouble or pod.phase}"
    if pod.terminating:
        return FailureReason.POD_LOST, "its pod is Terminating past its grace: is its host gone?"
    if asks_an_earlier_pod(pod, node):
        return FailureReason.POD_LOST, "slurmctld asks the address of an earlier pod"
    return FailureReason.POD_LOST, "neither its host nor its slurmd answers"


def _last_end(pod: Pod) -> str:
    why = pod.last_end or pod.trouble
    return f": {why}" if why else ""


def missed(facts: Facts, track: Track, world: World, policy: Policy) -> bool:
    """Slurm waits, or has waited, for the node but no hook ever told us: its ResumeProgram call was lost.

    A hook may be later than the view that shows its node POWERING_UP, and even than its registration, hence the grace.
    """
    if not unannounced(track) or track.requested_at is None or world.slurm is None:
        return False
    return (facts.up or facts.powering_up) and world.slurm.taken_at - track.requested_at >= policy.missed_hook_grace


def judged(facts: Facts, track: Track, world: World, policy: Policy) -> bool:
    """A view that was asked for after the start, and after the last hook, and lately, and a pod list beside it."""
    if world.slurm is None or track.requested_at is None or facts.overruled or not trusted(world, policy):
        return False
    return world.slurm.taken_at >= track.requested_at


def _old_enough(since: float, grace: float, world: World) -> bool:
    """Measured up to the view that the judgement rests on, not up to now: without a newer look nobody is judged."""
    return world.slurm is not None and world.slurm.taken_at - since >= grace
