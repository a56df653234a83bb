"""Which objects of a collection are meant."""

from __future__ import annotations

from typing import NamedTuple


class Selection(NamedTuple):
    """Selectors in the server's own language; empty for all objects."""

    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> list[tuple[str, str]]:
        """As parameters of a request."""
        named = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return [(key, value) for key, value in named if value]


ALL = Selection()
