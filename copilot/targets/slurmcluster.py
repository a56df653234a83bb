"""SlurmCluster (kai.alibabacloud.com/v1): per group `replicas`, `podsToBeCreated` (indexes) and `podsToBeDeleted` (pod names).

Its operator is closed source, and whether it takes the lists as a state or as orders, and when it clears them, is not documented.
So both are computed from sets at every look: to be created is what is wanted and has no pod, to be deleted what is not wanted and
has one. That is right whether they are cleared at once, late or never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from copilot.targets.guarded import Object, Operation, assign, guards, whole
from copilot.targets.names import split_node

_NOTHING: frozenset[int] = frozenset()


def groups(obj: Object) -> list[tuple[str, Mapping[str, Any]]]:
    """Group names as nodes carry them, with their entries, in the object's order; entries without a name are left out."""
    return [(_group_name(obj, entry), entry) for entry in _entries(obj) if entry.get("groupName")]


def patch(obj: Object, wanted: Mapping[str, AbstractSet[int]], existing: Mapping[str, AbstractSet[int]]) -> list[Operation]:
    """One patch for all groups in `wanted`; others, and a name that stands there twice, are left as they are."""
    names = Counter(name for name, _ in groups(obj))
    changes: list[Operation] = []
    for position, entry in enumerate(_entries(obj)):
        name = _group_name(obj, entry) if entry.get("groupName") else ""
        if names[name] != 1 or name not in wanted or _settled(name, entry, wanted[name], existing.get(name, _NOTHING)):
            continue
        where = f"/spec/workerGroupSpecs/{position}"
        changes.append({"op": "test", "path": f"{where}/groupName", "value": entry["groupName"]})
        # What was ordered and is no longer wanted may come into being yet, so it is named for deletion, seen or not.
        present = existing.get(name, _NOTHING) | _to_create(entry)
        changes += assign(entry, where, _values(name, wanted[name], existing.get(name, _NOTHING), present))
    return [*guards(obj), *changes] if changes else []


def ordered(obj: Object) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    """By group, the indexes that the lists name now: to be created, to be deleted."""
    return {name: (_to_create(entry), _to_delete(name, entry)) for name, entry in groups(obj)}


def says(entry: Mapping[str, Any], name: str, wanted: AbstractSet[int]) -> bool:
    """True when the count is right and no list contradicts it. Empty lists prove nothing: the operator may have cleared them."""
    return whole(entry.get("replicas")) == len(wanted) and not _contradicts(name, entry, wanted)


def _entries(obj: Object) -> list[Mapping[str, Any]]:
    return obj["spec"].get("workerGroupSpecs") or []


def _group_name(obj: Object, entry: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['name']}-worker-{entry['groupName']}"


def _values(name: str, wanted: AbstractSet[int], existing: AbstractSet[int], present: AbstractSet[int]) -> dict[str, Any]:
    return {
        "replicas": len(wanted),
        "podsToBeCreated": sorted(wanted - existing),
        "podsToBeDeleted": [f"{name}-{index}" for index in sorted(present - wanted)],
    }


def _settled(name: str, entry: Mapping[str, Any], wanted: AbstractSet[int], existing: AbstractSet[int]) -> bool:
    """True when nothing need be written.

    Orders that are done but still stand there are no reason to write while others are outstanding: else a large resume would
    cost a patch for every pod that appears. They are tidied once nothing is outstanding.
    """
    if whole(entry.get("replicas"), -1) != len(wanted) or _contradicts(name, entry, wanted):
        return False
    create, delete = wanted - existing, existing - wanted
    if create or delete:
        return create <= _to_create(entry) and delete <= _to_delete(name, entry)
    return not entry.get("podsToBeCreated") and not entry.get("podsToBeDeleted")


def _contradicts(name: str, entry: Mapping[str, Any], wanted: AbstractSet[int]) -> bool:
    return not (_to_create(entry) <= wanted and _to_delete(name, entry).isdisjoint(wanted))


def _to_create(entry: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(entry.get("podsToBeCreated") or ())


def _to_delete(name: str, entry: Mapping[str, Any]) -> frozenset[int]:
    split = (split_node(pod) for pod in entry.get("podsToBeDeleted") or ())
    return frozenset(found[1] for found in split if found is not None and found[0] == name)
