"""List and watch: selectors, pages, bookmarks and 410."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.lab.embedded import selectors, status
from tests.lab.embedded.kinds import Kind
from tests.lab.embedded.store import Change, Store
from tests.lab.endpoint import Object

_TOO_OLD_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)


def predicate(query: Mapping[str, str], kind: Kind) -> Callable[[Object], bool]:
    by_label = selectors.labels(query.get("labelSelector", ""))
    by_field = selectors.fields(query.get("fieldSelector", ""), kind.plural)
    return lambda obj: by_label(obj) and by_field(obj)


def _snapshot(store: Store, kind: Kind, namespace: str, version: int) -> list[Object]:
    """The objects as they were at `version`: today's, with every later change undone."""
    objects = {_place(obj): obj for obj in store.select(kind.path, namespace)}
    for change in reversed(list(store.since(version))):
        if change.key[0] != kind.path or namespace not in ("", change.key[1]):
            continue
        if change.before is None:
            del objects[_place(change.final)]
        else:
            objects[_place(change.final)] = change.before
    return [objects[place] for place in sorted(objects)]


def _version(text: str) -> int:
    if not text.isdigit():
        raise status.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _token(text: str) -> tuple[int, str]:
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(token["rv"]), str(token["start"])
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def list_objects(store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> Object:
    """One page. `limit` is ignored with resourceVersion=0, which the real server answers from its cache."""
    matches = predicate(query, kind)
    at_least = query.get("resourceVersion", "")
    if at_least and _version(at_least) > store.version:
        raise status.resource_version_too_large(int(at_least), store.version)
    try:
        limit = int(query.get("limit") or 0)
    except ValueError as error:
        raise status.bad_request(f'strconv.ParseInt: parsing "{query["limit"]}": invalid syntax') from error
    version, start = store.version, ""
    if query.get("continue"):
        version, start = _token(query["continue"])
        if version < store.floor:
            raise status.expired(_TOO_OLD_PAGE)
    found = [obj for obj in _snapshot(store, kind, namespace, version) if _place(obj) >= start and matches(obj)]
    metadata: Object = {"resourceVersion": str(version)}
    if kind.custom:
        metadata["continue"] = ""
    if 0 < limit < len(found) and at_least != "0":
        token = {"v": "meta.k8s.io/v1", "rv": version, "start": _place(found[limit - 1]) + "\0"}
        metadata["continue"] = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=")
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(found) - limit
        found = found[:limit]
    items = found if kind.custom else [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in found]
    return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}


def _place(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


@dataclass(slots=True)
class Watch:
    """One watch: where it stands, and the events that it owes. `sent` is the newest version that the client knows of."""

    store: Store
    kind: Kind
    namespace: str
    matches: Callable[[Object], bool]
    version: int
    sent: int

    @classmethod
    def begin(cls, store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> tuple[Watch, list[Object]]:
        """Also the events that come first: without a version, or from 0, everything there is as ADDED.

        Whether the version is too old shows at the first `due`.
        """
        asked = query.get("resourceVersion", "")
        if asked and not asked.isdigit():
            words = f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": invalid syntax'
            raise status.StatusError(500, "", words)
        matches, first = predicate(query, kind), []
        version = int(asked or 0)
        if version == 0:
            version = store.version
            first = [_event("ADDED", obj) for obj in store.select(kind.path, namespace) if matches(obj)]
        return cls(store, kind, namespace, matches, version, version), first

    def due(self) -> Iterator[Object]:
        """The events since the last call. StatusError 410 when the history does not reach back that far."""
        if self.version < self.store.floor:
            raise status.expired(f"too old resource version: {self.version} ({self.store.floor})")
        # What this watch is asked about may lie in the future: nothing to tell then, and nothing to go back to.
        changes = list(self.store.since(self.version))
        self.version = max(self.version, self.store.version)
        for change in changes:
            path, namespace, _ = change.key
            if path == self.kind.path and self.namespace in ("", namespace) and (event := self._translate(change)):
                self.sent = change.version
                yield event

    def _translate(self, change: Change) -> Object | None:
        before = change.before is not None and self.matches(change.before)
        after = change.after is not None and self.matches(change.after)
        if after:
            return _event("MODIFIED" if before else "ADDED", change.final)
        if not before:
            return None
        if change.after is None:
            return _event("DELETED", change.final)
        # It left the selection: the state that was selected, with the version of the change that took it away.
        assert change.before is not None
        metadata = {**change.before["metadata"], "resourceVersion": change.final["metadata"]["resourceVersion"]}
        return _event("DELETED", {**change.before, "metadata": metadata})

    def bookmark(self) -> Object | None:
        """Tells the version reached, if that is news."""
        if self.version <= self.sent:
            return None
        self.sent = self.version
        body = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": {"resourceVersion": str(self.version)}}
        return _event("BOOKMARK", body)


def _event(kind: str, obj: Object) -> Object:
    return {"type": kind, "object": obj}
