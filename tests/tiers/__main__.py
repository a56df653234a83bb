"""`python -m tests.tiers`: the command line. The last line on stdout is always `N passed, N failed, N skipped`.

Exit codes: 0 nothing failed, 1 something failed, 2 wrong arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.tiers.outcome import Outcome, summary, total
from tests.tiers.schedule import Schedule
from tests.tiers.table import TIERS, TREE, Tier, select

_COLOURS: Final = {"passed": "32", "failed": "31", "skipped": "33"}


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; ends the process with code 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.tiers", description="Run the tiers of tests.")
    names = ", ".join(tier.name for tier in TIERS)
    parser.add_argument("--only", metavar="TIERS", help=f"comma-separated names or families of: {names}")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("COPILOT_TEST_JOBS", "2")), help="tiers at once (2)")
    parser.add_argument("--logs", type=Path, default=TREE / "artifacts" / "tiers", help="folder of the logs (artifacts/tiers)")
    parser.add_argument("--list", action="store_true", help="print the table and end")
    parser.add_argument("pytest_arguments", nargs="*", metavar="-- ARG", help="more arguments for pytest in every tier")
    parsed = parser.parse_args(argv)
    if parsed.jobs < 1:
        parser.error("--jobs must be at least 1")
    try:
        parsed.tiers = select(parsed.only)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def coloured(line: str) -> str:
    """The results in colour, on a terminal that wants it."""
    if not sys.stdout.isatty() or os.environ.get("CI") == "true" or os.environ.get("NO_COLOR"):
        return line
    return re.sub(r"(?<= )(passed|failed|skipped)(?=:|  )", lambda found: f"\x1b[{_COLOURS[found[0]]}m{found[0]}\x1b[0m", line)


def say(line: str) -> None:
    """One line, at once."""
    print(coloured(line), flush=True)


async def run_all(options: argparse.Namespace, scratch: Path) -> list[Outcome]:
    """Runs the chosen tiers. TERM and HUP end it as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    options.logs.mkdir(parents=True, exist_ok=True)
    extra: list[str] = options.pytest_arguments
    schedule = Schedule(options.tiers, jobs=options.jobs, logs=options.logs.absolute(), scratch=scratch, say=say, extra=extra)
    return await schedule.run()


def table(tiers: Sequence[Tier]) -> list[str]:
    """One line per tier: what it runs and what it needs."""
    return [f"{tier.name:<20} {tier.target:<16} {' '.join((*tier.needs, *tier.wants))}".rstrip() for tier in tiers]


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit code."""
    options = arguments(argv)
    if options.list:
        print("\n".join(table(options.tiers)))
        return 0
    # Not in $TMPDIR: the lab's folders must be where SlurmUser can go, and paths of unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="tiers-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)
        try:
            outcomes = asyncio.run(run_all(options, Path(scratch)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("interrupted; everything that was started has ended", file=sys.stderr, flush=True)
            return 130
    order = [tier.name for tier in options.tiers]
    outcomes.sort(key=lambda outcome: order.index(outcome.tier))
    for line in summary(outcomes):
        say(line)
    return 1 if total(outcomes).failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
