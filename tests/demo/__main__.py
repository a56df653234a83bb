"""`python -m tests.demo`: tells the story once. Exit code 0 only if all went as it should and nothing is left behind.

COPILOT_KUBERNETES=real: on a real control plane. COPILOT_LAB_PLAIN=1: without namespaces, as on machines that give none.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from tests.demo.leftovers import left_behind
from tests.demo.story import DemoError, cluster_of, say, tell
from tests.lab.controlplane import TREE
from tests.lab.slurm import LabError

ISOLATED = TREE / "tests/lab/isolated"
REFUSED = 77


def enter_namespaces() -> bool:
    """Starts the demo anew inside namespaces, where this does not return; False, said aloud, where the machine gives none."""
    if os.environ.get("COPILOT_ISOLATED") == "1":
        return True
    probe = subprocess.run([str(ISOLATED), "true"], capture_output=True, text=True)
    if probe.returncode != REFUSED:
        os.execv(ISOLATED, [str(ISOLATED), sys.executable, "-m", "tests.demo"])  # noqa: S606 - it is ours
    say(
        f"No network namespaces here ({probe.stderr.strip().removeprefix('tests/lab/isolated: ')}): each node gets a port of 127.0.0.1 instead"
    )
    return False


async def demo(folder: Path, *, namespaces: bool) -> int:
    kubernetes: Literal["embedded", "real"] = "real" if os.environ.get("COPILOT_KUBERNETES") == "real" else "embedded"
    api = "a real control plane" if kubernetes == "real" else "the tests' own API server (KUBERNETES=real takes a real one)"
    say(f"Starting slurmctld 22.05, {api}, and the copilot; files are in {folder}")
    began = time.monotonic()
    async with cluster_of(folder, kubernetes, namespaces=namespaces) as cluster:
        print(f"    all up after {time.monotonic() - began:.1f} s", flush=True)
        try:
            await tell(cluster)
        except (DemoError, LabError, AssertionError) as error:
            print(f"\nFAILED: {error}", file=sys.stderr, flush=True)
            return 1
        finally:
            say("Cleaning up")
    return 0


async def interruptible(folder: Path, *, namespaces: bool) -> int:
    """Ctrl-C and SIGTERM end the demo as its own end would: everything is taken down, in order."""
    task = asyncio.create_task(demo(folder, namespaces=namespaces))
    got: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        got.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        print("\ninterrupted", file=sys.stderr, flush=True)
        return 128 + got[0]


def main() -> int:
    if os.geteuid() != 0:
        print("the demo runs slurmctld as SlurmUser and makes namespaces: run it as root", file=sys.stderr)
        return 1
    namespaces = enter_namespaces()
    folder = Path(tempfile.mkdtemp(prefix="slurmctld-copilot-demo-", dir="/tmp"))
    began = time.monotonic()
    code = asyncio.run(interruptible(folder, namespaces=namespaces))
    if left := left_behind(folder):
        print("LEFT BEHIND: " + "; ".join(left), file=sys.stderr)
        code = code or 1
    if code == 1:
        print(f"logs are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    if code == 0:
        print(f"    nothing is left: no pod, no process, no namespace. {time.monotonic() - began:.0f} s in all", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
