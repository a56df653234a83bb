"""`slurmctld-copilot status`: asks the running daemon and prints, once or again and again."""

from __future__ import annotations

import http
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from copilot.hostlist import HostlistError, expand
from copilot.status.picture import overview, story, troubled
from copilot.status.table import Screen
from copilot.unixhttp import ask

WELL, TROUBLE, CANNOT = 0, 1, 2
# Seconds between two pictures of --watch.
_EVERY = 2.0
# So many nodes are told one by one.
_MOST = 100
_CLEAR = "\x1b[H\x1b[2J"


def run(socket: str, nodes: str = "", *, as_json: bool = False, watch: bool = False) -> int:
    """Prints; returns the exit code. With `watch` until Ctrl-C, which is a good end."""
    try:
        names = list(expand(nodes, _MOST)) if nodes else []
    except HostlistError as error:
        print(f"slurmctld-copilot: {nodes!r} is no hostlist of at most {_MOST} nodes: {error}", file=sys.stderr)
        return CANNOT

    def once() -> int:
        return _stories(socket, names, as_json=as_json) if names else _overview(socket, as_json=as_json)

    try:
        return _again(once) if watch else once()
    except BrokenPipeError:
        # `status | head`: whoever read it has seen enough; what is still buffered must not complain at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return WELL


def _again(once: Callable[[], int]) -> int:
    """One picture after the other; on a terminal each in the place of the last."""
    try:
        while True:
            if sys.stdout.isatty():
                print(_CLEAR, end="")
            once()
            sys.stdout.flush()
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        return WELL


def screen() -> Screen:
    """What stdout is."""
    if not sys.stdout.isatty():
        return Screen()
    return Screen(shutil.get_terminal_size().columns, "NO_COLOR" not in os.environ)


def _overview(socket: str, *, as_json: bool) -> int:
    known = _asked(socket, "/v1/nodes")
    if known is None:
        return CANNOT
    print(json.dumps(known, indent=2) if as_json else "\n".join(overview(known, screen())), flush=True)
    return TROUBLE if troubled(known) else WELL


def _stories(socket: str, names: Sequence[str], *, as_json: bool) -> int:
    told = [_asked(socket, f"/v1/nodes/{quote(name, safe='')}") for name in names]
    known = [each["node"] for each in told if each is not None]
    if as_json:
        print(json.dumps(known, indent=2))
    else:
        print("\n\n".join("\n".join(story(node, screen())) for node in known))
    if len(known) < len(told):
        return CANNOT
    return TROUBLE if any(node["failure"] for node in known) else WELL


def _asked(socket: str, what: str) -> dict[str, Any] | None:
    """The answer's body; None when there is none, which is told."""
    try:
        code, body = ask(socket, what)
    except (OSError, ValueError) as error:
        words = f"no answer at {socket}: {error or type(error).__name__}; is it running? see --socket"
        print(f"slurmctld-copilot: {words}", file=sys.stderr)
        return None
    if code != http.HTTPStatus.OK:
        print(f"slurmctld-copilot: {body.get('error', code)}", file=sys.stderr)
        return None
    body.pop("request_id", None)
    return body
