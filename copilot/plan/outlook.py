"""What the copilot will do next about a node, and when: the rules' waits in an operator's words."""

from __future__ import annotations

from copilot.model import Phase
from copilot.plan import causes, gate, rules
from copilot.plan.facts import Facts, facts_of
from copilot.plan.policy import Policy
from copilot.plan.wish import Wish
from copilot.plan.world import Track, World


def outlook(world: World, policy: Policy, name: str) -> str:
    """One sentence. Empty for a name that is no member."""
    member = world.members.get(name)
    if member is None:
        return ""
    facts, track = facts_of(world, name, member), world.tracks.get(name)
    if facts.node is None:
        return "nothing: slurm.conf does not list it"
    if member.group.name in world.held:
        return "nothing: an operator holds its group"
    if track is None:
        return "nothing: it is off"
    if facts.wanted:
        return _of_wanted(facts, track, world, policy)
    if facts.wish is Wish.KEEP:
        return "nothing: a job has it although it is powered down, so ResumeProgram is about to be called"
    return _of_unwanted(facts, track, world, policy)


def _of_wanted(facts: Facts, track: Track, world: World, policy: Policy) -> str:
    if track.failure is not None and not facts.up:
        return "Slurm is told to power it down; it is idle again once its pod has gone"
    breaker = gate.withheld(facts, world.breakers)
    if breaker is not None and breaker.opened_at is not None:
        return f"its start waits for the breaker of {facts.member.group.name}: one node tries {_in(breaker.opened_at + breaker.pause - world.now)}"
    if track.missing_since is not None:
        return f"its pod is not there any more: told to Slurm with the next look, or {_in(track.missing_since + policy.pod_lost_grace - world.now)}"
    if track.spare_since is not None:
        return "it goes back to Slurm as soon as no job has it: its job could not have all of its nodes"
    if facts.up:
        return "nothing: it is up"
    cause = causes.cause_of(facts, track, world, policy)
    if cause is not None and track.trouble_since is not None:
        return f"it fails ({cause.reason}) {_in(max(track.trouble_since, cause.since) + cause.grace - world.now)} unless the cause ends"
    if track.phase is Phase.RUNNING and track.running_at is not None and facts.powering_up:
        if rules.stale(facts, track, world, policy):
            return "its pod is older than the resume request and is replaced"
        return f"it waits for slurmd to register, and fails {_in(track.running_at + policy.registration_timeout - world.now)}"
    waits = {
        Phase.REQUESTED: "its target is patched",
        Phase.SCALED: "its pod is to be made by the target's controller",
        Phase.PENDING: "its pod is to be given a machine by the scheduler",
        Phase.SCHEDULED: "its containers are to be started by kubelet (image, volumes)",
    }
    return waits.get(track.phase, "nothing: Slurm has it on, and does not wait for it")


def _of_unwanted(facts: Facts, track: Track, world: World, policy: Policy) -> str:
    if track.phase is Phase.RELEASING:
        return "its pod is to go; then Slurm is told that the node is free"
    if track.held:
        return "its pod stays as long as the window of its StatefulSet needs it"
    if track.orphan_since is not None and rules.has(facts, track):
        return f"its pod is an orphan, removed {_in(track.orphan_since + policy.orphan_grace - world.now)} unless Slurm wants the node"
    return "nothing: it is off"


def _in(seconds: float) -> str:
    return f"in {seconds:.0f} s" if seconds > 0 else "now"
