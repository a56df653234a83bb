"""JSON Patch (RFC 6902) operations that apply to the object that was read, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
Operation = dict[str, Any]


def guards(obj: Object) -> list[Operation]:
    """`test` operations: the same object (a name can be deleted and created again) with the same spec (generation).

    The generation and not the resourceVersion: every status write changes the latter, most of all while pods start.
    """
    meta = obj["metadata"]
    fields = [field for field in ("uid", "generation") if field in meta]
    return [{"op": "test", "path": f"/metadata/{field}", "value": meta[field]} for field in fields]


def assign(parent: Object, where: str, values: Mapping[str, Any]) -> Iterable[Operation]:
    """Sets fields of the mapping that stands at the JSON pointer `where`; those present are tested for their old value first.

    `add` creates or replaces, so a field that the server left out because it is empty is no special case.
    """
    for field, value in values.items():
        old = parent.get(field)
        if old == value:
            continue
        if old is not None:
            yield {"op": "test", "path": f"{where}/{field}", "value": old}
        yield {"op": "add", "path": f"{where}/{field}", "value": value}


def start_of(obj: Object) -> int:
    """spec.ordinals.start of a StatefulSet of either kind; 0 where it is not set."""
    return whole((obj["spec"].get("ordinals") or {}).get("start"))


def set_warnings(obj: Object) -> tuple[str, ...]:
    """What is set badly in a StatefulSet of either kind."""
    if obj["spec"].get("podManagementPolicy") == "Parallel":
        return ()
    return (
        "podManagementPolicy is not Parallel: a pod that cannot start holds up all later ones; create the set anew with Parallel",
    )


def whole(value: object, default: int = 0) -> int:
    """A count as the API gives it; `default` where it is missing or no whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default
