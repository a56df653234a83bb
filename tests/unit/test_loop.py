"""The loop's own part: what it accepts of a hook, and what it tells when things are not as they should be."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import generate_latest

from copilot.config import Settings
from copilot.model import Kind, Verb
from copilot.reconcile.loop import Loop
from tests.lab.objects import stateful_set
from tests.unit.known_world import NAMESPACE, known_world


def target(name: str, uid: str = "u") -> dict[str, Any]:
    obj = stateful_set(name, 0)
    obj["metadata"] |= {"namespace": NAMESPACE, "uid": uid, "generation": 1}
    return obj


def slurm_cluster(name: str, group: str) -> dict[str, Any]:
    meta = {"namespace": NAMESPACE, "name": name, "uid": "u2", "generation": 1}
    return {"metadata": meta, "spec": {"workerGroupSpecs": [{"groupName": group, "replicas": 0}]}}


def observe(loop: Loop, kind: Kind, *objects: dict[str, Any]) -> None:
    loop.groups.observe(kind, NAMESPACE, {obj["metadata"]["name"]: obj for obj in objects})
    loop.on_targets(synced=True)
    loop.tick()


def metrics(loop: Loop) -> str:
    return generate_latest(loop.metrics.registry).decode()


async def test_bad_names_are_ignored_each_with_its_reason_and_the_others_served() -> None:
    loop = known_world(Settings())
    answer = loop.hook(Verb.RESUME, ["cpu-3", "cpu-04", "gpu-1", "cpu-77", "login"], "r", {})
    assert answer.accepted == ["cpu-3"]
    reasons = {name: reason for names, reason in answer.ignored for name in names}
    assert "leading zeros" in reasons["cpu-04"]
    assert "no worker group gpu" in reasons["gpu-1"]
    assert "slurmctld lists no such node" in reasons["cpu-77"]
    assert "<group>-<index>" in reasons["login"]
    loop.tick()
    writer = next(iter(loop.groups.writers.values()))
    assert writer._wanted == {"cpu": frozenset({0, 1, 2, 3})}


async def test_before_the_first_look_nothing_is_known_to_be_foreign() -> None:
    loop = known_world(Settings())
    loop._view = None
    assert loop.hook(Verb.RESUME, ["gpu-1"], "r", {}).accepted == ["gpu-1"]


async def test_a_group_that_two_targets_claim_is_a_problem_and_scaled_by_neither() -> None:
    loop = known_world(Settings())
    observe(loop, Kind.STATEFUL_SET, target("cpu", "uid-cpu"), target("x-worker-y"))
    observe(loop, Kind.SLURM_CLUSTER, slurm_cluster("x", "y"))
    words = loop.snapshot()["problems"]["groups"]
    assert "slurmcluster/slurm/x and statefulset/slurm/x-worker-y" in words
    assert "x-worker-y" in loop.hook(Verb.RESUME, ["x-worker-y-0"], "r", {}).ignored[0][1]
    observe(loop, Kind.SLURM_CLUSTER)
    assert "groups" not in loop.snapshot()["problems"]


async def test_a_group_that_is_gone_leaves_no_gauge_behind() -> None:
    loop = known_world(Settings())
    assert 'slurm_copilot_replicas{group="cpu"' in metrics(loop)
    observe(loop, Kind.STATEFUL_SET)
    assert 'slurm_copilot_replicas{group="cpu"' not in metrics(loop)
    assert 'slurm_copilot_nodes{group="cpu"' not in metrics(loop)


async def test_health_tells_what_is_missing_and_is_alive_while_waiting() -> None:
    loop = known_world(Settings())
    assert loop.health() == (True, True, "ok")
    loop.problems["slurm"] = "slurmctld is away"
    assert loop.health() == (True, True, "slurm: slurmctld is away")
    loop._view = None
    alive, ready, why = loop.health()
    assert (alive, ready) == (True, False)
    assert "no answer of slurmctld yet" in why


async def test_a_loop_that_does_not_tick_is_not_alive() -> None:
    loop = known_world(Settings())
    loop._ticked_at = asyncio.get_running_loop().time() - 31
    assert not loop.health().alive
