"""Orders to a SlurmCluster's operator that it has taken off its lists before their effect is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from copilot import targets
from copilot.model import Kind

# Seconds after which an order that is off the list and still without effect is given again.
ORDER_GRACE = 5.0
Indexes = Mapping[str, AbstractSet[int]]


class Orders:
    """Remembers for a while what was ordered.

    An operator that clears its lists at once leaves a gap until the pod is seen to come or go; without this memory every look in that
    gap would order it again, a patch each.
    """

    def __init__(self, kind: Kind, clock: Callable[[], float]) -> None:
        self._kind = kind
        self._clock = clock
        self._create: dict[tuple[str, int], float] = {}
        self._delete: dict[tuple[str, int], float] = {}

    @property
    def outstanding(self) -> bool:
        """Something is remembered, so a look at the end of the grace is due."""
        return bool(self._create or self._delete)

    def gave(self, obj: Mapping[str, Any]) -> None:
        """The object as the server has it after our patch: what its lists name was ordered now."""
        now = self._clock()
        for group, (create, delete) in targets.ordered(self._kind, obj).items():
            self._create.update({(group, index): now for index in create})
            self._delete.update({(group, index): now for index in delete})

    def fulfilled(self, obj: Mapping[str, Any], wanted: Indexes, existing: Indexes) -> Indexes:
        """`existing` as it will be when the operator has done what it took off the lists."""
        if not self.outstanding:
            return existing
        since = self._clock() - ORDER_GRACE
        self._create = {key: at for key, at in self._create.items() if at > since}
        self._delete = {key: at for key, at in self._delete.items() if at > since}
        listed = targets.ordered(self._kind, obj)
        soon: dict[str, AbstractSet[int]] = {}
        for group, indexes in existing.items():
            create, delete = listed.get(group, (frozenset(), frozenset()))
            coming = {
                index for name, index in self._create if name == group and index not in create and index in wanted.get(group, ())
            }
            going = {
                index
                for name, index in self._delete
                if name == group and index not in delete and index not in wanted.get(group, ())
            }
            soon[group] = (indexes | coming) - going
        return soon
