"""From the daemon's answer to lines: all groups and nodes, or the story of one node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from copilot.hostlist import fold
from copilot.model import Phase
from copilot.status.table import Screen, age, table

_COMING: Final = (Phase.REQUESTED, Phase.SCALED, Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING)
_COLOURS: Final = {Phase.FAILED: "red", Phase.UP: "green", **dict.fromkeys(_COMING, "yellow")}
Known = dict[str, Any]
# So many characters of a hostlist, and job numbers, are shown in a row of the table.
_NAMES: Final = 48
_JOBS: Final = 3


def troubled(known: Known) -> bool:
    """Whether something has failed. A held node is ordinary: a StatefulSet's window has it between two that are wanted."""
    groups = known.get("groups", ())
    if known.get("problems") or any(group.get("problem") or group.get("breaker") for group in groups):
        return True
    return any(node.get("phase") == Phase.FAILED for node in known.get("nodes", ()))


def overview(known: Known, screen: Screen) -> list[str]:
    """Groups, then what holds them up, then nodes by phase, then what is amiss and what came last."""
    groups = known.get("groups", ())
    lines = [*_groups(groups, screen), *_held_up(groups, screen)]
    if known.get("nodes"):
        rows = [["PHASE", "AGE", "NODES", "SLURM", "JOBS", "REASON"], *_node_rows(known["nodes"])]
        lines += ["", *table(rows, screen, ["", *(_COLOURS.get(row[0], "") for row in rows[1:])])]
    for what, words in sorted(known.get("problems", {}).items()):
        lines += screen.wrapped(f"problem: {what}: {words}", "red")
    return [*lines, "", *(line for words in _last(known) for line in screen.wrapped(words))]


def _groups(groups: Sequence[Known], screen: Screen) -> list[str]:
    """What matters most stands first: a narrow screen cuts the end."""
    columns = {
        "UP": (Phase.UP,),
        "COMING": _COMING,
        "LEAVING": (Phase.RELEASING,),
        "HELD": (Phase.HELD,),
        "FAILED": (Phase.FAILED,),
    }
    rows = [["GROUP", "SCALING", *columns, "IDLE", "PODS", "REPLICAS", "NODES", "TARGET"]]
    colours = [""]
    for group in groups:
        phases = group.get("phases", {})
        counts = [sum(phases.get(phase, 0) for phase in among) for among in columns.values()]
        last = [group[key] for key in ("pods", "replicas", "nodes", "target")]
        rows.append([group["name"], _scaling(group), *counts, group.get("idle", 0), *last])
        colours.append("red" if group.get("problem") or group.get("breaker") else "yellow" if group.get("held") else "")
    return table(rows, screen, colours)


def _scaling(group: Known) -> str:
    """Whether new nodes are started, in a word."""
    return "held" if group.get("held") else "paused" if group.get("breaker") else "failing" if group.get("problem") else "on"


def _held_up(groups: Sequence[Known], screen: Screen) -> list[str]:
    """Why a group's scaling is not simply on, and what stays on although nobody uses it."""
    lines = []
    for group in groups:
        if group.get("held"):
            lines += screen.wrapped(f"{group['name']}: held by an operator", "yellow")
        if breaker := group.get("breaker"):
            when = f"{breaker['probe']} tries" if breaker["probe"] else f"next try in {age(breaker['next_try'])}"
            cause = f"{breaker['failures']} failures ({breaker['reason']}: {breaker['message']})"
            lines += screen.wrapped(f"{group['name']}: breaker open after {cause}, {when}", "red")
        if group.get("problem"):
            lines += screen.wrapped(f"{group['name']}: {group['problem']}", "red")
        for kept in group.get("kept_up", ()):
            lines += screen.wrapped(f"{group['name']}: idle but never suspended: {kept['nodes']}: {kept['why']}", "yellow")
    return lines


