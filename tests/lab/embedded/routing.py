"""From a request's path to a verb on a resource, and its answer."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web

from tests.lab.embedded import reading, status
from tests.lab.embedded.access import Ask, verb_of
from tests.lab.embedded.faults import Fault
from tests.lab.embedded.kinds import Kind
from tests.lab.embedded.resources import Resources, scale_of
from tests.lab.embedded.status import PageNotFound
from tests.lab.embedded.streaming import stream
from tests.lab.endpoint import Object

_PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/.))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
_NAMESPACE_PATH = re.compile(r"^/api/v1/namespaces/(?P<name>[^/]+)$")


def as_json(body: object, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Without the charset that aiohttp would add: the real server sends none."""
    return web.Response(
        body=json.dumps(body).encode(), status=code, headers={"Content-Type": "application/json", **(headers or {})}
    )


class Router:
    """Carries requests out on the kinds that are served."""

    def __init__(self, kinds: tuple[Kind, ...], resources: Resources, bookmark_every: float) -> None:
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self._resources, self._bookmark_every = resources, bookmark_every
        self.watching = 0

    async def carry_out(self, request: web.Request, ask: Ask, version: str, body: Any, fault: Fault | None) -> web.StreamResponse:
        kind = self._kinds.get((ask.group, version, ask.plural))
        if kind is None:
            if any(one.group == ask.group and not one.custom and one.version == version for one in self._kinds.values()):
                raise status.no_such_resource()
            raise PageNotFound
        if ask.verb == "watch":
            self.watching += 1
            try:
                return await stream(request, self._resources.store, kind, ask.namespace, fault, self._bookmark_every)
            finally:
                self.watching -= 1
        if ask.sub and ask.sub not in kind.subresources:
            raise status.not_found(kind.group, kind.plural, ask.name) if kind.custom else status.no_such_resource()
        code = 201 if ask.verb == "create" else 200
        return as_json(self._object(request, ask, kind, body), code)

    def _object(self, request: web.Request, ask: Ask, kind: Kind, body: Any) -> Object:
        """Everything but watch, as one step without a wait: nobody sees half of it."""
        resources, place = self._resources, (kind, ask.namespace, ask.name)
        if ask.verb == "list":
            return reading.list_objects(self._resources.store, kind, ask.namespace, request.query)
        if ask.verb == "create":
            if ask.name and ask.sub == "binding":
                return resources.bind(ask.namespace, ask.name, body)
            if ask.name or (kind.namespaced and not ask.namespace):
                raise status.method_not_allowed()
            return resources.create(kind, ask.namespace, body)
        if not ask.name or ask.sub == "binding":
            raise status.method_not_allowed()
        if ask.verb == "get":
            found = resources.get(*place)
            return scale_of(found) if ask.sub == "scale" else found
        if ask.verb == "update":
            return resources.update(*place, ask.sub, body)
        if ask.verb == "patch":
            return resources.patch(*place, ask.sub, request.content_type, body)
        return resources.delete(*place, _delete_options(request, body))


def parse(request: web.Request) -> tuple[Ask, str]:
    """What is asked, and the version of the group. PageNotFound for a path of no API."""
    if found := _NAMESPACE_PATH.match(request.path):
        name = found["name"]
        return Ask(verb_of(request.method, name, False), "", "namespaces", name, name, ""), "v1"
    found = _PATH.match(request.path)
    if not found:
        raise PageNotFound
    watching = request.query.get("watch", "") not in ("", "0", "false")
    name = found["name"] or ""
    verb = verb_of(request.method, name, watching and not name)
    ask = Ask(verb, found["group"] or "", found["plural"], found["namespace"] or "", name, found["sub"] or "")
    return ask, found["core"] or found["version"]


async def read_body(request: web.Request) -> Any:
    """The JSON of a write. StatusError 400 or 415 when it is something else."""
    text = await request.text()
    if request.method == "GET" or (request.method == "DELETE" and not text):
        return None
    if request.method in ("POST", "PUT") and request.content_type != "application/json":
        raise status.unsupported_media_type("application/json, application/yaml, application/vnd.kubernetes.protobuf")
    try:
        return json.loads(text)
    except ValueError as error:
        if request.method == "PATCH":
            raise status.bad_request(f"error decoding patch: {error}") from error
        raise status.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def _delete_options(request: web.Request, body: Any) -> Object:
    options = dict(body) if isinstance(body, dict) else {}
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    if not isinstance(options.get("gracePeriodSeconds", 0), int):
        raise status.bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )
    return options
