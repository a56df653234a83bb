"""A node that stays: `python -m tests.lab.node up|down|run FOLDER`, `python -m tests.lab.node check|exec|import FOLDER ARG...`.

up      starts one and returns when a pod could be created; `down` ends it and leaves nothing but FOLDER with the logs
run     the same in the foreground, until it is told to end
check   says what this machine lacks, a sentence a line; exit code 77 if it lacks anything
exec    runs a command inside, `import` gives it the images of docker-archives
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.lab.node.layout import State
from tests.lab.node.outside import Node, import_image, inside, remove_traces
from tests.lab.node.preflight import missing


async def _run(folder: Path) -> None:
    node = Node(folder)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    starting = asyncio.create_task(node.start())
    told = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            print(f"ready; KUBECONFIG={node.state.kubeconfig}", flush=True)
        while node.running and not stop.is_set() and starting.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.5)
        if starting.done() and not node.running:
            raise RuntimeError(f"the node ended by itself, see {node.state.log}")
    finally:
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError, RuntimeError):
            await starting
        told.cancel()
        await node.stop()


def _up(folder: Path, within: float = 180.0) -> int:
    state = State(folder)
    if _supervisor(state):
        print(f"a node runs already; KUBECONFIG={state.kubeconfig}")
        return 0
    if why := missing(folder):
        print("\n".join(why), file=sys.stderr)
        return 77
    state.ready.unlink(missing_ok=True)
    log = state.folder / "supervisor.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.node", "run", folder],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    state.supervisor.write_text(str(process.pid))
    begin = time.monotonic()
    while not (state.ready.exists() and state.first.exists()):
        if process.poll() is not None or time.monotonic() - begin > within:
            print(f"the node did not start:\n{log.read_text()[-3000:]}", file=sys.stderr)
            process.terminate()
            return 1
        time.sleep(0.05)
    print(f"ready after {time.monotonic() - begin:.1f} s; KUBECONFIG={state.kubeconfig}")
    return 0


def _down(folder: Path, within: float = 60.0) -> int:
    state = State(folder)
    begin = time.monotonic()
    if pid := _supervisor(state):
        os.kill(pid, signal.SIGTERM)
        while Path(f"/proc/{pid}").exists() and time.monotonic() - begin < within:
            time.sleep(0.05)
    token = state.folder / "token"
    if token.exists():  # its supervisor was killed, and could not tidy up
        remove_traces(state, token.read_text())
    state.supervisor.unlink(missing_ok=True)
    print(f"gone after {time.monotonic() - begin:.1f} s")
    return 0


def _supervisor(state: State) -> int:
    """The number of the process that keeps the node, 0 when there is none (another process may have got the number)."""
    if not state.supervisor.exists():
        return 0
    pid = int(state.supervisor.read_text())
    try:
        mine = b"tests.lab.node" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        mine = False
    return pid if mine else 0


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[0] not in ("up", "down", "run", "check", "exec", "import"):
        print(__doc__, file=sys.stderr)
        return 2
    verb, folder, rest = argv[0], Path(argv[1]).resolve(), argv[2:]
    if verb == "exec":
        return subprocess.run(inside(State(folder), *rest)).returncode
    if verb == "import":
        for archive in rest:
            import_image(State(folder), Path(archive))
        return 0
    if verb == "check":
        why = missing(folder)
        print("\n".join(why) or "this machine has all that a node needs")
        return 77 if why else 0
    if verb == "run":
        asyncio.run(_run(folder))
        return 0
    return _up(folder) if verb == "up" else _down(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
