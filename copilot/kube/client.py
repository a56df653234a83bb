"""Requests to the API server with plain dicts: every one has a time limit, a count and an error of ours."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from copilot import __version__
from copilot.kube.access import Access, find_access
from copilot.kube.errors import KubeError, NotConfigured, Refused, Unavailable, error_of, status_of
from copilot.kube.retry import ATTEMPTS, had_no_effect, pause
from copilot.kube.selection import ALL, Selection

Object = dict[str, Any]
Objects = list[Object]
# verb, seconds, error: "" or the HTTP status, "network", "timeout", "token", "garbled"
Observer = Callable[[str, float, str], None]
# Objects per answer. To parse a page blocks the event loop: 500 pods of 2.6 kB took 50 ms, and real ones are larger.
PAGE = 100
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
_WRITES = frozenset({"create", "patch", "delete"})


def _ignore(_verb: str, _seconds: float, _error: str) -> None:
    """The observer of those who count nothing."""


class Kube:
    """One per process. Every method raises Conflict, Unavailable or Refused, and nothing else but CancelledError.

    What is certain to have had no effect (429, 503, no connection) is tried up to three times within a few seconds, Retry-After obeyed.
    """

    def __init__(self, access: Access, api: Any, timeout: float, observe: Observer) -> None:
        self._access = access
        self._api = api
        self._timeout = timeout
        self._observe = observe

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        namespace: str | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109 - of later requests
        observe: Observer = _ignore,
    ) -> Self:
        """Finds the server and our identity, asks nothing yet. `timeout` is for one answer, seconds. NotConfigured names the cure."""
        access = await find_access(kubeconfig)
        access.namespace = namespace or access.namespace
        from kubernetes_asyncio.client import ApiClient

        try:
            api = ApiClient(access.configuration)
        except (OSError, ValueError) as error:  # the authority or the client's certificate cannot be read; SSLError is an OSError
            raise NotConfigured(f"the certificates for {access.configuration.host} cannot be used: {error}") from error
        api.user_agent = f"slurmctld-copilot/{__version__}"
        return cls(access, api, timeout, observe)

    @property
    def namespace(self) -> str:
        """Where the targets are: as told, else the pod's own or the kubeconfig's."""
        return self._access.namespace

    async def close(self) -> None:
        await self._api.close()

    async def get(self, path: str) -> Object:
        """One object."""
        return await self._request("get", path)

    async def list(self, path: str, selection: Selection = ALL) -> tuple[Objects, str]:
        """All objects of a collection and the resource version from which a watch goes on."""
        items: Objects = []
        version = ""
        async for page, version in self.pages(path, selection):  # noqa: B007 - the last one counts
            items += page
        return items, version

    async def pages(self, path: str, selection: Selection = ALL) -> AsyncGenerator[tuple[Objects, str]]:
        """The same, 100 objects at a time, so that no answer holds up the event loop for long and a large collection is never in memory as a whole.

        Refused with status 410 when the list grew too old between two pages: begin again.
        """
        query = [("limit", str(PAGE)), *selection.query]
        further = ""
        while True:
            answer = await self._request("list", path, query=[*query, ("continue", further)] if further else query)
            meta = answer.get("metadata") or {}
            yield answer.get("items") or [], str(meta.get("resourceVersion", ""))
            further = str(meta.get("continue") or "")
            if not further:
                return

    async def patch(self, path: str, operations: Sequence[Object]) -> Object:
        """Applies a JSON patch as a whole or not at all and returns the object after it. Conflict when a `test` does not hold."""
        return await self._request("patch", path, body=list(operations), content_type="application/json-patch+json")

    async def try_patch(self, path: str, operations: Sequence[Object]) -> Object:
        """The object as the same patch would leave it; the server keeps nothing of it."""
        return await self._request("patch", path, list(operations), [("dryRun", "All")], "application/json-patch+json")

    async def create(self, path: str, body: Object) -> Object:
        """Posts an object to a collection and returns what the server made of it."""
        return await self._request("create", path, body=body)

    async def delete(self, path: str, uid: str, grace: int | None = None) -> bool:
        """Deletes the very object with that uid, False when it is gone already. Conflict when the name is another's by now.

        `grace` in seconds, None for the object's own.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            await self._request("delete", path, body=options)
        except Refused as error:
            if error.status == 404:
                return False
            raise
        return True

    async def create_event(self, involved: Mapping[str, str], reason: str, message: str, warning: bool = False) -> None:
        """Tells something of an object (apiVersion, kind, namespace, name, uid), as `kubectl describe` shows it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = involved["namespace"]
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{involved['name']}.", "namespace": namespace},
            "involvedObject": dict(involved),
            "reason": reason,
            "message": message[:1024],  # the server's limit
            "type": "Warning" if warning else "Normal",
            "source": {"component": "slurmctld-copilot", "host": socket.gethostname()},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self.create(f"/api/v1/namespaces/{namespace}/events", body)

    async def version(self) -> tuple[int, int]:
        """Major and minor of the server; some print the minor as "27+"."""
        answer = await self._request("get", "/version")
        major, minor = (str(answer.get(key, "")).rstrip("+") for key in ("major", "minor"))
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)

    async def clock(self) -> float | None:
        """The server's wall clock in whole seconds, None when it does not say."""
        path = "/version"
        async with self._counted("get", path, asyncio.get_running_loop().time()):
            answer = await self._send("get", path, (), None, "application/json", aiohttp.ClientTimeout(total=self._timeout))
            answer.close()
        date = answer.headers.get("Date")
        return parsedate_to_datetime(date).timestamp() if date else None

    @asynccontextmanager
    async def stream(self, path: str, query: Sequence[tuple[str, str]], silence: float) -> AsyncIterator[aiohttp.StreamReader]:
        """The open answer of a watch request, checked for its status. TimeoutError from a read after `silence` seconds without a byte.

        Reads raise aiohttp.ClientError when the connection breaks; nothing is repeated here.
        """
        limits = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=silence)
        began = asyncio.get_running_loop().time()
        async with self._counted("watch", path, began):
            async with asyncio.timeout(self._timeout):
                answer = await self._send("watch", path, query, None, "application/json", limits)
            if answer.status >= 400:
                async with answer:
                    raise error_of("watch", path, answer.status, await answer.read(), answer.headers)
        try:
            yield answer.content
        finally:
            answer.close()

    async def _request(
        self,
        verb: str,
        path: str,
        body: object = None,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
    ) -> Object:
        again = AsyncRetrying(
            retry=retry_if_exception(had_no_effect), wait=pause, stop=stop_after_attempt(ATTEMPTS), reraise=True
        )
        async for attempt in again:
            with attempt:
                try:
                    return await self._once(verb, path, body, query, content_type)
                except Refused as error:
                    # Nothing was done. Tokens are replaced while we run: only one that is still the same has been refused.
                    if error.status != 401 or not await self._access.renew():
                        raise
                return await self._once(verb, path, body, query, content_type)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, verb: str, path: str, body: object, query: Sequence[tuple[str, str]], content_type: str) -> Object:
        limits = aiohttp.ClientTimeout(total=self._timeout)
        async with self._counted(verb, path, asyncio.get_running_loop().time()):
            answer = await self._send(verb, path, query, body, content_type, limits)
            async with answer:
                data = await answer.read()
            if answer.status >= 400:
                raise error_of(verb, path, answer.status, data, answer.headers)
            try:
                parsed = json.loads(data)
            except ValueError:
                parsed = None
            if not isinstance(parsed, dict):
                raise Unavailable(
                    f"{verb} {path}: the answer is no JSON object; is there a proxy between?", "garbled", unknown=verb in _WRITES
                )
            return parsed

    async def _send(
        self,
        verb: str,
        path: str,
        query: Sequence[tuple[str, str]],
        body: object,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        answer = await self._api.call_api(
            path,
            _METHODS[verb],
            query_params=list(query),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limits,
        )
        assert isinstance(answer, aiohttp.ClientResponse)
        return answer

    @asynccontextmanager
    async def _counted(self, verb: str, path: str, began: float) -> AsyncIterator[None]:
        """Turns what the network raises into Unavailable, and tells the observer how it ended."""
        error = "cancelled"
        try:
            yield
            error = ""
        except TimeoutError as cause:
            error = "timeout"
            raise Unavailable(f"{verb} {path}: no answer within {self._timeout:g} s", error, unknown=verb in _WRITES) from cause
        except aiohttp.ClientConnectorError as cause:
            error = "network"
            raise Unavailable(f"{verb} {path}: no connection: {cause}", error) from cause
        except (aiohttp.ClientError, OSError) as cause:
            error = "network"
            raise Unavailable(f"{verb} {path}: the connection broke: {cause!r}", error, unknown=verb in _WRITES) from cause
        except KubeError as cause:
            error = status_of(cause)
            raise
        finally:
            if error != "cancelled":
                self._observe(verb, asyncio.get_running_loop().time() - began, error)
