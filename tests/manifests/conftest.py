"""The manifests tier: a real control plane with the kinds that the manifests use, and kubectl. No node, so no pod runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import controlplane, kruise, prometheus
from tests.lab.controlplane import TREE, ControlPlane, binary
from tests.lab.endpoint import Admin, ApiEndpoint, established, resource

MANIFESTS = TREE / "manifests"
NAMESPACE = "slurm"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl as the administrator."""

    endpoint: ApiEndpoint

    @property
    def environment(self) -> dict[str, str]:
        """For programs that call kubectl themselves."""
        program = binary("kubectl")
        assert program is not None
        config = self.endpoint.kubeconfig_path
        # Without a home it would keep its cache in the current folder.
        return {"PATH": f"{program.parent}:{os.environ['PATH']}", "KUBECONFIG": str(config), "HOME": str(config.parent)}

    def __call__(self, *argv: str | Path, text: str = "") -> str:
        """What it prints; AssertionError with its complaint when it fails or warns."""
        done = subprocess.run(["kubectl", *map(str, argv)], env=self.environment, input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


def build(folder: Path) -> list[Object]:
    """What a kustomization comes to, as kubectl builds it."""
    program = binary("kubectl")
    assert program is not None
    done = subprocess.run([program, "kustomize", folder], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


async def _kinds_served(plane: ControlPlane) -> None:
    """Not `kubectl wait`: it fails on a definition that is so new that it has no conditions yet."""
    path = resource("apiextensions.k8s.io/v1", "customresourcedefinitions")
    async with Admin(plane.endpoint) as admin:
        await admin.until(path, lambda listed: bool(listed.get("items")) and all(map(established, listed["items"])))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One for each module, so that a dry run meets nothing that others have made.

    With the definitions of SlurmCluster, of OpenKruise's sets and (where they are installed) of the Prometheus operator's kinds, and the
    namespace, which a dry run needs as well.
    """
    home = kruise.installed()
    if reason := controlplane.missing() or kruise.missing():
        pytest.skip(reason)
    assert home is not None
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            runner.run(plane.start())
            kubectl = Kubectl(plane.endpoint)
            # Server-side: OpenKruise's definition is too large for the annotation that the other way leaves.
            for definition in (
                TREE / "tests/lab/crds/slurmcluster.yaml",
                home / "config/crd/bases/apps.kruise.io_statefulsets.yaml",
                *prometheus.definitions(),
            ):
                kubectl("apply", "--server-side", "-f", definition)
            runner.run(_kinds_served(plane))
            kubectl("apply", "-f", MANIFESTS / "base/namespace.yaml")
            yield plane
        finally:
            runner.run(plane.stop())


@pytest.fixture(scope="module")
def kubectl(plane: ControlPlane) -> Kubectl:
    return Kubectl(plane.endpoint)


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Admin]:
    async with Admin(plane.endpoint) as admin:
        # Pods are refused until the namespace has its ServiceAccount.
        await admin.until(resource("v1", "serviceaccounts", NAMESPACE, "default"), bool)
        yield admin
