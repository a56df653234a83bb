"""The lab's Advanced StatefulSet controller makes of reserveOrdinals what OpenKruise's documentation and its real manager make of it.

The real manager is asked the same in test_targets_real.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import stateful_set
from tests.lab.controllers import AdvancedStatefulSets, reserved_ordinals
from tests.lab.embedded import EmbeddedServer
from tests.lab.endpoint import Admin, Object, resource

API = "apps.kruise.io/v1beta1"
SETS = resource(API, "statefulsets", "default")
PODS = resource("v1", "pods", "default")


def names(page: Object) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in page["items"])


async def test_a_sparse_set_and_its_thinning(tmp_path: Path) -> None:
    """The figures were measured with the real manager 1.8."""
    async with EmbeddedServer(tmp_path) as server, Admin(server.endpoint) as admin, AdvancedStatefulSets(server.endpoint):
        await admin.post(SETS, {**stateful_set("w", 3, reserveOrdinals=[0, 1, 3, 4, 5, 6]), "apiVersion": API})
        page = await admin.until(PODS, lambda page: names(page) == ["w-2", "w-7", "w-8"])
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in page["items"]}
        thinner = {"spec": {"replicas": 2, "reserveOrdinals": [0, 1, 2, 3, 4, 5, 6]}}
        await admin.patch(f"{SETS}/w", thinner)
        page = await admin.until(PODS, lambda page: names(page) == ["w-7", "w-8"])
        assert {pod["metadata"]["uid"] for pod in page["items"]} == {before["w-7"], before["w-8"]}


async def test_a_server_that_drops_the_field(tmp_path: Path) -> None:
    """As a CRD of another version does: the pods are then the first ones, and only reading back tells."""
    async with EmbeddedServer(tmp_path) as server, Admin(server.endpoint) as admin, AdvancedStatefulSets(server.endpoint):
        server.resources.pruned.add((f"{API}/statefulsets", "reserveOrdinals"))
        made = await admin.post(SETS, {**stateful_set("w", 1, reserveOrdinals=[0]), "apiVersion": API})
        assert "reserveOrdinals" not in made["spec"]
        await admin.until(PODS, lambda page: names(page) == ["w-0"])
        patched = await admin.patch(f"{SETS}/w", {"spec": {"reserveOrdinals": [0]}})
        assert patched["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("entries", "expected"), [([], set()), ([1, 3], {1, 3}), (["2-4"], {2, 3, 4}), ([0, "7", "9-9"], {0, 7, 9})]
)
def test_reserved_ordinals(entries: list[int | str], expected: set[int]) -> None:
    assert reserved_ordinals(entries) == expected
