"""What the monitoring components add to an installation: the right pod and port are scraped, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab import prometheus
from tests.manifests.conftest import MANIFESTS, Kubectl, Object, build
from tests.manifests.test_valid import dry_run, kustomization

SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/port": "9817", "prometheus.io/path": "/metrics"}
DASHBOARD = MANIFESTS / "components/monitoring/dashboard/dashboard.json"


@pytest.fixture
def plain(tmp_path: Path) -> list[Object]:
    """The base alone."""
    (tmp_path / "base").mkdir()
    return build(kustomization(tmp_path / "base"))


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def test_the_pod_monitor_selects_the_copilot_and_nothing_else(tmp_path: Path) -> None:
    objects = build(kustomization(tmp_path, "login", "ldap", "accounting", "mariadb", "monitoring"))
    spec = named(objects, "PodMonitor", "slurmctld-copilot")["spec"]
    templates = {one["metadata"]["name"]: one["spec"]["template"] for one in objects if "template" in one.get("spec", {})}
    assert len(templates) > 5
    selector = spec["selector"]["matchLabels"].items()
    assert {name for name, one in templates.items() if selector <= one["metadata"]["labels"].items()} == {"head"}
    (endpoint,) = spec["podMetricsEndpoints"]
    ports = [port for one in templates["head"]["spec"]["containers"] for port in one.get("ports", [])]
    assert [port["containerPort"] for port in ports if port["name"] == endpoint["port"]] == [9817]


def test_prometheus_is_let_in_and_others_are_not(plain: list[Object]) -> None:
    """Its pods have this label with the operator as with the chart without it."""
    rules = named(plain, "NetworkPolicy", "slurmctld")["spec"]["ingress"]
    (rule,) = (one for one in rules if one["ports"] == [{"port": 9817}])
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}]


@pytest.mark.parametrize(
    ("component", "kinds"),
    [("monitoring", {"PodMonitor", "PrometheusRule", "ConfigMap"}), ("monitoring-plain", {"ConfigMap"})],
)
def test_a_component_adds_objects_and_at_most_annotations(
    tmp_path: Path, plain: list[Object], component: str, kinds: set[str]
) -> None:
    after = build(kustomization(tmp_path, component))
    head = named(after, "StatefulSet", "head")
    annotations = head["spec"]["template"]["metadata"]["annotations"]
    scraped = {name: annotations.pop(name) for name in SCRAPED if name in annotations}
    assert scraped == (SCRAPED if component == "monitoring-plain" else {})
    assert [one for one in plain if one not in after] == []
    added = [one for one in after if one not in plain]
    assert {one["kind"] for one in added} == kinds
    assert {one["metadata"]["namespace"] for one in added} == {"slurm"}


@pytest.mark.parametrize("component", ["monitoring", "monitoring-plain"])
def test_the_dashboard_is_shipped_as_it_is_for_grafanas_sidecar(tmp_path: Path, component: str) -> None:
    shipped = named(build(kustomization(tmp_path, component)), "ConfigMap", "slurmctld-copilot-dashboard")
    assert shipped["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(shipped["data"]["slurmctld-copilot.json"]) == json.loads(DASHBOARD.read_text())


@pytest.mark.parametrize(
    ("kind", "operation", "complaint"),
    [
        ("PodMonitor", {"op": "add", "path": "/spec/podMetricsEndpoints/0/every", "value": "15s"}, "unknown field"),
        ("PodMonitor", {"op": "add", "path": "/spec/podMetricsEndpoints/0/interval", "value": "soon"}, "interval"),
        ("PrometheusRule", {"op": "add", "path": "/spec/groups/0/rules/0/for", "value": "soon"}, "for"),
    ],
)
def test_the_operators_definitions_see_what_is_wrong(
    kubectl: Kubectl, tmp_path: Path, kind: str, operation: dict[str, str], complaint: str
) -> None:
    if not prometheus.definitions():
        pytest.skip("not installed: the Prometheus operator's definitions (tests/lab/install prometheus-operator)")
    folder = kustomization(tmp_path, "monitoring")
    patch = f"patches: [{{target: {{kind: {kind}}}, patch: '{json.dumps([operation])}'}}]\n"
    (folder / "kustomization.yaml").write_text((folder / "kustomization.yaml").read_text() + patch)
    with pytest.raises(AssertionError, match=complaint):
        dry_run(kubectl, folder)
