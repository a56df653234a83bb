"""`api`: each test of this tier runs against the embedded API server and against the real one. Where they differ the real one is right."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.contract.workers import Workers
from tests.lab import controlplane
from tests.lab.controllers import StatefulSets
from tests.lab.controlplane import ControlPlane
from tests.lab.embedded import EmbeddedServer
from tests.lab.endpoint import Admin, ApiEndpoint, ApiError, resource
from tests.lab.kubelet import Kubelet
from tests.lab.objects import cluster, pod, stateful_set

__all__ = ["Api", "cluster", "pod", "stateful_set", "why"]

CRD = Path(__file__).parents[1] / "lab" / "crds" / "slurmcluster.yaml"
CRDS = resource("apiextensions.k8s.io/v1", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Api:
    """One server, an administrator's client of it, and a namespace that no other test uses."""

    endpoint: ApiEndpoint
    admin: Admin
    namespace: str
    server: EmbeddedServer | ControlPlane

    @property
    def real(self) -> bool:
        return isinstance(self.server, ControlPlane)

    def path(self, api: str, plural: str, name: str = "", sub: str = "") -> str:
        return resource(api, plural, self.namespace, name, sub)

    def pods(self, name: str = "", sub: str = "") -> str:
        return self.path("v1", "pods", name, sub)

    def sets(self, name: str = "", sub: str = "") -> str:
        return self.path("apps/v1", "statefulsets", name, sub)

    def clusters(self, name: str = "", sub: str = "") -> str:
        return self.path("kai.alibabacloud.com/v1", "slurmclusters", name, sub)

    async def refused(self, verb: str, path: str, body: object = None, content_type: str = "application/json") -> ApiError:
        """The error that the request is answered with; a request that succeeds fails the test."""
        with pytest.raises(ApiError) as caught:
            await self.admin.request(verb, path, body, content_type)
        return caught.value


def why(error: ApiError) -> tuple[int, str]:
    """Status code and reason: what programs may rely on."""
    assert error.body.get("kind") == "Status", error.body
    assert error.body["apiVersion"] == "v1"
    assert error.body["status"] == "Failure"
    assert error.body["code"] == error.status
    return error.status, error.body.get("reason", "")


async def _start(plane: ControlPlane) -> None:
    await plane.start()
    async with Admin(plane.endpoint) as admin:
        definition = yaml.safe_load(CRD.read_text())
        await admin.post(CRDS, definition)
        await admin.until(resource("kai.alibabacloud.com/v1", "slurmclusters"), bool)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The real control plane, one for the whole session, with the SlurmCluster CRD."""
    if reason := controlplane.missing():
        pytest.skip(reason)
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    # A loop of its own: the programs belong to no loop, and every test brings its own.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            runner.run(_start(plane))
            yield plane
        finally:
            runner.run(plane.stop())


@pytest.fixture(params=["embedded", "real"])
def real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """None where the test is to run on the embedded server. Synchronous, so that the plane may run a loop to start."""
    return request.getfixturevalue("plane") if request.param == "real" else None


@pytest.fixture
async def api(real_plane: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Api]:
    server = real_plane or await EmbeddedServer(tmp_path).start()
    namespace = f"t{os.getpid()}-{uuid.uuid4().hex[:8]}"
    async with Admin(server.endpoint) as admin:
        await admin.post(resource("v1", "namespaces"), {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})
        if real_plane is not None:
            # Pods are refused until the namespace has its ServiceAccount.
            await admin.until(resource("v1", "serviceaccounts", namespace, "default"), bool)
        yield Api(server.endpoint, admin, namespace, server)
    if isinstance(server, EmbeddedServer):
        await server.stop()


@pytest.fixture
async def workers(api: Api) -> AsyncIterator[Workers]:
    workers = Workers(f"node-{api.namespace}")
    async with AsyncExitStack() as stack:
        if not api.real:
            await stack.enter_async_context(StatefulSets(api.endpoint))
        kubelet = Kubelet(api.endpoint, workers.start, workers.stop, namespace=api.namespace, node=workers.node)
        workers.kubelet = await stack.enter_async_context(kubelet)
        yield workers
        # The real server serves other tests too, and its scheduler would use this Node.
        await api.admin.delete(resource("v1", "nodes", name=workers.node))
