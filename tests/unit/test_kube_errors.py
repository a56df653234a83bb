"""From an answer's status and body to what the caller should do about it; the bodies are a real kube-apiserver's."""

from __future__ import annotations

import json

import pytest

from copilot.kube import Conflict, KubeError, Refused, Unavailable
from copilot.kube.errors import error_of, rule

SETS = "/apis/apps/v1/namespaces/hpc/statefulsets"


def status(code: int, reason: str = "", message: str = "", **details: object) -> bytes:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("verb", "code", "body", "kind"),
    [
        ("patch", 422, status(422, "Invalid", "the server rejected our request due to an error in our request"), Conflict),
        ("patch", 409, status(409, "Conflict", "Operation cannot be fulfilled on ..."), Conflict),
        ("patch", 422, status(422, "Invalid", 'StatefulSet.apps "w" is invalid', causes=[{"field": "spec.replicas"}]), Refused),
        ("patch", 422, status(422, "Invalid", "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no"), Refused),
        ("create", 422, status(422, "Invalid", "the server rejected our request due to an error in our request"), Refused),
        ("get", 404, status(404, "NotFound", "", name="w", kind="statefulsets"), Refused),
        ("get", 400, b"", Refused),
        ("get", 429, b"", Unavailable),
        ("get", 408, b"", Unavailable),
        ("get", 502, b"<html>bad gateway</html>", Unavailable),
        ("get", 599, b"\xff\xfe[1", Unavailable),
    ],
)
def test_kinds(verb: str, code: int, body: bytes, kind: type[KubeError]) -> None:
    error = error_of(verb, SETS, code, body, {})
    assert type(error) is kind
    assert str(code) in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("", None)]
)
def test_retry_after(header: str, seconds: float | None) -> None:
    error = error_of("get", SETS, 429, b"", {"Retry-After": header} if header else {})
    assert isinstance(error, Unavailable)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("verb", "code", "unknown"),
    [
        ("patch", 500, True),
        ("patch", 504, True),
        ("patch", 503, False),
        ("patch", 429, False),
        ("get", 500, False),
        ("delete", 502, True),
    ],
)
def test_what_may_have_been_carried_out_all_the_same(verb: str, code: int, unknown: bool) -> None:
    error = error_of(verb, SETS, code, b"", {})
    assert isinstance(error, Unavailable)
    assert error.unknown is unknown


def test_a_long_answer_is_cut_and_kept_in_one_line() -> None:
    error = error_of("patch", SETS, 422, status(422, "Invalid", "spec:\n" + "managed " * 9000), {})
    assert len(str(error)) < 600
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (SETS, "{apiGroups: [apps], resources: [statefulsets], verbs: [patch]}"),
        (f"{SETS}/gpu", "{apiGroups: [apps], resources: [statefulsets], verbs: [patch]}"),
        ("/api/v1/namespaces/hpc/pods/gpu-0", '{apiGroups: [""], resources: [pods], verbs: [patch]}'),
        (
            "/apis/kai.alibabacloud.com/v1/namespaces/hpc/slurmclusters",
            "{apiGroups: [kai.alibabacloud.com], resources: [slurmclusters], verbs: [patch]}",
        ),
    ],
)
def test_the_missing_rule(path: str, expected: str) -> None:
    assert rule("patch", path) == expected
