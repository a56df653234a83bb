"""The node from outside: made, used and removed. Its namespaces end with the process that made it, whatever happens to that."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.lab.component import Component
from tests.lab.endpoint import ApiEndpoint
from tests.lab.node import cgroups, preflight
from tests.lab.node.layout import CONTAINERD_SOCKET, State, need

_HERE: Final = Path(__file__).resolve().parent
_SPACES: Final = ("--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup")


class Node:
    """One real node with its control plane; only one at a time can be in a network namespace.

    `folder` takes its state: it is made, and keeps the logs and keys after `stop`.
    """

    def __init__(self, folder: Path) -> None:
        self.state = State(folder.resolve())
        self._token = secrets.token_hex(4)
        self._space: Component | None = None

    async def start(self, within: float = 180.0) -> ApiEndpoint:
        """Returns when a pod could be created. RuntimeError that says what is missing, or with the end of the log after `within` s."""
        folder = self.state.folder
        if why := await asyncio.to_thread(preflight.missing, folder):
            raise RuntimeError("; ".join(why))
        self.state.ready.unlink(missing_ok=True)
        self.state.log.unlink(missing_ok=True)
        (folder / "token").write_text(self._token)
        cgroups.sweep()
        groups = cgroups.make(self._token)
        space: list[str | Path] = [_HERE / "space", str(os.getpid()), self._link, *groups, "--"]
        inside: list[str | Path] = [sys.executable, "-m", "tests.lab.node.inside", folder]
        tree = {"PYTHONPATH": str(_HERE.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
        self._space = Component("node", [*space, *inside], self.state.log, tree)
        self._space.start()
        try:
            await self._space.ready(self._is_ready, within)
        except BaseException:
            await self.stop()
            raise
        self.state.first.write_text(str(_first_child(self._space.pid)))
        return endpoint(self.state)

    async def stop(self) -> None:
        """Everything of it ends at once. RuntimeError names what could not be removed; harmless when it does not run."""
        if self._space is None:
            return
        first = _first_child(self._space.pid) if self._space.running else 0
        await self._space.kill()
        await asyncio.to_thread(_wait_gone, first)
        self._space = None
        remove_traces(self.state, self._token)

    @property
    def running(self) -> bool:
        return self._space is not None and self._space.running

    @property
    def _link(self) -> str:
        return link_name(self._token)

    async def _is_ready(self) -> bool:
        return self.state.ready.exists()


def endpoint(state: State) -> ApiEndpoint:
    """The API server of a node that runs, with the administrator's token."""
    user = json.loads(state.kubeconfig.read_text())
    url, token = user["clusters"][0]["cluster"]["server"], user["users"][0]["user"]["token"]
    return ApiEndpoint(url, state.plane / "ca.crt", token, state.kubeconfig)


def inside(state: State, *argv: str | Path) -> list[str]:
    """The command that runs `argv` in the namespaces of a node that runs."""
    return ["nsenter", "--target", state.first.read_text(), *_SPACES, "--", *map(str, argv)]


def import_image(state: State, archive: Path) -> None:
    """Gives the node the images of a docker-archive. CalledProcessError when containerd refuses it."""
    ctr: list[str | Path] = [
        need("ctr"),
        "--address",
        str(CONTAINERD_SOCKET),
        "--namespace",
        "k8s.io",
        "images",
        "import",
        archive.resolve(),
    ]
    subprocess.run(inside(state, *ctr), check=True, stdout=subprocess.DEVNULL)


def kubectl(state: State, *argv: str, text: str = "") -> str:
    """What it prints, as the administrator. CalledProcessError with its complaint in `stderr` when it fails."""
    command = [str(need("kubectl")), f"--kubeconfig={state.kubeconfig}", *argv]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout


def link_name(token: str) -> str:
    """The outer end of the node's network."""
    return f"node-{token}"


def remove_traces(state: State, token: str) -> None:
    """What the end of the processes leaves: the veth for a moment, the control groups, and the bulk of the state folder."""
    subprocess.run(["ip", "link", "delete", link_name(token)], capture_output=True)
    left = cgroups.remove(token)
    for name in ("containerd", "kubelet", "plane/etcd", "ready", "first.pid", "token"):
        path = state.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if left:
        raise RuntimeError(f"control groups that could not be removed: {', '.join(map(str, left))}")


def _first_child(parent: int) -> int:
    """0 when it has none (the namespaces were not complete yet)."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0]) if children else 0


def _wait_gone(pid: int, within: float = 20.0) -> None:
    """The kernel ends a namespace's first process last, after all others."""
    deadline = time.monotonic() + within
    while pid and Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node's first process {pid} has not ended within {within} s")
        time.sleep(0.02)
