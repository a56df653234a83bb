"""Lists: selectors, pages, versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.conftest import Api, cluster, pod, why
from tests.lab.endpoint import ApiError, Object, resource

NOBODY: dict[str, Any] = {"schedulerName": "nobody"}


async def make(api: Api, **labels: dict[str, str]) -> None:
    await asyncio.gather(*(api.admin.post(api.pods(), pod(name, value, **NOBODY)) for name, value in labels.items()))


def names(page: Object) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("app=w", ["a", "b"]),
        ("app==w,n=1", ["a"]),
        ("app!=w", ["c"]),
        ("n in (1, 3)", ["a", "c"]),
        ("n notin (1)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("n in (1,2),app=w", ["a", "b"]),
        ("app=none", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, expected: list[str]) -> None:
    await make(api, a={"app": "w", "n": "1"}, b={"app": "w", "n": "2"}, c={"n": "3"})
    assert names(await api.admin.get(api.pods(), labelSelector=selector)) == expected


async def test_field_selectors(api: Api) -> None:
    await make(api, a={}, b={})
    assert names(await api.admin.get(api.pods(), fieldSelector="metadata.name=b")) == ["b"]
    assert names(await api.admin.get(api.pods(), fieldSelector="metadata.name!=b")) == ["a"]
    assert names(await api.admin.get(api.pods(), fieldSelector="spec.nodeName=x")) == []


@pytest.mark.parametrize(
    "query",
    [{"labelSelector": "n bogus x"}, {"fieldSelector": "bogus=x"}, {"limit": "x"}, {"continue": "zzz"}, {"resourceVersion": "x"}],
)
async def test_a_query_that_makes_no_sense_is_400(api: Api, query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        await api.admin.get(api.pods(), **query)
    assert why(caught.value) == (400, "BadRequest")


async def test_a_list_says_its_kind_and_version(api: Api) -> None:
    await make(api, a={})
    page = await api.admin.get(api.pods())
    assert (page["kind"], page["apiVersion"]) == ("PodList", "v1")
    assert int(page["metadata"]["resourceVersion"]) >= int(page["items"][0]["metadata"]["resourceVersion"])
    assert "kind" not in page["items"][0], "items of built-in kinds do not say what they are"
    await api.admin.post(api.clusters(), cluster("c", "cpu"))
    page = await api.admin.get(api.clusters())
    assert page["kind"] == "SlurmClusterList"
    assert page["items"][0]["kind"] == "SlurmCluster", "those of custom kinds do"
    assert page["metadata"].get("continue", "") == ""


async def test_pages_show_one_moment(api: Api) -> None:
    await make(api, a={}, b={}, c={}, d={})
    first = await api.admin.get(api.pods(), limit="2")
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 2
    # What happens between the pages is not in them.
    await api.admin.delete(api.pods("c"))
    await make(api, e={})
    second = await api.admin.get(api.pods(), limit="2", **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert not second["metadata"].get("continue")
    assert names(await api.admin.get(api.pods(), limit="500")) == ["a", "b", "d", "e"]


async def test_pages_of_a_selection(api: Api) -> None:
    await make(api, a={"n": "1"}, b={}, c={"n": "1"})
    first = await api.admin.get(api.pods(), limit="1", labelSelector="n=1")
    assert names(first) == ["a"]
    assert "remainingItemCount" not in first["metadata"], "with a selector nobody knows"
    second = await api.admin.get(api.pods(), limit="1", labelSelector="n=1", **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c"]


async def test_a_list_from_the_cache_ignores_the_limit(api: Api) -> None:
    await make(api, a={}, b={})
    await api.admin.until(api.pods(), lambda page: len(page["items"]) == 2)
    versioned = await api.admin.get(api.pods(), resourceVersion="0", limit="1")
    assert "continue" not in versioned["metadata"]


async def test_a_version_from_the_future_is_504_with_retry_after(api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        await api.admin.get(api.pods(), resourceVersion="999999999")
    assert why(caught.value) == (504, "Timeout")
    assert caught.value.headers["Retry-After"] == "1"


async def test_a_list_of_all_namespaces(api: Api) -> None:
    await make(api, a={"where": api.namespace})
    found = await api.admin.list(resource("v1", "pods"), labelSelector=f"where={api.namespace}")
    assert [item["metadata"]["namespace"] for item in found] == [api.namespace]
