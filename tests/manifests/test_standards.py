"""What every pod of the manifests keeps to, checked on what kubectl builds of the overlays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.manifests.conftest import MANIFESTS, Object, build

OVERLAYS = sorted(one.name for one in (MANIFESTS / "overlays").iterdir())
COMPONENT = "app.kubernetes.io/component"
# Root, to become their users; sshd also writes where no volume can be mounted. Each says why beside its securityContext.
ROOT = {"slurmd", "login"}
WRITABLE = {"login"}
# slurmctld watches slurmd itself; slurmdbd may convert its tables for hours.
NO_LIVENESS = {"slurmd", "slurmdbd"}
MADE_BY_COMMAND = {"munge-key", "ssh-host-keys", "ldap-admin", "ldap-tls", "slurmdbd-database"}


def templates(objects: list[Object]) -> dict[str, Object]:
    """All pod templates by the name of what runs them."""
    found: dict[str, Object] = {}
    for one in objects:
        if one["kind"] == "SlurmCluster":
            found["slurm-head"] = one["spec"]["headGroupSpec"]["template"]
            found |= {f"slurm-{group['groupName']}": group["template"] for group in one["spec"]["workerGroupSpecs"]}
        elif "template" in one.get("spec", {}):
            found[one["metadata"]["name"]] = one["spec"]["template"]
    return found


def containers(template: Object) -> Iterator[Object]:
    yield from template["spec"].get("initContainers", [])
    yield from template["spec"]["containers"]


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return build(MANIFESTS / "overlays" / request.param)


@pytest.fixture
def pods(objects: list[Object]) -> dict[str, Object]:
    found = templates(objects)
    roles = {template["metadata"]["labels"][COMPONENT] for template in found.values()}
    assert roles == {"slurmctld", "slurmd", "slurmdbd", "login", "openldap", "phpldapadmin", "mariadb"}
    return found


def test_images_have_a_version(pods: dict[str, Object]) -> None:
    for template in pods.values():
        for container in containers(template):
            name, _, tag = container["image"].partition(":")
            assert name and tag and tag != "latest", container["image"]


def test_nobody_gets_a_token_but_the_copilot(pods: dict[str, Object]) -> None:
    holders = set()
    for template in pods.values():
        assert template["spec"]["automountServiceAccountToken"] is False
        tokens = {
            one["name"]
            for one in template["spec"]["volumes"]
            if any("serviceAccountToken" in source for source in one.get("projected", {}).get("sources", []))
        }
        holders |= {
            container["name"] for container in containers(template) for one in container["volumeMounts"] if one["name"] in tokens
        }
    assert holders == {"copilot"}


def test_nobody_mounts_the_copilot_s_socket_but_slurmctld(pods: dict[str, Object]) -> None:
    mounts = {
        container["name"]
        for template in pods.values()
        for container in containers(template)
        for one in container["volumeMounts"]
        if one["mountPath"] == "/run/slurmctld-copilot"
    }
    assert mounts == {"slurmctld", "copilot"}


def test_rights_are_dropped(pods: dict[str, Object]) -> None:
    for name, template in pods.items():
        spec = template["spec"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context, role = container["securityContext"], container["name"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert ("add" in context["capabilities"]) == (role in ROOT), name
            assert spec["securityContext"].get("runAsNonRoot", False) == (role not in ROOT), name
            assert context.get("readOnlyRootFilesystem", False) == (role not in WRITABLE), name


def test_probes_and_resources(pods: dict[str, Object]) -> None:
    for template in pods.values():
        for container in template["spec"]["containers"]:
            assert "readinessProbe" in container
            assert ("livenessProbe" in container) == (container["name"] not in NO_LIVENESS)
            assert "memory" in container["resources"]["limits"]


def test_a_worker_s_jobs_are_told_before_it_goes(pods: dict[str, Object]) -> None:
    workers = [one for one in pods.values() if one["metadata"]["labels"][COMPONENT] == "slurmd"]
    assert len(workers) == 2
    for template in workers:
        (container,) = template["spec"]["containers"]
        assert "scancel --signal=TERM" in container["lifecycle"]["preStop"]["exec"]["command"][2]


def test_every_pod_is_closed_to_strangers(objects: list[Object], pods: dict[str, Object]) -> None:
    policies = [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]
    assert {"podSelector": {}, "policyTypes": ["Ingress"]} in policies
    opened = {one["podSelector"]["matchLabels"][COMPONENT] for one in policies if one["podSelector"]}
    # Its page is for port-forward alone.
    assert {one["metadata"]["labels"][COMPONENT] for one in pods.values()} - opened == {"phpldapadmin"}
    for one in policies:
        for rule in one.get("ingress", []):
            assert "from" in rule or one["podSelector"]["matchLabels"][COMPONENT] == "login"


def test_what_pods_mount_is_there_or_made_by_the_command(objects: list[Object], pods: dict[str, Object]) -> None:
    def names(kind: str) -> set[str]:
        return {one["metadata"]["name"] for one in objects if one["kind"] == kind}

    claims, maps, secrets = set(), set(), set()
    for template in pods.values():
        for volume in template["spec"]["volumes"]:
            claims |= {volume["persistentVolumeClaim"]["claimName"]} if "persistentVolumeClaim" in volume else set()
            maps |= {volume["configMap"]["name"]} if "configMap" in volume else set()
            if "secret" in volume and not volume["secret"].get("optional"):
                secrets.add(volume["secret"]["secretName"])
        mounted = {one["name"] for container in containers(template) for one in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}
    assert claims == names("PersistentVolumeClaim")
    assert maps <= names("ConfigMap")
    assert secrets == MADE_BY_COMMAND
    assert not names("Secret"), "no secret is in the tree"


def test_home_is_where_users_work(pods: dict[str, Object]) -> None:
    with_home = {
        container["name"]
        for template in pods.values()
        for container in containers(template)
        if {"name": "home", "mountPath": "/home"} in container["volumeMounts"]
    }
    assert with_home == {"slurmd", "login"}


def test_services_and_the_budget_select_pods(objects: list[Object], pods: dict[str, Object]) -> None:
    labels = [one["metadata"]["labels"] for one in pods.values()]
    selectors = [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    assert len(selectors) == 8
    for selector in selectors:
        assert any(selector.items() <= one.items() for one in labels), selector
