"""Watches: what comes, from where, and how they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from tests.contract.conftest import Api, cluster, pod, why
from tests.lab.controlplane import ControlPlane
from tests.lab.embedded import EmbeddedServer
from tests.lab.endpoint import ApiError, Object

NOBODY: dict[str, Any] = {"schedulerName": "nobody"}


def told(event: Object) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def version(api: Api, path: str) -> str:
    page = await api.admin.get(path)
    assert isinstance(page["metadata"]["resourceVersion"], str)
    return page["metadata"]["resourceVersion"]


async def until(events: AsyncGenerator[Object, None], count: int) -> list[Object]:
    """The first so many events; a stream that ends before that fails the test."""
    found = []
    async with asyncio.timeout(20), aclosing(events):
        async for event in events:
            found.append(event)
            if len(found) == count:
                return found
    raise AssertionError(f"the stream ended after {found}")


async def test_every_change_comes_once_and_in_order(api: Api) -> None:
    start = await version(api, api.pods())
    await api.admin.post(api.pods(), pod("a", **NOBODY))
    # Half of it lies before the watch and half after its start.
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(until(api.admin.watch(api.pods(), resourceVersion=start), 5))
        await api.admin.patch(api.pods("a"), {"metadata": {"labels": {"x": "y"}}})
        await api.admin.delete(api.pods("a"))
        await api.admin.post(api.pods(), pod("a", **NOBODY))
    events = watching.result()
    assert [told(event) for event in events] == [
        ("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a"),
    ]  # fmt: skip
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)
    assert "deletionTimestamp" in events[2]["object"]["metadata"], "a pod that goes at once is seen Terminating first"
    assert events[0]["object"]["kind"] == "Pod", "unlike the items of a list"
    assert events[4]["object"]["metadata"]["uid"] != events[0]["object"]["metadata"]["uid"]


async def test_a_watch_goes_on_where_an_event_was_seen(api: Api) -> None:
    start = await version(api, api.clusters())
    for name in ("a", "b", "c"):
        await api.admin.post(api.clusters(), cluster(name, "cpu"))
    first, second = await until(api.admin.watch(api.clusters(), resourceVersion=start), 2)
    assert [told(first), told(second)] == [("ADDED", "a"), ("ADDED", "b")]
    seen = first["object"]["metadata"]["resourceVersion"]
    rest = await until(api.admin.watch(api.clusters(), resourceVersion=seen), 2)
    assert [told(event) for event in rest] == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_selection_is_entered_and_left(api: Api) -> None:
    start = await version(api, api.pods())
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(until(api.admin.watch(api.pods(), resourceVersion=start, labelSelector="n=1"), 3))
        await api.admin.post(api.pods(), pod("other", {"n": "2"}, **NOBODY))
        made = await api.admin.post(api.pods(), pod("a", {"n": "1"}, **NOBODY))
        left = await api.admin.patch(api.pods("a"), {"metadata": {"labels": {"n": "2"}}})
        await api.admin.patch(api.pods("a"), {"metadata": {"labels": {"n": "1"}}})
    events = watching.result()
    assert [told(event) for event in events] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    assert events[1]["object"]["metadata"]["labels"] == made["metadata"]["labels"], "the state that was selected"
    assert events[1]["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_timeout_seconds_ends_the_stream_cleanly(api: Api) -> None:
    start = await version(api, api.clusters())
    async with asyncio.timeout(10):
        assert [event async for event in api.admin.watch(api.clusters(), resourceVersion=start, timeoutSeconds="1")] == []


async def test_a_bookmark_before_the_end_tells_how_far_it_got(api: Api) -> None:
    """About two seconds before a watch ends, if something happened that it had no reason to tell; and only to who asked for it."""
    query = {"resourceVersion": await version(api, api.pods()), "timeoutSeconds": "6", "labelSelector": "n=1"}
    made = await api.admin.post(api.pods(), pod("other", {"n": "2"}, **NOBODY))

    async def watch(**more: str) -> list[Object]:
        return [event async for event in api.admin.watch(api.pods(), **query, **more)]

    asked, silent = asyncio.create_task(watch(allowWatchBookmarks="true")), asyncio.create_task(watch())
    both = asyncio.gather(asked, silent)
    while not both.done():
        await api.admin.patch(api.pods("other"), {"metadata": {"labels": {"at": str(time.monotonic_ns())}}})
        await asyncio.wait([both], timeout=0.2)
    bookmarks, none = both.result()
    assert none == []
    assert {event["type"] for event in bookmarks} == {"BOOKMARK"}
    assert bookmarks[-1]["object"]["kind"] == "Pod"
    assert int(bookmarks[-1]["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert "name" not in bookmarks[-1]["object"]["metadata"]


async def test_a_version_that_is_too_old_is_an_error_event(api: Api) -> None:
    """410 does not come as the HTTP status: the stream begins with 200, says ERROR and ends."""
    await api.admin.post(api.clusters(), cluster("a", "cpu"))
    if isinstance(api.server, EmbeddedServer):
        api.server.compact()
    # The real server's cache of this kind begins after version 2: its CRD was made later.
    events = [event async for event in api.admin.watch(api.clusters(), resourceVersion="2", timeoutSeconds="5")]
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 2 (")


async def test_a_version_that_is_no_number_ends_before_the_stream(api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        await until(api.admin.watch(api.pods(), resourceVersion="abc"), 1)
    assert why(caught.value)[0] == 500


async def test_a_watch_of_an_absent_crd_is_404(api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        await api.admin.get(api.path("absent.example.com/v1", "things"), watch="true")
    assert caught.value.status == 404


async def test_what_is_deleted_comes_with_its_last_state(api: Api) -> None:
    made = await api.admin.post(api.clusters(), cluster("a", "cpu"))
    start = made["metadata"]["resourceVersion"]
    await api.admin.delete(api.clusters("a"))
    (event,) = await until(api.admin.watch(api.clusters(), resourceVersion=start), 1)
    assert told(event) == ("DELETED", "a")
    assert event["object"]["spec"] == made["spec"]
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(start)


async def test_many_watchers_see_the_same(api: Api) -> None:
    start = await version(api, api.clusters())
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(until(api.admin.watch(api.clusters(), resourceVersion=start), 3)) for _ in range(5)]
        for name in ("a", "b", "c"):
            await api.admin.post(api.clusters(), cluster(name, "cpu"))
    assert all(task.result() == watching[0].result() for task in watching)


async def test_a_restarted_server_ends_watches_and_keeps_what_is_stored(api: Api) -> None:
    start = await version(api, api.clusters())
    made = await api.admin.post(api.clusters(), cluster("a", "cpu"))
    events = api.admin.watch(api.clusters(), resourceVersion=start)
    async with asyncio.timeout(60), aclosing(events):
        assert told(await anext(events)) == ("ADDED", "a")
        if isinstance(api.server, ControlPlane):
            await api.server.restart_component("apiserver")
        else:
            async with api.server.away():
                pass
        # By a reset or by an end, as the server died; nothing comes any more.
        with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
            await anext(events)
    assert await api.admin.get(api.clusters("a")) == made
