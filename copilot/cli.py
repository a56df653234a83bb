"""The command line: `serve` runs the daemon, `status` asks a running one."""

from __future__ import annotations

import argparse
import asyncio
import http
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from copilot import __version__, config
from copilot.unixhttp import ask

WELL, TROUBLE, CANNOT = 0, 1, 2
SERVE = """Runs until SIGTERM or SIGINT. Every setting is a flag or an environment variable; the flag wins.
Nothing needs to be set in a pod whose namespace holds the targets."""
STATUS = """Asks the running copilot over its socket.

exit codes:
  0  all is well
  1  the copilot answered, and something has failed: a node in phase failed, or a problem
  2  the copilot cannot be asked, or not with these arguments"""

CHECK = """Looks at slurm.conf as slurmctld uses it, at the hooks, at Kubernetes, and at whether they fit together. Changes nothing.
Run it in the head pod, before and after an installation; the settings are those of serve.

exit codes:
  0  nothing is broken (there may be warnings)
  1  at least one error
  2  wrong arguments"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "serve":
            return _serve(config.load(vars(arguments), os.environ))
        if arguments.command == "check":
            return _check(config.load(vars(arguments), os.environ), as_json=arguments.json)
        return _status(config.load({"socket": arguments.socket}, _socket_only(os.environ)), as_json=arguments.json)
    except config.ConfigError as error:
        print(f"slurmctld-copilot: {error}", file=sys.stderr)
        return CANNOT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurmctld-copilot", description="The bridge between Slurm's power saving and Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"slurmctld-copilot {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve | status | check")
    serve = commands.add_parser("serve", help="run the daemon", description=SERVE)
    config.add_arguments(serve)
    raw = argparse.RawDescriptionHelpFormatter
    status = commands.add_parser("status", help="show what a running daemon knows", description=STATUS, formatter_class=raw)
    status.add_argument("--socket", metavar="PATH", help="the copilot's unix socket [COPILOT_SOCKET]")
    status.add_argument("--json", action="store_true", help="everything, for machines")
    check = commands.add_parser("check", help="look for what is set wrongly", description=CHECK, formatter_class=raw)
    check.add_argument("--json", action="store_true", help="for machines")
    config.add_arguments(check)
    return parser


def _socket_only(environ: os._Environ[str]) -> dict[str, str]:
    """`status` may run where the daemon's other settings make no sense; slurm_user is checked against this machine, so it is set."""
    given = {name: value for name, value in environ.items() if name == "COPILOT_SOCKET"}
    return given | {"COPILOT_SLURM_USER": "0"}


def _serve(settings: config.Settings) -> int:
    # Imported here: `status` and `--help` need none of it, and it takes half a second.
    import structlog

    from copilot.reconcile import run
    from copilot.telemetry import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    for name, meant in config.misspelt(os.environ).items():
        structlog.get_logger().warning("unknown_setting", name=name, meant=meant)
    return asyncio.run(run(settings))


def _check(settings: config.Settings, *, as_json: bool) -> int:
    from copilot import check

    findings = asyncio.run(check.run(settings))
    print(check.as_json(findings) if as_json else check.as_text(findings))
    return TROUBLE if check.failed(findings) else WELL


def _status(settings: config.Settings, *, as_json: bool) -> int:
    try:
        code, known = ask(str(settings.socket), "/v1/nodes")
    except (OSError, ValueError) as error:
        print(
            f"slurmctld-copilot: no answer at {settings.socket}: {error or type(error).__name__}; is it running? see --socket",
            file=sys.stderr,
        )
        return CANNOT
    if code != http.HTTPStatus.OK:
        print(f"slurmctld-copilot: {known.get('error', code)}", file=sys.stderr)
        return CANNOT
    known.pop("request_id", None)
    print(json.dumps(known, indent=2) if as_json else "\n".join(_lines(known)))
    return TROUBLE if _troubled(known) else WELL


def _troubled(known: dict[str, Any]) -> bool:
    """Whether something has failed. A held node is ordinary: a StatefulSet's window has it between two that are wanted."""
    if known.get("problems") or any(group.get("problem") for group in known.get("groups", ())):
        return True
    return any(node.get("phase") == "failed" for node in known.get("nodes", ()))


def _lines(known: dict[str, Any]) -> list[str]:
    """The picture for people: groups, then nodes by phase, then problems."""
    from copilot.model import Phase

    coming = [Phase.REQUESTED, Phase.SCALED, Phase.PENDING, Phase.SCHEDULED, Phase.RUNNING]
    columns = {"UP": [Phase.UP], "COMING": coming, "LEAVING": [Phase.RELEASING], "HELD": [Phase.HELD], "FAILED": [Phase.FAILED]}
    rows = [["GROUP", "TARGET", "NODES", "REPLICAS", "PODS", *columns, "PROBLEM"]]
    for group in known.get("groups", ()):
        phases = group.get("phases", {})
        counts = [sum(phases.get(phase, 0) for phase in among) for among in columns.values()]
        rows.append(
            [group[key] for key in ("name", "target", "nodes", "replicas", "pods")] + [*counts, group.get("problem") or "-"]
        )
    lines = _table(rows)
    if known.get("nodes"):
        lines += ["", *_table([["PHASE", "NODES", "AGE", "SLURM", "JOBS", "REASON"], *_node_rows(known["nodes"])])]
    lines += [f"problem: {what}: {words}" for what, words in sorted(known.get("problems", {}).items())]
    age = known.get("view_age")
    lines += ["", f"Slurm last seen {_age(age)} ago" if age is not None else "Slurm has not answered yet"]
    return lines


def _node_rows(nodes: list[dict[str, Any]]) -> list[list[Any]]:
    """Nodes of one group that are in the same state for the same reason share a row, with the age of the oldest."""
    from copilot.hostlist import fold
    from copilot.model import Phase

    order = list(Phase)
    together: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
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
        age = _age(max(node["age"] for node in members))
        rows.append(
            [order[phase], fold(node["name"] for node in members), age, state, ",".join(map(str, jobs)) or "-", reason or "-"]
        )
    return rows


def _table(rows: list[list[Any]]) -> list[str]:
    """Columns side by side; only the last one may be of any width."""
    texts = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def _age(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"


if __name__ == "__main__":
    sys.exit(main())
