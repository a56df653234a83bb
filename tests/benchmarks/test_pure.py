"""What the steps of one round cost by themselves with 10,000 nodes: CPU time of this process, medians."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from copilot.hostlist import expand, fold
from copilot.model import Kind, Node, Phase, Pod, PodView, SlurmView, TargetRef, WorkerGroup
from copilot.plan import Member, Policy, Track, World, active, plan
from copilot.slurm.output import NodeLines
from tests.benchmarks.figures import Figures, median
from tests.lab.slurm import SlurmLab, Workers

NODES, IN_FLIGHT = 10_000, 1_000
REPEATS = 15


def _milliseconds(call: Callable[[], object]) -> float:
    """Median of CPU time; the first run is not counted."""
    taken = []
    for _ in range(REPEATS + 1):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return median(taken[1:], 1e3)


async def test_parse(folder: Path, figures: Figures) -> None:
    """What a real scontrol prints, and json of the same size as the floor: nobody makes 10,000 objects for less."""
    lab = SlurmLab("22.05", folder, workers=(Workers("cpu", NODES, "cpu"),))
    await lab.start()
    try:
        lines = (await lab.scontrol("-o", "show", "nodes")).splitlines()
    finally:
        await lab.stop()
    lines = [line for line in lines if line.startswith("NodeName=")]
    assert len(lines) == NODES
    text = json.dumps([{word.partition("=")[0]: word.partition("=")[2] for word in line.split()} for line in lines])

    def parse() -> None:
        parser = NodeLines()
        assert len([parser.node(line) for line in lines]) == NODES

    figures.add("parse_10000_nodes_ms", _milliseconds(parse), "ms", "scontrol -o show nodes to nodes, in steps of 32 KiB")
    figures.add(
        "parse_10000_nodes_json_ms", _milliseconds(lambda: json.loads(text)), "ms", "floor: json.loads of as much (C code)"
    )


def test_hostlists(figures: Figures) -> None:
    names = [f"cpu-{index}" for index in range(0, 2 * NODES, 2)]
    figures.add("fold_10000_nodes_ms", _milliseconds(lambda: fold(names)), "ms", "every second name, the longest hostlist")
    text = fold(names)
    figures.add("expand_10000_nodes_ms", _milliseconds(lambda: expand(text, NODES)), "ms", "and back")


def test_plan(figures: Figures) -> None:
    off, up = Node("", "IDLE", frozenset({"CLOUD", "POWERED_DOWN"})), Node("", "ALLOCATED", frozenset({"CLOUD"}))
    for name, rest, words in (
        ("plan_10000_nodes_off_ms", off, "9,000 of 10,000 nodes are off"),
        ("plan_10000_nodes_up_ms", up, "9,000 of 10,000 nodes are up"),
    ):
        world, policy = _world(rest), Policy()
        assert len(plan(world, policy).desired["cpu"]) == (NODES if rest is up else IN_FLIGHT)
        figures.add(name, _milliseconds(lambda: plan(world, policy)), "ms", f"one decision: 1,000 in flight, {words}")  # noqa: B023


def _world(rest: Node) -> World:
    """Nodes 0 to 999 are in flight with running pods, the others are like `rest`."""
    group, now = WorkerGroup("cpu", TargetRef(Kind.STATEFUL_SET, "slurm", "cpu")), 1000.0
    coming = frozenset({"CLOUD", "NOT_RESPONDING", "POWERING_UP"})
    members = {group.node(index): Member(group, index) for index in range(NODES)}
    nodes, pods, tracks = {}, {}, {}
    for name, member in members.items():
        in_flight = member.index < IN_FLIGHT
        nodes[name] = Node(name, "ALLOCATED", coming) if in_flight else Node(name, rest.base, rest.flags)
        if in_flight or nodes[name].up:
            pods[name] = Pod(name, f"uid-{name}", now - 5, phase="Running", scheduled=True, running=True, ready=True, owner="cpu")
            tracks[name] = _track(now, f"uid-{name}", in_flight)
    view = SlurmView(now, nodes)
    covers = {"cpu": frozenset(members[name].index for name in pods)}
    return World(
        now=now,
        slurm=view,
        pods=PodView(True, pods),
        groups={"cpu": group},
        members=members,
        active=active(view),
        covers=covers,
        tracks=tracks,
    )


def _track(now: float, uid: str, in_flight: bool) -> Track:
    return Track(
        Phase.RUNNING if in_flight else Phase.UP,
        now,
        requested_at=now - 6,
        scaled_at=now - 6,
        pending_at=now - 5,
        scheduled_at=now - 5,
        running_at=now - 1,
        up_at=None if in_flight else now,
        pod_uid=uid,
    )
