"""A stand-in for the operator behind SlurmCluster, whose source is not to be had: it reads the lists in each way that is plausible."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from tests.lab.controllers import Controller, ready, terminating
from tests.lab.endpoint import ApiEndpoint, Object, resource
from tests.lab.mirror import insist

API, PLURAL, KIND = "kai.alibabacloud.com/v1", "slurmclusters", "SlurmCluster"


class Reading(StrEnum):
    """What becomes of the entries of podsToBeCreated and podsToBeDeleted once they were obeyed."""

    CLEARS_AT_ONCE = "clears_at_once"
    CLEARS_LATE = "clears_late"
    NEVER_CLEARS = "never_clears"


@dataclass(slots=True)
class _Group:
    """What is remembered of one group: the indexes it should have, and the entries that were obeyed and still stand."""

    members: set[int] = field(default_factory=set)
    created: set[int] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    obeyed_at: float = 0.0


class Operator(Controller):
    """Obeys each entry once per appearance; then `replicas` rules: too many members lose the highest, too few get the lowest free.

    `delay`: seconds between seeing a change and acting on it (the slow form). `late`: seconds from obeying to clearing, in the reading
    CLEARS_LATE. `alive`: as long as it is False nothing is done at all (the dead form). `looked_at`: the latest generation it
    knows of, by name, be it alive or dead.
    """

    def __init__(
        self, endpoint: ApiEndpoint, reading: Reading, *, namespace: str = "", delay: float = 0.0, late: float = 1.0
    ) -> None:
        super().__init__(endpoint, API, PLURAL, KIND, namespace)
        self.reading, self.delay, self.late = reading, delay, late
        self.looked_at: dict[str, int] = {}
        self._alive = True
        self._groups: dict[tuple[str, str], _Group] = {}

    @property
    def alive(self) -> bool:
        return self._alive

    @alive.setter
    def alive(self, value: bool) -> None:
        self._alive = value
        self._changed.set()

    async def reconcile(self, obj: Object) -> None:
        if self._alive and self.delay:
            await asyncio.sleep(self.delay)
        meta = obj["metadata"]
        self.looked_at[meta["name"]] = meta["generation"]
        latest = self.objects.get(meta["namespace"], meta["name"])
        if not self._alive or latest is None:
            return
        for place, spec in enumerate(latest["spec"].get("workerGroupSpecs") or []):
            await self._reconcile_group(latest, place, spec)
        workers = sorted(pod["metadata"]["name"] for pod in self.owned(latest) if ready(pod) and not terminating(pod))
        await self.tell(latest, {"availableWorkers": workers})

    async def _reconcile_group(self, obj: Object, place: int, spec: Object) -> None:
        prefix = f"{obj['metadata']['name']}-worker-{spec['groupName']}-"
        pods = {pod["metadata"]["name"]: pod for pod in self.owned(obj) if _index(pod["metadata"]["name"], prefix) is not None}
        key = (obj["metadata"]["uid"], spec["groupName"])
        if key not in self._groups:
            # After a restart of the operator: what runs is what it should have.
            running = {_index(name, prefix) for name, pod in pods.items() if not terminating(pod)}
            self._groups[key] = _Group(members={index for index in running if index is not None})
        group = self._groups[key]
        doomed = _obey(group, spec, prefix)
        _fit(group.members, int(spec.get("replicas") or 0))
        wanted = {f"{prefix}{index}": index for index in sorted(group.members)}
        await self.together(
            self.delete(pod) for name, pod in pods.items() if not terminating(pod) and (name in doomed or name not in wanted)
        )
        missing = [name for name in wanted if self.pods.get(obj["metadata"]["namespace"], name) is None]
        labels = {"kai.alibabacloud.com/cluster": obj["metadata"]["name"], "kai.alibabacloud.com/group": spec["groupName"]}
        await self.together(self.create(obj, name, spec.get("template") or {}, labels) for name in missing)
        await self._clear(obj, place, spec, group)

    async def _clear(self, obj: Object, place: int, spec: Object, group: _Group) -> None:
        """Empties the lists that were obeyed; the guard leaves alone what somebody has changed meanwhile."""
        lists = {name: spec[name] for name in ("podsToBeCreated", "podsToBeDeleted") if spec.get(name)}
        if not lists or self.reading is Reading.NEVER_CLEARS:
            return
        if self.reading is Reading.CLEARS_LATE and (left := group.obeyed_at + self.late - asyncio.get_running_loop().time()) > 0:
            asyncio.get_running_loop().call_later(left, self._changed.set)
            return
        where = f"/spec/workerGroupSpecs/{place}"
        guard: list[Object] = [{"op": "test", "path": f"{where}/groupName", "value": spec["groupName"]}]
        for name, value in lists.items():
            guard += [{"op": "test", "path": f"{where}/{name}", "value": value}]
            guard += [{"op": "replace", "path": f"{where}/{name}", "value": []}]
        path = resource(API, PLURAL, obj["metadata"]["namespace"], obj["metadata"]["name"])
        await insist(lambda: self.admin.patch(path, guard), 404, 409, 422)


def _obey(group: _Group, spec: Object, prefix: str) -> set[str]:
    """An entry is an order when it was not there at the last look; a list that was emptied may order the same again.

    Returns the pods that are ordered to go, also those that `replicas` may bring back at once.
    """
    created, deleted = set(spec.get("podsToBeCreated") or []), set(spec.get("podsToBeDeleted") or [])
    group.members |= created - group.created
    doomed = deleted - group.deleted
    group.members -= {index for name in doomed if (index := _index(name, prefix)) is not None}
    if doomed or created - group.created:
        group.obeyed_at = asyncio.get_running_loop().time()
    group.created, group.deleted = created, deleted
    return doomed


def _fit(members: set[int], replicas: int) -> None:
    while len(members) > max(replicas, 0):
        members.remove(max(members))
    free = 0
    while len(members) < replicas:
        if free not in members:
            members.add(free)
        free += 1


def _index(name: str, prefix: str) -> int | None:
    """The index in a pod's name of this group; None for a name of another group, even one that begins alike."""
    rest = name.removeprefix(prefix)
    return int(rest) if rest != name and rest.isdigit() and str(int(rest)) == rest else None