def _node_rows(nodes: Sequence[Known]) -> list[list[Any]]:
    """Nodes of one group that are in the same state for the same reason share a row, with the age of the oldest and some of their jobs."""
    order = list(Phase)
    together: dict[tuple[Any, ...], list[Known]] = {}
    for node in nodes:
        key = (order.index(node["phase"]), node["group"], node.get("state", ""), node.get("reason", ""))
        together.setdefault(key, []).append(node)
    rows = []
    for (phase, _, state, reason), members in sorted(together.items()):
        oldest = age(max(node["age"] for node in members))
        names = _cut(fold(node["name"] for node in members), len(members))
        jobs = sorted({job for node in members for job in node.get("jobs", ())})
        rows.append([order[phase], oldest, names, state, _some(jobs), reason or "-"])
    return rows


def _some(jobs: Sequence[int]) -> str:
    """The first few, and how many more."""
    shown = ",".join(map(str, jobs[:_JOBS])) or "-"
    return shown if len(jobs) <= _JOBS else f"{shown},+{len(jobs) - _JOBS}"


def _cut(names: str, count: int) -> str:
    """A hostlist that leaves room for the reason: scattered nodes fold badly. `--json` has them all."""
    return names if len(names) <= _NAMES else f"{names[: _NAMES - 12]}… ({count})"


def _last(known: Known) -> list[str]:
    lines = []
    if hook := known.get("last_hook"):
        said = f"{hook['action']} {hook['nodes']} ({hook['accepted']} accepted, request {hook['request_id']})"
        lines.append(f"Last hook {age(hook['age'])} ago: {said}")
    if error := known.get("last_error"):
        lines.append(f"Last error {age(error['age'])} ago: {error['event']}: {error['error']}")
    seen = known.get("view_age")
    lines.append(f"Slurm last seen {age(seen)} ago" if seen is not None else "Slurm has not answered yet")
    return lines


def story(node: Known, screen: Screen) -> list[str]:
    """One node: where it is, why, what comes next, how its last start went, its pod, what Kubernetes told."""
    lines = [
        node["name"],
        f"  phase    {node['phase']} for {age(node['age'])}, Slurm says {node['state']}",
        f"  target   {node['target']}",
        f"  next     {node['next']}",
    ]
    if node.get("reason"):
        lines.insert(2, f"  reason   {node['failure'] + ': ' if node.get('failure') else ''}{node['reason']}")
    if node.get("kept_up"):
        lines.append(f"  idle     never suspended: {node['kept_up']}")
    if node.get("jobs"):
        lines.append(
            f"  jobs     {','.join(map(str, node['jobs']))} (of its last resume, request {node['request_id'] or 'none'})"
        )
    if stages := node.get("stages"):
        lines.append(
            f"  start    {', '.join(f'{stage} +{seconds:g} s' for stage, seconds in stages.items())}, {sum(stages.values()):.3g} s in all"
        )
    lines += _pod(node.get("pod"))
    lines += [
        f"  event    {age(event['age'])} ago, {event['about']}: {event['reason']}: {event['message']}"
        for event in node.get("events", ())
    ]
    colours = {0: "bold", 1: _COLOURS.get(node["phase"], "")}
    return [screen.paint(screen.fit(line), colours.get(number, "")) for number, line in enumerate(lines)]


def _pod(pod: Known | None) -> list[str]:
    if not isinstance(pod, dict):
        return ["  pod      none"]
    words = [word for word in ("scheduled", "running", "ready", "terminating") if pod[word]]
    where = f" on {pod['host']}" if pod["host"] else ""
    restarts = f"{pod['restarts']} restarts, address {pod['ip'] or 'none'}"
    lines = [f"  pod      {pod['phase']}{where} for {age(pod['age'])}, {', '.join(words) or 'not scheduled'}, {restarts}"]
    return lines + ([f"           {pod['trouble']}: {pod['message']}"] if pod["trouble"] else [])
