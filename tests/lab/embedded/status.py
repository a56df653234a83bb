"""Errors as the API server says them: an HTTP status and a Status object of the real shape."""

from __future__ import annotations

from typing import Any

from tests.lab.endpoint import Object


class StatusError(Exception):
    """Ends a request with `code` and the Status object `body`; `retry_after` seconds become the header of that name."""

    def __init__(
        self, code: int, reason: str, message: str, details: Object | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        self.body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details
        self.body["code"] = code


class PageNotFound(Exception):  # noqa: N818 - the server's own words
    """No such API: the real server answers `404 page not found` as plain text, so an absent CRD looks like this."""


def _details(group: str, name: str, kind: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    details["kind"] = kind
    return details


def qualified(group: str, word: str) -> str:
    """`statefulsets.apps`, or the bare word in the core group."""
    return f"{word}.{group}" if group else word


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', _details(group, name, plural))


def no_such_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    return StatusError(409, "AlreadyExists", f'{qualified(group, plural)} "{name}" already exists', _details(group, name, plural))


def conflict(group: str, word: str, name: str, why: str = "") -> StatusError:
    """Of a stale resourceVersion unless `why` says otherwise; `word` is the plural, or the kind for a failed precondition."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified(group, word)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, name, word))


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unsupported_media_type(accepted: str = "") -> StatusError:
    """Custom resources and creates name what they take; patches of built-in kinds say `415: Unsupported Media Type` only."""
    if not accepted:
        return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    words = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", words)


def patch_failed() -> StatusError:
    """A JSON patch that does not apply, be it a failing `test` or a path that is not there: the server does not say which."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def invalid(group: str, kind: str, name: str, causes: list[tuple[str, str, str]]) -> StatusError:
    """Validation failed; a cause is (field, reason such as FieldValueInvalid, message)."""
    said = [f"{field}: {message}" for field, _, message in causes]
    words = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details: dict[str, Any] = _details(group, name, kind)
    details["causes"] = [{"reason": reason, "message": message, "field": field} for field, reason, message in causes]
    return StatusError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {words}', details)


def resource_version_too_large(asked: int, current: int) -> StatusError:
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details, retry_after=1)


def success(group: str, plural: str, name: str, uid: str) -> Object:
    """The answer to the delete of an object that is gone at once."""
    details = {**_details(group, name, plural), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
