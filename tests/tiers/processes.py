"""One program, its output in a file, its time limited, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.tiers.outcome import Ended
from tests.tiers.table import TREE

# Should this runner be killed outright, what it started is told to end too.
_FOLLOW: Final = ("setpriv", "--pdeathsig", "TERM", "--")
_GRACE_SECONDS: Final = 20.0


async def run(argv: Sequence[str], log: Path, limit: float, env: Mapping[str, str] | None = None) -> Ended:
    """Runs a program in the tree, in a session of its own, with both outputs in `log`.

    After `limit` seconds, and when this task is cancelled, its process group gets TERM and 20 s later KILL.
    Raises OSError when it cannot be started.
    """
    begin = time.monotonic()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *_FOLLOW,
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
            cwd=TREE,
        )
    code: int | None = None
    try:
        async with asyncio.timeout(limit):
            code = await process.wait()
    except TimeoutError:
        code = None
    finally:
        await _end(process)
    return Ended(code, time.monotonic() - begin, log)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the group. A leader that has ended may have left others of its group behind: they are killed."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
