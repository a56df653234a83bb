"""Every object of every overlay and component is one that the real API server takes, strictly and without a warning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab import prometheus
from tests.manifests.conftest import MANIFESTS, Kubectl, build
from tests.unit.manifest_files import disagreements, slurm_files

COMPONENTS = sorted(one.name for one in (MANIFESTS / "components").iterdir())
OVERLAYS = sorted(one.name for one in (MANIFESTS / "overlays").iterdir())
# In the order in which an overlay lists them: a component changes only what was listed before it, and no workers after kruise.
ALL = ["login", "ldap", "accounting", "mariadb", "home", "shared-config", "monitoring", "kruise"]
# Each takes the place of something in the others.
INSTEAD = {"slurm-22.05", "monitoring-plain"}


def kustomization(folder: Path, *components: str) -> Path:
    """A folder with the base and some components."""
    base = os.path.relpath(MANIFESTS, folder.resolve())
    lines = [
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        "namespace: slurm",
        "resources:",
        f"- {base}/base",
    ]
    if components:
        lines += ["components:", *(f"- {base}/components/{name}" for name in components)]
    (folder / "kustomization.yaml").write_text("\n".join(lines) + "\n")
    return folder


def dry_run(kubectl: Kubectl, folder: Path) -> list[str]:
    """The names of all that was taken."""
    argv = ("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-k", folder)
    return kubectl(*argv).split()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_valid(kubectl: Kubectl, overlay: str) -> None:
    folder = MANIFESTS / "overlays" / overlay
    assert len(dry_run(kubectl, folder)) == len(build(folder)) > 30


@pytest.mark.parametrize("components", [(), *((one,) for one in COMPONENTS), ALL], ids=lambda names: "+".join(names) or "none")
def test_the_base_with_components_is_valid(kubectl: Kubectl, tmp_path: Path, components: tuple[str, ...]) -> None:
    if "monitoring" in components and not prometheus.definitions():
        pytest.skip("not installed: the Prometheus operator's definitions (tests/lab/install prometheus-operator)")
    folder = kustomization(tmp_path, *components)
    assert len(dry_run(kubectl, folder)) == len(build(folder)) > 10


def test_a_misspelt_field_is_refused(kubectl: Kubectl, tmp_path: Path) -> None:
    folder = kustomization(tmp_path)
    operation = '[{"op": "add", "path": "/spec/selecter", "value": {}}]'
    patch = f"patches: [{{target: {{kind: Service, name: head}}, patch: '{operation}'}}]\n"
    (folder / "kustomization.yaml").write_text((folder / "kustomization.yaml").read_text() + patch)
    with pytest.raises(AssertionError, match=r'unknown field "spec\.selecter"'):
        dry_run(kubectl, folder)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_built_has_the_slurm_conf_of_the_files(overlay: str) -> None:
    """The agreement of nodes and groups is tested on the files, without kubectl; here on what kubectl makes of them."""
    folder = MANIFESTS / "overlays" / overlay
    objects = build(folder)
    (conf,) = (one["data"] for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "slurm-conf")
    assert conf == slurm_files(folder)
    assert disagreements(objects, conf) == []


def test_kruise_changes_the_kind_of_all_workers_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    before = build(kustomization(tmp_path, "home"))
    after = build(kustomization(tmp_path / "with", "home", "kruise"))
    (worker,) = (one for one in before if one["metadata"]["name"] == "cpu")
    assert {**worker, "apiVersion": "apps.kruise.io/v1beta1"} in after
    assert [one for one in after if one["metadata"]["name"] != "cpu"] == [one for one in before if one is not worker]


def test_all_components_are_tested_together() -> None:
    assert {*ALL, *INSTEAD} == set(COMPONENTS)


def test_a_shared_configuration_takes_the_place_of_the_configmap(tmp_path: Path) -> None:
    objects = build(kustomization(tmp_path, *ALL))
    volumes = {
        one["metadata"]["name"]: volume
        for one in objects
        for volume in one.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", [])
        if volume["name"] == "slurm-conf"
    }
    claim = {"name": "slurm-conf", "persistentVolumeClaim": {"claimName": "slurm-conf"}}
    assert volumes == {"head": claim, "cpu": claim, "login": claim}
