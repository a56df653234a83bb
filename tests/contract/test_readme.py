"""The manifests of README.md, as the real API server takes them: with strict validation, so that no field is misspelt or misplaced."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import yaml

from tests.lab.controlplane import ControlPlane
from tests.lab.endpoint import Admin, ApiError, resource
from tests.unit.documents import blocks, read

MANIFESTS = [yaml.safe_load(block) for block in blocks(read("README.md"), "yaml")]
PLURALS = {"SlurmCluster": "slurmclusters", "StatefulSet": "statefulsets", "Pod": "pods"}
STRICT = "?fieldValidation=Strict"


def whole(manifest: dict[str, Any]) -> dict[str, Any]:
    """The sidecar stands in the README as a part of the head pod's spec; slurmctld's own image is left out there."""
    if "kind" in manifest:
        return manifest
    containers = [{"image": "slurm", **container} for container in manifest["containers"]]
    spec = {**manifest, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "head"}, "spec": spec}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: whole(manifest)["kind"])
async def test_a_manifest_of_the_readme_is_valid(plane: ControlPlane, manifest: dict[str, Any]) -> None:
    sent = whole(manifest)
    namespace = f"readme-{uuid.uuid4().hex[:8]}"
    sent["metadata"].pop("namespace", None)
    async with Admin(plane.endpoint) as admin:
        await admin.post(resource("v1", "namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await plane.service_account(namespace)
        path = resource(sent["apiVersion"], PLURALS[sent["kind"]], namespace) + STRICT
        created = await admin.post(path, sent)
        assert created["metadata"]["name"] == sent["metadata"]["name"]
        with pytest.raises(ApiError, match="unknown field"):
            await admin.post(path, {**sent, "metadata": {"name": "other"}, "surprise": 1})
