"""From the daemon's answer to lines: all groups and nodes, or the story of one node. Pure."""

from __future__ import annotations

from typing import Any, Final

from copilot.hostlist import fold
from copilot.model import Phase
from copilot.status.table import Screen, age, table

_COMING: Final = (Phase.REQUESTED, Phase.SCALED, Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING)
_COLOURS: Final = {Phase.FAILED: "red", Phase.UP: "green", **dict.fromkeys(_COMING, "yellow")}
Known = dict[str, Any]


def troubled(known: Known) -> bool:
    """Whether something has failed. A held node is ordinary: a StatefulSet's window has it between two that are wanted."""
    groups = known.get("groups", ())
    if known.get("problems") or any(group.get("problem") or group.get("breaker") for group in groups):
        return True
    return any(node.get("phase") == Phase.FAILED for node in known.get("nodes", ()))


def overview(known: Known, screen: Screen) -> list[str]:
    """Groups, then nodes by phase, then what is amiss and what came last."""
    lines = _groups(known.get("groups", ()), screen)
    if known.get("nodes"):
        rows = [["PHASE", "NODES", "AGE", "SLURM", "JOBS", "REASON"], *_node_rows(known["nodes"])]
        lines += ["", *table(rows, screen, ["", *(_COLOURS.get(row[0], "") for row in rows[1:])])]
    lines += [screen.paint(f"problem: {what}: {words}", "red") for what, words in sorted(known.get("problems", {}).items())]
    return [*lines, "", *_last(known)]


def _groups(groups: list[Known], screen: Screen) -> list[str]:
    columns = {
        "UP": (Phase.UP,),
        "COMING": _COMING,
        "LEAVING": (Phase.RELEASING,),
        "HELD": (Phase.HELD,),
        "FAILED": (Phase.FAILED,),
    }
    rows = [["GROUP", "TARGET", "NODES", "REPLICAS", "PODS", *columns, "IDLE", "SCALING", "PROBLEM"]]
    colours = [""]
    for group in groups:
        phases = group.get("phases", {})
        counts = [sum(phases.get(phase, 0) for phase in among) for among in columns.values()]
        first = [group[key] for key in ("name", "target", "nodes", "replicas", "pods")]
        rows.append([*first, *counts, group.get("idle", 0), _scaling(group), group.get("problem") or "-"])
        colours.append("red" if group.get("problem") or group.get("breaker") else "yellow" if group.get("held") else "")
    return table(rows, screen, colours)


def _scaling(group: Known) -> str:
    """Whether new nodes are started."""
    if group.get("held"):
        return "held by an operator"
    breaker = group.get("breaker")
    if not breaker:
        return "on"
    when = f"{breaker['probe']} tries" if breaker["probe"] else f"next try in {age(breaker['next_try'])}"
    return f"breaker open after {breaker['failures']} failures ({breaker['reason']}), {when}"


def _node_rows(nodes: list[Known]) -> list[list[Any]]:
    """Nodes of one group that are in the same state for the same reason share a row, with the age of the oldest."""
    order = list(Phase)
    together: dict[tuple[Any, ...], list[Known]] = {}
    for node in nodes:
        key = (
            order.index(node["phase"]),
            node["group"],
            node.get("state", ""),
            node.get("reason", ""),
            tuple(node.get("jobs", ())),
        )
        together.setdefault(key, []).append(node)
    rows = []
    for (phase, _, state, reason, jobs), members in sorted(together.items()):
        oldest = age(max(node["age"] for node in members))
        rows.append(
            [order[phase], fold(node["name"] for node in members), oldest, state, ",".join(map(str, jobs)) or "-", reason or "-"]
        )
    return rows


def _last(known: Known) -> list[str]:
    lines = []
    if hook := known.get("last_hook"):
        lines.append(
            f"Last hook {age(hook['age'])} ago: {hook['action']} {hook['nodes']} ({hook['accepted']} accepted, request {hook['request_id']})"
        )
    if error := known.get("last_error"):
        lines.append(f"Last error {age(error['age'])} ago: {error['event']}: {error['error']}")
    seen = known.get("view_age")
    lines.append(f"Slurm last seen {age(seen)} ago" if seen is not None else "Slurm has not answered yet")
    return lines


def story(node: Known, screen: Screen) -> list[str]:
    """One node: where it is, why, what comes next, how its last start went, its pod, what Kubernetes told."""
    phase = screen.paint(node["phase"], _COLOURS.get(node["phase"], ""))
    lines = [
        screen.paint(node["name"], "bold"),
        f"  phase    {phase} for {age(node['age'])}, Slurm says {node['state']}",
        f"  target   {node['target']}",
        f"  next     {node['next']}",
    ]
    if node.get("reason"):
        lines.insert(2, f"  reason   {node['failure'] + ': ' if node.get('failure') else ''}{node['reason']}")
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
    return [screen.fit(line) if not screen.colours else line for line in lines]


def _pod(pod: Known | None) -> list[str]:
    if not isinstance(pod, dict):
        return ["  pod      none"]
    words = [word for word in ("scheduled", "running", "ready", "terminating") if pod[word]]
    where = f" on {pod['host']}" if pod["host"] else ""
    restarts = f"{pod['restarts']} restarts, address {pod['ip'] or 'none'}"
    lines = [f"  pod      {pod['phase']}{where} for {age(pod['age'])}, {', '.join(words) or 'not scheduled'}, {restarts}"]
    return lines + ([f"           {pod['trouble']}: {pod['message']}"] if pod["trouble"] else [])
