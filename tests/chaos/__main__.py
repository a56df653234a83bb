"""`python -m tests.chaos`: chaos by seeds, one after the other, inside tests/lab/isolated. Exit code 1 when something was violated."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.operations import Operation, classes, operations
from tests.chaos.run import Report, run
from tests.chaos.shrink import shrunk
from tests.chaos.telling import summary, trace

TREE = Path(__file__).resolve().parents[2]


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Random operations under random faults.")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the first run (default: any)")
    parser.add_argument("--operations", type=int, default=120, help="of one run (120)")
    parser.add_argument("--minutes", type=float, default=0.0, help="further seeds until this time is over (default: one run)")
    parser.add_argument(
        "--only", default="", metavar="N,N,...", help="only the operations with these numbers, at their old times"
    )
    parser.add_argument("--shrink-minutes", type=float, default=8.0, help="time for finding fewer operations that fail (8)")
    return parser.parse_args(argv)


def only(plan: Sequence[Operation], numbers: str) -> tuple[Operation, ...]:
    """The operations with these numbers; all when none is named."""
    wanted = {int(number) for number in numbers.split(",") if number}
    return tuple(one for one in plan if one.number in wanted) if wanted else tuple(plan)


async def main(options: argparse.Namespace) -> int:
    """TERM ends it as Ctrl-C does: with everything taken down."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    slurm, real = os.environ.get("COPILOT_SLURM", "22.05"), os.environ.get("COPILOT_KUBERNETES") == "real"
    kubernetes = "real" if real else "embedded"
    end = time.monotonic() + options.minutes * 60
    seed, failed, total = options.seed, 0, 0
    while seed == options.seed or time.monotonic() < end:
        plan = only(operations(seed, options.operations, classes(seed, real=real)), options.only)
        keep = TREE / "artifacts/chaos" / f"{slurm}-{kubernetes}-{seed}"

        async def play(part: Sequence[Operation], kept: Path | None = None) -> Report:
            return await run(part, slurm, "real" if real else "embedded", kept)

        report = await play(plan, keep)
        total += len(report.done)
        print(summary(seed, slurm, kubernetes, report), flush=True)
        if report.failed:
            failed += 1
            fewer, last = await shrunk(plan, report, play, options.shrink_minutes * 60)
            print(trace(seed, options.operations, slurm, kubernetes, fewer, last, keep), flush=True)
        seed += 1
    print(f"{seed - options.seed} runs with {total} operations: {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("COPILOT_ISOLATED") != "1":
        print("run this inside tests/lab/isolated, as `make chaos` does", file=sys.stderr)
        sys.exit(2)
    # Who is cut off in the middle of an answer is cut off by us.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    sys.exit(asyncio.run(main(arguments(sys.argv[1:]))))
