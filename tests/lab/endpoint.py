"""Where an API server is, real or embedded, and a small raw client with every right for tests and for the lab's own parts.

Paths are those of the Kubernetes API (`/api/v1/namespaces/x/pods/y`), bodies are plain dicts. Nothing is retried.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Object = dict[str, Any]


def established(crd: Object) -> bool:
    """Whether the API server has begun to serve a CustomResourceDefinition's kind. A new one has no conditions at all for a moment."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def resource(api: str, plural: str, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The path of a collection, an object or a subresource; `api` is `v1`, `apps/v1`, `kai.alibabacloud.com/v1`."""
    parts = ["/api" if "/" not in api else "/apis", api]
    parts += ["namespaces", namespace] if namespace else []
    parts += [part for part in (plural, name, sub) if part]
    return "/".join(parts)


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """One running API server. `ca_file` is None where it speaks plain HTTP; the kubeconfig file is the administrator's."""

    url: str
    ca_file: Path | None
    admin_token: str
    kubeconfig_path: Path


class ApiError(Exception):
    """The server answered with an error: `status` is the HTTP code, `body` the Status object (or `{"message": text}`)."""

    def __init__(self, status: int, body: Object, headers: Mapping[str, str]) -> None:
        super().__init__(f"{status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status
        self.body = body
        self.headers = headers


class Admin:
    """Raw requests to one endpoint, as the administrator unless another token is given: `async with Admin(endpoint) as admin`.

    Every call raises ApiError for a status of 400 or more, aiohttp.ClientError without an answer, TimeoutError after `timeout` s.
    """

    def __init__(self, endpoint: ApiEndpoint, token: str | None = None, timeout: float = 30.0) -> None:
        self.endpoint = endpoint
        self._token = endpoint.admin_token if token is None else token
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls: ssl.SSLContext | bool = True
        if self.endpoint.ca_file is not None:
            tls = ssl.create_default_context(cafile=str(self.endpoint.ca_file))
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._session = aiohttp.ClientSession(
            self.endpoint.url, connector=connector, headers=headers, timeout=self._timeout, read_bufsize=2**21
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """The general form; what is not JSON in the answer comes back as `{"message": text}`."""
        assert self._session is not None, "use it as a context manager"
        data = None if body is None else json.dumps(body)
        async with self._session.request(verb, path, data=data, headers={"Content-Type": content_type}, params=params) as answer:
            text = await answer.text()
            try:
                parsed = json.loads(text)
            except ValueError:
                parsed = {"message": text}
            if answer.status >= 400:
                raise ApiError(answer.status, parsed, answer.headers)
            assert isinstance(parsed, dict)
            return parsed

    async def get(self, path: str, **params: str) -> Object:
        return await self.request("GET", path, params=params)

    async def list(self, path: str, **params: str) -> list[Object]:
        """All items of a collection, every page of it."""
        items: list[Object] = []
        while True:
            page = await self.request("GET", path, params=params)
            items += page.get("items") or []
            params["continue"] = page["metadata"].get("continue", "")
            if not params["continue"]:
                return items

    async def post(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def put(self, path: str, body: Object) -> Object:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: object, content_type: str | None = None) -> Object:
        """A list is sent as a JSON patch, a dict as a merge patch, unless the content type is given."""
        kind = content_type or (JSON_PATCH if isinstance(body, list) else MERGE_PATCH)
        return await self.request("PATCH", path, body, kind)

    async def delete(self, path: str, options: Object | None = None, **params: str) -> Object:
        return await self.request("DELETE", path, options, params=params)

    async def exists(self, path: str) -> bool:
        try:
            await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def watch(self, path: str, **params: str) -> AsyncGenerator[Object, None]:
        """The events of one watch request until the server ends it (`timeoutSeconds`); without the client's own timeout.

        Who leaves the loop early closes it (`contextlib.aclosing`), or the connection stays until garbage is collected.
        """
        assert self._session is not None, "use it as a context manager"
        forever = aiohttp.ClientTimeout(total=None)
        async with self._session.get(path, params={"watch": "true", **params}, timeout=forever) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, await answer.json(), answer.headers)
            try:
                while line := await answer.content.readline():
                    yield json.loads(line)
            finally:
                # Left early: a polite end of TLS would wait for the server longer than the caller's loop may live.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def until(self, path: str, condition: Callable[[Object], bool], within: float = 60.0) -> Object:
        """Asks every 20 ms until what is at `path` ({} when nothing is) meets the condition.

        AssertionError with what was last seen after `within` seconds.
        """
        seen: Object = {}
        try:
            async with asyncio.timeout(within):
                while not condition(seen := await self._get_or_empty(path)):  # noqa: ASYNC110 - another process changes it
                    await asyncio.sleep(0.02)
                return seen
        except TimeoutError:
            brief = json.dumps(seen)[:2000]
            raise AssertionError(f"{path} did not become what was waited for within {within} s; last seen: {brief}") from None

    async def _get_or_empty(self, path: str) -> Object:
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return {}
            raise
