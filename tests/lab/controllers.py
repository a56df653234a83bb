"""The StatefulSet controllers over plain HTTP, for the embedded API server: what kube-controller-manager and OpenKruise do to pods.

podManagementPolicy is taken as Parallel, whatever it says; rolling updates and volumes are not played.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from itertools import count, islice
from types import TracebackType
from typing import Any, Self

from tests.lab.endpoint import Admin, ApiEndpoint, Object, resource
from tests.lab.mirror import Mirror, insist

_AT_ONCE = 32  # requests under way at the same time


class Controller(ABC):
    """`async with`: keeps a mirror of its objects and of all pods, and reconciles them at each change until the block ends.

    `namespace` "" is all of them. An unexpected error ends the task and is raised where the block ends.
    """

    def __init__(self, endpoint: ApiEndpoint, api: str, plural: str, kind: str, namespace: str) -> None:
        self.api, self.plural, self.kind = api, plural, kind
        self.admin = Admin(endpoint)
        self._changed = asyncio.Event()
        self.objects = Mirror(self.admin, resource(api, plural, namespace), self._changed)
        self.pods = Mirror(self.admin, resource("v1", "pods", namespace), self._changed)
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.admin.__aenter__()
        self._tasks = [asyncio.create_task(step) for step in (self.objects.run(), self.pods.run(), self._run())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.admin.__aexit__(kind, error, trace)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _run(self) -> None:
        await asyncio.gather(self.objects.synced.wait(), self.pods.synced.wait())
        while True:
            self._changed.clear()
            await self.collect_garbage()
            for obj in self.objects:
                await self.reconcile(obj)
            await self._changed.wait()

    @abstractmethod
    async def reconcile(self, obj: Object) -> None:
        """One step towards what the object says. Called again at each change of anything."""

    async def collect_garbage(self) -> None:
        """Deletes the pods whose owner is gone."""
        owners = {obj["metadata"]["uid"] for obj in self.objects}
        orphans = [pod for pod in self.pods if self._is_ours(pod) and _owner(pod)["uid"] not in owners and not terminating(pod)]
        await self.together(self.delete(pod) for pod in orphans)

    def _is_ours(self, pod: Object) -> bool:
        owner = _owner(pod)
        return (owner.get("apiVersion"), owner.get("kind")) == (self.api, self.kind)

    def owned(self, obj: Object) -> list[Object]:
        return [pod for pod in self.pods if _owner(pod).get("uid") == obj["metadata"]["uid"]]

    async def together(self, calls: Iterable[Awaitable[Object | None]]) -> None:
        async def one(call: Awaitable[Object | None]) -> None:
            async with self._limit:
                await call

        await asyncio.gather(*(one(call) for call in calls))

    async def create(self, obj: Object, name: str, template: Object, labels: dict[str, str]) -> Object | None:
        """A pod of the object. A name that is taken, or a namespace that is gone, is left for the next look."""
        pod = copy.deepcopy(template)
        namespace, meta = obj["metadata"]["namespace"], pod.setdefault("metadata", {})
        meta |= {"name": name, "namespace": namespace, "labels": {**(meta.get("labels") or {}), **labels}}
        meta["ownerReferences"] = [
            {
                "apiVersion": self.api,
                "kind": self.kind,
                "name": obj["metadata"]["name"],
                "uid": obj["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        body = {**pod, "apiVersion": "v1", "kind": "Pod"}
        body["spec"]["hostname"] = name
        return await insist(lambda: self.admin.post(resource("v1", "pods", namespace), body), 404, 409)

    async def delete(self, pod: Object) -> Object | None:
        """Gracefully, and only the pod that was seen."""
        path = resource("v1", "pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": pod["metadata"]["uid"]}}
        return await insist(lambda: self.admin.delete(path, options), 404, 409)

    async def tell(self, obj: Object, status: Object) -> None:
        """Writes the status when it says something new."""
        if not status.items() <= (obj.get("status") or {}).items():
            path = resource(self.api, self.plural, obj["metadata"]["namespace"], obj["metadata"]["name"], "status")
            await insist(lambda: self.admin.patch(path, {"status": status}), 404, 409)


class StatefulSets(Controller):
    """apps/v1: ordinals [start, start + replicas), all at once."""

    def __init__(self, endpoint: ApiEndpoint, namespace: str = "", api: str = "apps/v1") -> None:
        super().__init__(endpoint, api, "statefulsets", "StatefulSet", namespace)

    def ordinals(self, spec: Object) -> list[int]:
        start = (spec.get("ordinals") or {}).get("start", 0)
        return list(range(start, start + spec.get("replicas", 1)))

    async def reconcile(self, obj: Object) -> None:
        """Creates what is missing and deletes what is too much, or has ended; a name in use is waited for."""
        meta, spec = obj["metadata"], obj["spec"]
        names = {f"{meta['name']}-{ordinal}": ordinal for ordinal in self.ordinals(spec)}
        owned = self.owned(obj)
        revision = f"{meta['name']}-{_hash(spec['template'])}"
        unwanted = [pod for pod in owned if not terminating(pod) and (pod["metadata"]["name"] not in names or _ended(pod))]
        missing = [name for name in names if self.pods.get(meta["namespace"], name) is None]
        await self.together(self.delete(pod) for pod in sorted(unwanted, key=_ordinal, reverse=True))
        await self.together(self.create(obj, name, spec["template"], _labels(name, names[name], revision)) for name in missing)
        await self.tell(obj, _status(obj, owned, revision))


class AdvancedStatefulSets(StatefulSets):
    """apps.kruise.io/v1beta1: the first `replicas` ordinals from the start on that are not in reserveOrdinals."""

    def __init__(self, endpoint: ApiEndpoint, namespace: str = "") -> None:
        super().__init__(endpoint, namespace, "apps.kruise.io/v1beta1")

    def ordinals(self, spec: Object) -> list[int]:
        start = (spec.get("ordinals") or {}).get("start", 0)
        reserved = reserved_ordinals(spec.get("reserveOrdinals") or [])
        return list(islice((ordinal for ordinal in count(start) if ordinal not in reserved), spec.get("replicas", 1)))


def reserved_ordinals(entries: list[Any]) -> set[int]:
    """Ints, and ranges written as "3-5" (both ends included)."""
    reserved: set[int] = set()
    for entry in entries:
        first, _, last = str(entry).partition("-")
        reserved |= set(range(int(first), int(last or first) + 1))
    return reserved


def terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _owner(pod: Object) -> Object:
    return next((one for one in pod["metadata"].get("ownerReferences") or [] if one.get("controller")), {})


def _ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _ordinal(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _hash(template: Object) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _labels(name: str, ordinal: int, revision: str) -> dict[str, str]:
    return {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": revision,
    }


def _status(obj: Object, owned: list[Object], revision: str) -> Object:
    """Pods that are Terminating count as replicas until they are gone, but neither as ready nor as current."""
    alive = [pod for pod in owned if not terminating(pod)]
    up = [pod for pod in owned if ready(pod)]
    return {
        "observedGeneration": obj["metadata"]["generation"],
        "replicas": len(owned),
        "readyReplicas": len(up),
        "availableReplicas": len(up),
        "currentReplicas": len(alive),
        "updatedReplicas": len(alive),
        "currentRevision": revision,
        "updateRevision": revision,
    }
