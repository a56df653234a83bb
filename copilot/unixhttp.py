"""Asks a running copilot over its unix socket, without an event loop: for commands that only print."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

# A daemon that does not answer for so long (seconds) is as good as none.
TIMEOUT = 10.0


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("copilot", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, what: str) -> tuple[int, dict[str, Any]]:
    """Status and body of a GET. OSError when there is no answer, ValueError when it is none of ours."""
    connection = _Connection(path)
    try:
        connection.request("GET", what)
        response = connection.getresponse()
        body = json.loads(response.read())
    except http.client.HTTPException as error:
        raise ValueError(f"the answer is no HTTP: {error!r}") from error
    finally:
        connection.close()
    if not isinstance(body, dict):
        raise ValueError("the answer is no JSON object")
    return response.status, body
