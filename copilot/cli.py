"""The command line: `serve` runs the daemon, `status` asks a running one."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from copilot import __version__, config, status

SERVE = """Runs until SIGTERM or SIGINT. Every setting is a flag or an environment variable; the flag wins.
Nothing needs to be set in a pod whose namespace holds the targets."""
STATUS = """Asks the running copilot over its socket.

exit codes:
  0  all is well
  1  the copilot answered, and something has failed: a node in phase failed, an open breaker, or a problem
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
        settings = config.load({"socket": arguments.socket}, _socket_only(os.environ))
        return status.run(str(settings.socket), arguments.nodes or "", as_json=arguments.json, watch=arguments.watch)
    except config.ConfigError as error:
        print(f"slurmctld-copilot: {error}", file=sys.stderr)
        return status.CANNOT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurmctld-copilot", description="The bridge between Slurm's power saving and Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"slurmctld-copilot {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve | status | check")
    serve = commands.add_parser("serve", help="run the daemon", description=SERVE)
    config.add_arguments(serve)
    raw = argparse.RawDescriptionHelpFormatter
    told = commands.add_parser("status", help="show what a running daemon knows", description=STATUS, formatter_class=raw)
    told.add_argument("nodes", nargs="?", metavar="NODES", help="tell the whole story of these nodes (a hostlist) instead")
    told.add_argument("--socket", metavar="PATH", help="the copilot's unix socket [COPILOT_SOCKET]")
    told.add_argument("--json", action="store_true", help="everything, for machines")
    told.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")
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

    from copilot.logs import configure_logging
    from copilot.reconcile import run

    configure_logging(settings.log_level, settings.log_format)
    for name, meant in config.misspelt(os.environ).items():
        structlog.get_logger().warning("unknown_setting", name=name, meant=meant)
    return asyncio.run(run(settings))


def _check(settings: config.Settings, *, as_json: bool) -> int:
    from copilot import check

    findings = asyncio.run(check.run(settings))
    print(check.as_json(findings) if as_json else check.as_text(findings))
    return status.TROUBLE if check.failed(findings) else status.WELL


if __name__ == "__main__":
    sys.exit(main())
