"""RFC 6902 as far as the copilot uses it, applied the way the API server does: whole or not at all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any


class PatchTestError(Exception):
    """A `test` operation does not hold; the server answers 422."""


def apply(obj: dict[str, Any], operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A patched copy. KeyError or IndexError when the parent of a path is missing, as the server refuses that too."""
    result = copy.deepcopy(obj)
    for operation in operations:
        *above, last = [token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]]
        parent: Any = result
        for token in above:
            parent = parent[int(token)] if isinstance(parent, list) else parent[token]
        if operation["op"] == "test":
            if last not in parent or parent[last] != operation["value"]:
                raise PatchTestError(operation)
        elif operation["op"] == "add" and isinstance(parent, dict):
            parent[last] = copy.deepcopy(operation["value"])
        else:
            raise AssertionError(f"the copilot has no reason to send {operation}")
    return result
