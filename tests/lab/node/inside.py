"""The node's inside: `python -m tests.lab.node.inside FOLDER`, in the namespaces that tests/lab/node/space has made.

Starts the control plane, containerd, kubelet, kube-proxy and CoreDNS, says in FOLDER/ready when a pod could be created, and ends when
one of its programs ends: a node that lost one would only puzzle whoever uses it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import aiohttp

from tests.lab.component import Component
from tests.lab.controlplane import ControlPlane, RealNode
from tests.lab.endpoint import Admin, ApiError, Object, resource
from tests.lab.node import config, dns
from tests.lab.node.archive import program_image
from tests.lab.node.layout import ADDRESS, CONTAINERD_SOCKET, NAME, PAUSE_IMAGE, State, need


class Inside:
    """All programs of one node; they end with the first process of the namespaces, so nothing here stops them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._begin = time.monotonic()
        self._plane = ControlPlane(state.plane, RealNode(NAME, ADDRESS))
        config_file = partial(state.folder.joinpath)
        self._containerd = self._part("containerd", "--config", config_file("containerd.toml"), "--log-level", "info")
        node_config = self._plane.config_of(f"system:node:{NAME}")
        where = [f"--config={config_file('kubelet.json')}", f"--root-dir={config_file('kubelet')}", f"--kubeconfig={node_config}"]
        self._kubelet = self._part("kubelet", *where, f"--hostname-override={NAME}", f"--node-ip={ADDRESS}", "--v=2")
        self._proxy = self._part("kube-proxy", f"--config={config_file('kube-proxy.json')}", f"--hostname-override={NAME}")

    async def start(self) -> None:
        """Everything runs, and a pod of an imported image would run with a name and a Service."""
        config.write(self._state)
        await asyncio.to_thread(self._share_kubelet_folder)
        self._containerd.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._import_images())
            group.create_task(self._plane.start())
        self._say("control plane answers, containerd has its images")
        self._kubelet.start()
        self._proxy.start()
        await self._kubelet.ready(partial(_healthy, "http://127.0.0.1:10248/healthz"))
        async with Admin(self._plane.endpoint) as admin:
            await self._kubelet.ready(partial(_node_ready, admin))
            self._say("the node is Ready")
            await dns.apply(admin)
            await dns.ready(admin)
        await self._proxy.ready(partial(_healthy, "http://127.0.0.1:10256/healthz"))
        self._say("names are answered")

    async def until_one_ends(self) -> str:
        """The name of the program that ended."""
        parts = [*self._plane.components.values(), self._containerd, self._kubelet, self._proxy]
        while all(part.running for part in parts):  # noqa: ASYNC110 - a child's end has no event of asyncio's here
            await asyncio.sleep(0.5)
        return next(part.name for part in parts if not part.running)

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._begin:6.2f} s  {what}", flush=True)

    def _part(self, name: str, *arguments: str | Path) -> Component:
        return Component(name, [need(name), *arguments], self._state.folder / f"{name}.log")

    def _share_kubelet_folder(self) -> None:
        """What kubelet mounts for a pod must appear in containers that run already; the propagation ends at our own mount namespace."""
        folder = self._state.folder / "kubelet"
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "--make-shared", folder], check=True)

    async def _import_images(self) -> None:
        pause, names = self._state.folder / "pause.tar", self._state.folder / "coredns.tar"
        await asyncio.to_thread(program_image, pause, PAUSE_IMAGE, [need("pause")], ["/pause"])
        await asyncio.to_thread(dns.image, names)
        await self._containerd.ready(_containerd_answers)
        for archive in (pause, names):
            await import_image(archive)
            archive.unlink()


async def import_image(archive: Path) -> None:
    """Gives containerd the images of a docker-archive. CalledProcessError with ctr's words when it refuses."""
    argv = [str(need("ctr")), "--address", str(CONTAINERD_SOCKET), "--namespace", "k8s.io", "images", "import", str(archive)]
    await asyncio.to_thread(subprocess.run, argv, check=True, stdout=subprocess.DEVNULL)


async def _containerd_answers() -> bool:
    argv = [str(need("ctr")), "--address", str(CONTAINERD_SOCKET), "--connect-timeout", "1s", "version"]
    return (await asyncio.to_thread(subprocess.run, argv, capture_output=True)).returncode == 0


async def _healthy(url: str) -> bool:
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session, session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _node_ready(admin: Admin) -> bool:
    try:
        node: Object = await admin.get(resource("v1", "nodes", name=NAME))
    except ApiError:
        return False
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))


async def _serve(state: State) -> str:
    inside = Inside(state)
    await inside.start()
    partial_file = state.ready.with_suffix(".part")
    partial_file.write_text("")
    partial_file.rename(state.ready)
    return await inside.until_one_ends()


if __name__ == "__main__":
    raise SystemExit(f"{asyncio.run(_serve(State(Path(sys.argv[1]))))} ended")
