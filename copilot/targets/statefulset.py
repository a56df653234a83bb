"""StatefulSet (apps/v1): always the unbroken window [ordinals.start, ordinals.start + replicas)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from copilot.targets.guarded import Object, Operation, assign, guards, start_of, whole


def covers(obj: Object) -> range:
    """The indexes whose pods the set is bound to run."""
    start = start_of(obj)
    # The API's default for replicas is 1.
    return range(start, start + whole(obj["spec"].get("replicas"), 1))


def patch(obj: Object, wanted: AbstractSet[int], ordinals: bool) -> list[Operation]:
    """Moves the window so that it just covers `wanted`. Where it cannot begin above 0 (`ordinals` False), it begins there.

    Moving both edges in one patch restarts none of the pods that stay: it is no new revision of the template.
    """
    # A server that returns the field has it, whatever its version says.
    window = _window(wanted, ordinals or "ordinals" in obj["spec"], start_of(obj))
    if window == covers(obj):
        return []
    spec = obj["spec"]
    operations = [*guards(obj), *assign(spec, "/spec", {"replicas": len(window)})]
    if window.start != start_of(obj):
        if isinstance(spec.get("ordinals"), dict):
            operations += assign(spec["ordinals"], "/spec/ordinals", {"start": window.start})
        else:
            operations += assign(spec, "/spec", {"ordinals": {"start": window.start}})
    return operations


def says(obj: Object, wanted: AbstractSet[int]) -> bool:
    """True when the window holds all that is wanted and ends where it must; it may begin lower on servers without ordinals."""
    window = covers(obj)
    if not wanted:
        return len(window) == 0
    return window.stop == max(wanted) + 1 and window.start <= min(wanted)


def _window(wanted: AbstractSet[int], ordinals: bool, start: int) -> range:
    if not wanted:
        return range(start, start)
    return range(min(wanted) if ordinals else 0, max(wanted) + 1)
