"""What can go wrong between us and the API server, in three kinds by what the caller should do about it.

The form of the answers was recorded from a real kube-apiserver 1.36.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_MESSAGE_MAX = 400
# What the server says of a patch that cannot be applied to the object as it is: a failed `test`, or a path that is not there. Every
# other 422 names the field (details.causes), or the admission plugin that objects.
_INAPPLICABLE = "the server rejected our request due to an error in our request"
_PATH = re.compile(
    r"/apis?(?:/(?P<group>[^/]+))??/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?"
)


class KubeError(Exception):
    """Any request that did not succeed. The text is one sentence for an operator."""


class Conflict(KubeError):  # noqa: N818 - what the server said, not what is wrong
    """The object is not what the caller thought: read it again, compute again."""


class Unavailable(KubeError):  # noqa: N818 - what the server said, not what is wrong
    """No answer, or one that says "not now": try again later, not before `retry_after` seconds if the server said so.

    `unknown`: it was a write, and may have been applied all the same. Read before you go on.
    """

    def __init__(self, message: str, status: str = "network", retry_after: float | None = None, unknown: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.unknown = unknown


class Refused(KubeError):  # noqa: N818 - what the server said, not what is wrong
    """The server understood and said no; the same request will fail again until somebody changes something (the text says what).

    `status` is the HTTP status, `reason` the API's word for it (Forbidden, NotFound, Invalid, ...).
    """

    def __init__(self, message: str, status: int = 0, reason: str = "", kind_missing: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        # 404 because the server does not serve this kind at all (no CustomResourceDefinition), not because an object is missing.
        self.kind_missing = kind_missing


class NotConfigured(KubeError):  # noqa: N818 - what the server said, not what is wrong
    """No API server can be asked at all: there is no usable kubeconfig and this is no pod."""


def error_of(verb: str, path: str, status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """The error for an answer with a status of 400 or more. `verb` is the API's (get, list, watch, create, patch, delete)."""
    answer = _status_object(body)
    said = " ".join(str(answer.get("message") or "").split())[:_MESSAGE_MAX]
    what = f"{verb} {path}: {status}" + (f" {said}" if said else "")
    if status == 409 or (status == 422 and verb == "patch" and said == _INAPPLICABLE):
        return Conflict(what)
    if status in (408, 429) or status >= 500:
        # 429 and 503 are said before the request is looked at; behind another 5xx it may have been carried out.
        unknown = status not in (429, 503) and verb in ("create", "patch", "delete")
        return Unavailable(what, str(status), _retry_after(headers), unknown)
    kind_missing = status == 404 and "kind" not in (answer.get("details") or {})
    return Refused(what + _cure(verb, path, status, kind_missing), status, str(answer.get("reason") or ""), kind_missing)


def status_of(error: KubeError) -> str:
    """A word of a closed list for counting: an HTTP status, or network, timeout, token, garbled."""
    if isinstance(error, Unavailable):
        return error.status
    return str(error.status) if isinstance(error, Refused) else "409"


def rule(verb: str, path: str) -> str:
    """The Role's rule that allows a request, as YAML in one line."""
    found = _PATH.match(path.partition("?")[0])
    group, resource = (found["group"] or '""', found["resource"]) if found else ('""', path)
    return f"{{apiGroups: [{group}], resources: [{resource}], verbs: [{verb}]}}"


def _cure(verb: str, path: str, status: int, kind_missing: bool) -> str:
    if status == 401:
        return "; the token is not accepted: check the kubeconfig, or that the pod's ServiceAccount still exists"
    if status == 403:
        return f"; if the copilot's Role lacks it, add the rule {rule(verb, path)}"
    if kind_missing:
        return "; the server does not know this kind: its CustomResourceDefinition is not installed, or another version of it"
    return ""


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"message": body.decode(errors="replace")}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds; the API server never uses the header's other form, a date."""
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None
