"""Advanced StatefulSet (apps.kruise.io/v1beta1): exact sparse sets by `replicas` (how many) and `reserveOrdinals` (which not).

The manager counts upwards from ordinals.start, leaves out what is reserved, and stops after `replicas` indexes.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from copilot.targets.guarded import Object, Operation, assign, guards, start_of, whole

_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)


def covers(obj: Object) -> frozenset[int]:
    """The indexes whose pods the manager is bound to run. Costs no more than the number of replicas and of entries."""
    spec = obj["spec"]
    left = whole(spec.get("replicas"), 1)
    index = start_of(obj)
    found: list[int] = []
    for first, last in _reserved(obj):
        take = min(left, max(0, first - index))
        found += range(index, index + take)
        left -= take
        index = max(index, last + 1)
    return frozenset([*found, *range(index, index + left)])


def patch(obj: Object, wanted: AbstractSet[int]) -> list[Operation]:
    """Both fields in one patch: between two patches the manager would stop pods that are wanted. Entries are written as ints."""
    if covers(obj) == wanted:
        return []
    spec = obj["spec"]
    start = min(start_of(obj), min(wanted, default=start_of(obj)))
    reserved = [index for index in range(start, max(wanted, default=0)) if index not in wanted]
    operations = [*guards(obj), *assign(spec, "/spec", {"replicas": len(wanted), "reserveOrdinals": reserved})]
    if start != start_of(obj):
        operations += assign(spec["ordinals"], "/spec/ordinals", {"start": start})
    return operations


def says(obj: Object, wanted: AbstractSet[int]) -> bool:
    """False too when the server dropped reserveOrdinals, as one does that stores v1alpha1 or knows no such field."""
    return covers(obj) == wanted


def _reserved(obj: Object) -> list[tuple[int, int]]:
    """The reserved ranges, both ends included, sorted. Entries are ints or strings "a" or "a-b"; others count for nothing."""
    ranges: list[tuple[int, int]] = []
    for entry in obj["spec"].get("reserveOrdinals") or []:
        found = _RANGE.fullmatch(str(entry))
        if found is not None and int(found[1]) <= int(found[2] or found[1]):
            ranges.append((int(found[1]), int(found[2] or found[1])))
    return sorted(ranges)
