"""The kubelet's part: a bare Node, pods bound to it, their containers started and stopped by callbacks, and their status told.

On a real control plane the scheduler binds; the embedded server has none, so there the kubelet binds too.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.lab import pod_status
from tests.lab.endpoint import STRATEGIC_PATCH, Admin, ApiEndpoint, ApiError, Object, resource
from tests.lab.mirror import Mirror, insist

Start = Callable[[str, Object], Awaitable[str]]  # (pod's name, pod) -> its IP address, once the container runs
Stop = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What goes wrong with a pod. Seconds from binding to the container's start, and the rest off by default.

    `schedulable=False` shows only where the kubelet binds; on a real server give the pod a nodeSelector that no node meets.
    `configured=False` is a Secret that is missing. `terminates=False` is a dead host: the pod stays Terminating until it is deleted by force.
    """

    start_seconds: float = 0.0
    schedulable: bool = True
    image_pulls: bool = True
    configured: bool = True
    crashes: bool = False
    terminates: bool = True


GOOD = Behaviour()


class _Life:
    """One pod, told apart from its successors of the same name by its uid."""

    def __init__(self, pod: Object, lock: asyncio.Lock) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.bound = asyncio.Event()
        self.ending = asyncio.Event()
        self.lock = lock  # of the name: a successor's container starts only after the predecessor's has stopped
        self.running = False
        self.over = False
        self.restarts = 0
        self.ip = ""


