"""One watch request: raw lines turned into events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import aiohttp

from copilot.kube.client import Kube
from copilot.kube.errors import Refused, Unavailable, error_of
from copilot.kube.selection import Selection

Object = dict[str, Any]
_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED"})
# The stream is open, and: nothing has happened up to this version.
QUIET = frozenset({"OPEN", "BOOKMARK"})
# A burst of events that has arrived already is read without a pause; after so many seconds others are let in.
_SLICE = 0.01


class Event(NamedTuple):
    """`kind` is ADDED, MODIFIED, DELETED, or one of QUIET, which have no object; `version` is where the next watch goes on from."""

    kind: str
    object: Object
    version: str


class Expired(Exception):  # noqa: N818 - no fault, the ordinary end of a version
    """The server no longer knows the version (410): list again."""


async def watch(kube: Kube, path: str, selection: Selection, version: str, silence: float) -> AsyncGenerator[Event]:
    """The events of one request until the server ends it, which it does after 240-300 s, or is silent for `silence` seconds.

    Raises Expired, Refused, or Unavailable for everything that broke.
    """
    query = [
        ("watch", "true"),
        ("resourceVersion", version),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(random.randint(240, 300))),  # noqa: S311 - so that not all watches end together
        *selection.query,
    ]
    loop = asyncio.get_running_loop()
    try:
        async with kube.stream(path, query, silence) as lines:
            yield Event("OPEN", {}, version)
            turn = loop.time()
            while line := await lines.readline():
                yield _event(path, line)
                if loop.time() - turn > _SLICE:
                    await asyncio.sleep(0)
                    turn = loop.time()
    except TimeoutError:
        return  # the connection may be dead without knowing it: a new one will tell
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a line longer than the buffer
        raise Unavailable(f"watch {path}: the stream broke: {error!r}") from error
    except Refused as error:
        if error.status == 410:
            raise Expired from error
        raise


def _event(path: str, line: bytes) -> Event:
    """An ERROR event raises what its status would have raised."""
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
        if kind in _KINDS:
            _ = obj["metadata"]["name"]
            return Event(kind, obj, str(obj["metadata"]["resourceVersion"]))
        if kind == "BOOKMARK":
            return Event(kind, {}, str(obj["metadata"]["resourceVersion"]))
    except (ValueError, KeyError, TypeError) as error:
        # A stream that is cut may end within a line.
        raise Unavailable(f"watch {path}: no event: {line[:200]!r}", "garbled") from error
    status = obj.get("code") if isinstance(obj, dict) else None
    raise error_of("watch", path, status if isinstance(status, int) and status >= 400 else 500, json.dumps(obj).encode(), {})
