"""Whether all sides tell the same story: Slurm's node states, the pods, the targets, and what the copilot says of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from copilot.model import Kind
from tests.lab import workloads
from tests.lab.audit import States, indexes_of, node_states
from tests.lab.endpoint import Object

if TYPE_CHECKING:  # the cluster asks us
    from tests.lab.cluster import Cluster

_ON = frozenset({"IDLE", "ALLOCATED", "MIXED"})
_UNUSABLE = frozenset({"NOT_RESPONDING", "INVALID_REG", "POWERING_UP", "POWERING_DOWN", "POWERED_DOWN", "POWER_DOWN"})


async def until_agreed(cluster: Cluster, up: frozenset[str], off: frozenset[str], seconds: float) -> None:
    """AssertionError with the differences that are left after so many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while found := await differences(cluster, up, off):
        if loop.time() > deadline:
            logs = (
                f"the copilot's log ends:\n{cluster.copilot.tail()}\nslurmctld's log ends:\n{cluster.slurm.tail('slurmctld.log')}"
            )
            raise AssertionError(f"not settled after {seconds} s:\n- " + "\n- ".join(found) + f"\n{logs}")
        await asyncio.sleep(0.2)


async def differences(cluster: Cluster, up: frozenset[str], off: frozenset[str]) -> list[str]:
    """Sentences that say what does not fit together; none when all is well and at rest."""
    states = await node_states(cluster.slurm)
    if not states:
        return ["slurmctld does not answer"]
    pods = await cluster.pods()
    found = [f"{name} is {_state(states, name)}, wanted up" for name in sorted(up) if not is_up(states.get(name, frozenset()))]
    found += [
        f"{name} is {_state(states, name)}, wanted off" for name in sorted(off) if not is_off(states.get(name, frozenset()))
    ]
    for group, kind in cluster.kinds.items():
        found += _group(group, kind, states, pods, await cluster.target(group))
    found += _slurmds(cluster, states, pods)
    if not found and cluster.copilot.running:
        found += await _told(cluster, states)
    return found


def is_up(words: frozenset[str]) -> bool:
    return bool(words & _ON) and not words & _UNUSABLE


def is_off(words: frozenset[str]) -> bool:
    return "IDLE" in words and "POWERED_DOWN" in words and not words & {"POWERING_UP", "POWERING_DOWN", "POWER_UP"}


def _state(states: States, name: str) -> str:
    return "+".join(sorted(states[name])) if name in states else "unknown to Slurm"


def _group(group: str, kind: Kind, states: States, pods: dict[str, Object], target: Object) -> list[str]:
    names = [name for name in states if indexes_of([name], group)]
    found = [f"{name} is {_state(states, name)}" for name in names if not (is_up(states[name]) or is_off(states[name]))]
    on = indexes_of((name for name in names if is_up(states[name])), group)
    expected = workloads.window(kind, on)
    there = indexes_of(pods, group)
    if there != expected:
        found.append(f"{group}: pods {sorted(there)}, nodes that are up {sorted(on)}")
    asked, replicas = workloads.asked(kind, target), workloads.replicas_of(kind, target, group)
    if replicas != len(expected) or (asked is not None and asked != expected):
        found.append(f"{group}: the target asks for {replicas}: {sorted(asked or ())}, not for {sorted(expected)}")
    return found + (_lists(group, target, on) if kind is Kind.SLURM_CLUSTER else [])


def _lists(group: str, target: Object, on: set[int]) -> list[str]:
    """Entries that are done may stand; one that contradicts Slurm may not."""
    entry = workloads.entry_of(target, group)
    created, deleted = set(entry.get("podsToBeCreated") or []), indexes_of(entry.get("podsToBeDeleted") or [], group)
    wrong = [f"podsToBeCreated names {sorted(created - on)}"] if created - on else []
    return wrong + ([f"podsToBeDeleted names {sorted(deleted & on)}"] if deleted & on else [])


def _slurmds(cluster: Cluster, states: States, pods: dict[str, Object]) -> list[str]:
    """Only of nodes that have a target: who starts a slurmd of another by hand knows what for."""
    running = set(cluster.slurm.nodes_running())
    ours = {name: words for name, words in states.items() if _ours(cluster, name)}
    found = [f"pod {name} is Terminating" for name, pod in pods.items() if "deletionTimestamp" in pod["metadata"]]
    found += [f"{name} is up without a pod's slurmd" for name, words in ours.items() if is_up(words) and name not in running]
    return found + [f"a slurmd of {name} runs without a pod" for name in sorted((running & ours.keys()) - pods.keys())]


async def _told(cluster: Cluster, states: States) -> list[str]:
    """`status` of the copilot: all well, the nodes that are up are up, and no other is on its way."""
    code, said = await cluster.copilot.status()
    if "nodes" not in said:
        return [f"status ended with {code}: {said}"]
    phases = {one["name"]: one["phase"] for one in said["nodes"]}
    found = [
        f"status says {name} is {phases.get(name, 'off')}"
        for name in states
        if is_up(states[name]) and _ours(cluster, name) and phases.get(name) != "up"
    ]
    found += [
        f"status says {name} is {phase}"
        for name, phase in phases.items()
        if phase not in ("up", "off", "held") and not is_up(states.get(name, frozenset()))
    ]
    # A node that only the window of its set keeps is shown, by exit code 1 too.
    excused = "held" in phases.values() and not said.get("problems")
    return found + ([f"status ended with {code}: {said.get('problems')}"] if code and not excused else [])


def _ours(cluster: Cluster, name: str) -> bool:
    return name.rpartition("-")[0] in cluster.kinds