class Kubelet:
    """`async with Kubelet(endpoint, start, stop)`. An error of a callback ends it and is raised where the block ends.

    What runs when the block ends is not stopped. `binds`: bind pods without a node (for the embedded server). Only pods of `namespace` are looked after.
    """

    def __init__(
        self,
        endpoint: ApiEndpoint,
        start: Start,
        stop: Stop,
        *,
        namespace: str = "default",
        node: str = "lab-node",
        binds: bool = True,
    ) -> None:
        self._admin = Admin(endpoint)
        self._start, self._stop, self._namespace, self._node, self.binds = start, stop, namespace, node, binds
        self._changed = asyncio.Event()
        self._pods = Mirror(self._admin, resource("v1", "pods", namespace), self._changed)
        self._behaviours: dict[str, Behaviour] = {}
        self._lives: dict[str, _Life] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._main: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._admin.__aenter__()
        await self._register()
        self._main = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._main is not None
        self._main.cancel()
        (end,) = await asyncio.gather(self._main, return_exceptions=True)
        await self._admin.__aexit__(kind, error, trace)
        if isinstance(end, Exception):
            raise end

    def behave(self, pattern: str, behaviour: Behaviour) -> None:
        """For the pods whose name matches the shell pattern; the latest that matches counts.

        Pods that wait for a node or are Terminating take it up at once, others keep what was said when they began.
        """
        self._behaviours.pop(pattern, None)
        self._behaviours[pattern] = behaviour
        self._changed.set()

    def runs(self, name: str) -> bool:
        """Whether a pod of that name has a container that runs, or is being started or stopped."""
        return any(life.pod["metadata"]["name"] == name and life.running for life in self._lives.values())

    async def restart_container(self, name: str, *, oom: bool = False) -> None:
        """The container of a running pod dies and is started again; restartCount goes up, the pod stays. Nothing if it ends meanwhile.

        `oom`: it was killed because it used more memory than it may.
        """
        life = next(life for life in self._lives.values() if life.pod["metadata"]["name"] == name and life.running)
        async with life.lock:
            if not life.running:
                return
            await self._stop(name)
            life.restarts += 1
            await self._tell(life, pod_status.crashing(life.restarts, oom=oom))
            life.ip = await self._start(name, life.pod)
            await self._tell(life, pod_status.running(life.ip, life.restarts, oom=oom))

    async def lose_host(self, name: str) -> None:
        """The host of a running pod is not heard any more. What runs on it is for others to stop."""
        life = next(life for life in self._lives.values() if life.pod["metadata"]["name"] == name and life.running)
        await self._tell(life, pod_status.host_away())

    async def evict(self, name: str) -> None:
        """Ends a running pod as a kubelet short of memory does: the container stops, the phase is Failed with reason Evicted."""
        life = next(life for life in self._lives.values() if life.pod["metadata"]["name"] == name and life.running)
        async with life.lock:
            if not life.running:
                return
            await self._stop(name)
            life.running = False
            await self._tell(life, pod_status.evicted())

    async def _register(self) -> None:
        nodes = resource("v1", "nodes")
        labels = {"kubernetes.io/hostname": self._node}
        body = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": self._node, "labels": labels}}
        await insist(lambda: self._admin.post(nodes, body), 409)
        path = resource("v1", "nodes", name=self._node)
        await insist(lambda: self._admin.patch(resource("v1", "nodes", name=self._node, sub="status"), pod_status.NODE))
        # A real server taints a new node as not ready, and without the node controller nobody takes that back.
        await insist(lambda: self._admin.patch(path, {"spec": {"taints": None}}))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            await self._pods.synced.wait()
            while True:
                self._changed.clear()
                self._look(group)
                await self._changed.wait()

    def _look(self, group: asyncio.TaskGroup) -> None:
        seen = {}
        for pod in self._pods:
            uid = pod["metadata"]["uid"]
            seen[uid] = pod
            if uid not in self._lives and pod["spec"].get("nodeName") in (None, "", self._node):
                lock = self._locks.setdefault(pod["metadata"]["name"], asyncio.Lock())
                self._lives[uid] = life = _Life(pod, lock)
                group.create_task(self._live(life))
        self._lives = {uid: life for uid, life in self._lives.items() if uid in seen or not life.over}
        for uid, life in self._lives.items():
            life.pod = seen.get(uid, life.pod)
            if life.pod["spec"].get("nodeName"):
                life.bound.set()
            terminating = "deletionTimestamp" in life.pod["metadata"] and self._behaviour(life).terminates
            if uid not in seen or terminating:
                life.ending.set()

    def _behaviour(self, life: _Life) -> Behaviour:
        name = life.pod["metadata"]["name"]
        return next((b for pattern, b in reversed(self._behaviours.items()) if fnmatch.fnmatch(name, pattern)), GOOD)

    async def _live(self, life: _Life) -> None:
        """From the first sight of a pod to its end. What comes up is given up as soon as the pod is to end."""
        rising = asyncio.create_task(self._bring_up(life))
        ending = asyncio.create_task(life.ending.wait())
        try:
            await asyncio.wait({rising, ending}, return_when=asyncio.FIRST_COMPLETED)
            if rising.done():
                rising.result()
            await ending
        finally:
            rising.cancel()
            ending.cancel()
            await asyncio.gather(rising, ending, return_exceptions=True)
        await self._bring_down(life)
        # Remembered until the mirror has lost the pod too, or it would be taken for a new one.
        life.over = True
        self._changed.set()

    async def _bring_up(self, life: _Life) -> None:
        await self._bind(life)
        behaviour = self._behaviour(life)
        if not behaviour.image_pulls:
            await self._tell(life, pod_status.image_pull_error())
            return
        if not behaviour.configured:
            await self._tell(life, pod_status.config_error())
            return
        await asyncio.sleep(behaviour.start_seconds)
        if behaviour.crashes:
            await self._tell(life, pod_status.crashing(3))
            return
        async with life.lock:
            # Shielded: a start that is under way is finished, so that the stop finds something whole.
            starting = asyncio.ensure_future(self._start(life.pod["metadata"]["name"], life.pod))
            life.running = True
            try:
                life.ip = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await starting
                raise
        await self._tell(life, pod_status.running(life.ip, 0))

    async def _bind(self, life: _Life) -> None:
        while self.binds and not life.bound.is_set() and not self._behaviour(life).schedulable:
            await self._tell(life, pod_status.unschedulable())
            await asyncio.sleep(0.1)  # until behave() says otherwise
        if self.binds and not life.bound.is_set():
            name = life.pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": self._node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": life.uid}, "target": target}
            await insist(lambda: self._admin.post(resource("v1", "pods", self._namespace, name, "binding"), body), 404, 409)
        await life.bound.wait()

    async def _bring_down(self, life: _Life) -> None:
        name = life.pod["metadata"]["name"]
        async with life.lock:
            if life.running:
                await self._stop(name)
                life.running = False
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": life.uid}}
        await insist(lambda: self._admin.delete(resource("v1", "pods", self._namespace, name), options), 404, 409)

    async def _tell(self, life: _Life, status: Object) -> None:
        """Patches the status of this very pod: when another has its name by now, the server says that a uid cannot change."""
        path = resource("v1", "pods", self._namespace, life.pod["metadata"]["name"], "status")
        body = {"metadata": {"uid": life.uid}, "status": status}
        try:
            await insist(lambda: self._admin.patch(path, body, STRATEGIC_PATCH), 404)
        except ApiError as error:
            if not any(cause.get("field") == "metadata.uid" for cause in error.body.get("details", {}).get("causes", [])):
                raise
