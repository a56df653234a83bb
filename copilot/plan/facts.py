"""One node as both sides see it, and what that means for the next moment."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from copilot.model import Hint, Node, Phase, Pod, Verb
from copilot.plan.wish import Wish, wish
from copilot.plan.world import Member, Track, World


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything known of one node at one decision."""

    name: str
    member: Member
    node: Node | None
    pod: Pod | None
    covered: bool
    hint: Hint | None
    wish: Wish
    track: Track | None
    # a resume hint came after the view was asked for: what the view says of the node is out of date
    overruled: bool = False

    @property
    def wanted(self) -> bool:
        """Whether a pod should run for it."""
        return self.wish is Wish.RUN

    @property
    def up(self) -> bool:
        """Registered; a resume hint that is newer than the view does not change that (Slurm may resume a node that is up)."""
        return self.node is not None and self.node.up

    @property
    def powering_up(self) -> bool:
        """Slurm itself says that it waits for this node's registration."""
        return (
            self.node is not None and "POWERING_UP" in self.node.flags and not self.node.flags & {"POWERING_DOWN", "POWERED_DOWN"}
        )

    @property
    def refused(self) -> bool:
        """slurmctld has refused its registration, drained it and waits no more: POWERING_UP is gone at once (22.05 and 24.11)."""
        return (
            self.node is not None and "INVALID_REG" in self.node.flags and not self.node.flags & {"POWERING_DOWN", "POWERED_DOWN"}
        )

    @property
    def coming(self) -> bool:
        """A job has it although it is powered down: ResumeProgram follows within seconds."""
        return self.node is not None and self.node.busy and "POWERED_DOWN" in self.node.flags

    @property
    def fresh_pod(self) -> Pod | None:
        """Its pod, if that one can still register: there, not on its way out, not known to be older than the resume request."""
        pod = self.pod
        return None if pod is None or pod.terminating or (self.track is not None and is_stale(pod, self.track)) else pod


def is_stale(pod: Pod, track: Track) -> bool:
    """Known to be older than the resume request, and its container has not restarted since."""
    return pod.uid == track.stale_uid and pod.restarts == track.restarts


def facts_of(world: World, name: str, member: Member) -> Facts:
    """Puts together what both views, the hints and the memory say of one node.

    A resume hint overrules a view only when it came after that view was asked for, and only for a node that Slurm knows: a foreign
    name, or an index that slurm.conf does not have, must not scale anything.
    """
    node = world.slurm.nodes.get(name) if world.slurm is not None else None
    hint = world.hints.get(name)
    newer = (
        hint is not None
        and hint.verb is Verb.RESUME
        and node is not None
        and world.slurm is not None
        and hint.received_at >= world.slurm.taken_at
    )
    return Facts(
        name=name,
        member=member,
        node=node,
        pod=world.pods.pods.get(name),
        covered=member.index in world.covers.get(member.group.name, frozenset()),
        hint=hint,
        wish=Wish.RUN if newer else wish(node),
        track=world.tracks.get(name),
        overruled=newer,
    )


def steady(world: World, name: str) -> Track | None:
    """The memory of a node that is up, in the pod that it was in, with no hint about it: nothing follows from that.

    Most nodes of a busy cluster are so, and are passed over without making anything new.
    """
    track = world.tracks.get(name)
    if track is None or track.phase is not Phase.UP or track.missing_since is not None or name in world.hints:
        return None
    node, pod = world.slurm.nodes.get(name) if world.slurm is not None else None, world.pods.pods.get(name)
    if node is None or pod is None or not is_home(pod, track) or pod.terminating or ended(pod):
        return None
    return track if node.up and track.spare_since is None and not node.reason and not unannounced(track) else None


def unannounced(track: Track) -> bool:
    """A start that no hook has told of yet, and that has not been counted as a lost one."""
    return track.requested_at is not None and not track.hinted and not track.missed_counted


def is_home(pod: Pod, track: Track) -> bool:
    """The very pod, with the very containers, in which the node's jobs run."""
    return pod.uid == track.pod_uid and pod.restarts <= track.restarts


def ended(pod: Pod) -> bool:
    """All of its containers have ended for good: evicted, or its host was shut down."""
    return pod.phase in ("Failed", "Succeeded")


def silent(pod: Pod, node: Node) -> bool:
    """Both sides say so: slurmctld has no answer of its slurmd, and its host none for Kubernetes (which then takes Ready away).

    Or slurmctld asks the wrong one, which can never answer.
    """
    return pod.running and "NOT_RESPONDING" in node.flags and (not pod.ready or asks_an_earlier_pod(pod, node))


def asks_an_earlier_pod(pod: Pod, node: Node) -> bool:
    """The slurmd that slurmctld knows was started before this pod was created, and at another address.

    So it happens when a pod is replaced while slurmctld does not listen: it hears both registrations, and may take the older one last.
    """
    started = node.slurmd_start_epoch
    return started is not None and started < pod.created_epoch and other_address(pod, node)


def other_address(pod: Pod, node: Node) -> bool:
    """slurmctld has an address of the node, and it is not the pod's.

    It keeps a name where no slurmd has told it an address: that one resolves to whatever DNS says.
    """
    if not pod.ip or not node.address or node.address == pod.ip:
        return False
    try:
        ip_address(node.address)
    except ValueError:
        return False
    return True


def lives(facts: Facts, track: Track, now: float) -> bool:
    """Whether the pod that the node's jobs run in is there and alive, as far as both sides tell."""
    pod, node = facts.pod, facts.node
    if pod is None or node is None or not is_home(pod, track) or ended(pod):
        return False
    return not silent(pod, node) and (pod.ends_at is None or pod.ends_at > now)


def phase_of_start(facts: Facts) -> Phase:
    """How far a wanted node that is not up has come."""
    pod = facts.fresh_pod
    if pod is None:
        return Phase.SCALED if facts.covered else Phase.REQUESTED
    if pod.running:
        return Phase.RUNNING
    return Phase.SCHEDULED if pod.scheduled else Phase.PENDING
