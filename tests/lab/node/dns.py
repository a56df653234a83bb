"""The cluster's names: CoreDNS as a Deployment behind the Service that kubelet tells every pod of."""

from __future__ import annotations

from pathlib import Path

from tests.lab.endpoint import Admin, ApiError, Object, resource
from tests.lab.node.archive import program_image
from tests.lab.node.layout import DNS_ADDRESS, DNS_DOMAIN, DNS_IMAGE, need

_NAMESPACE = "kube-system"
_LABELS = {"k8s-app": "kube-dns"}
# There is no upstream: other names are refused at once.
_COREFILE = f""".:53 {{
    errors
    ready
    kubernetes {DNS_DOMAIN} in-addr.arpa ip6.arpa
}}
"""
_RBAC = "rbac.authorization.k8s.io"


def image(archive: Path) -> None:
    program_image(archive, DNS_IMAGE, [need("coredns")], ["/coredns"])


async def apply(admin: Admin) -> None:
    """Creates its objects in a new cluster."""
    for path, body in _objects():
        try:
            await admin.post(path, body)
        except ApiError as error:
            if error.status != 409:
                raise


async def ready(admin: Admin, within: float = 60.0) -> None:
    """Returns when names are answered. AssertionError with the Deployment's state after `within` seconds."""
    path = resource("apps/v1", "deployments", _NAMESPACE, "coredns")
    await admin.until(path, lambda seen: bool(seen.get("status", {}).get("availableReplicas")), within)


def _objects() -> list[tuple[str, Object]]:
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"metadata": {"name": "system:coredns"}, "rules": rules}
    binding = {
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": _NAMESPACE}],
    }
    named = {"metadata": {"name": "coredns"}}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    service = {
        "metadata": {"name": "kube-dns", "labels": _LABELS},
        "spec": {"clusterIP": DNS_ADDRESS, "selector": _LABELS, "ports": ports},
    }
    return [
        (resource("v1", "serviceaccounts", _NAMESPACE), named),
        (resource(f"{_RBAC}/v1", "clusterroles"), role),
        (resource(f"{_RBAC}/v1", "clusterrolebindings"), binding),
        (resource("v1", "configmaps", _NAMESPACE), {**named, "data": {"Corefile": _COREFILE}}),
        (resource("v1", "services", _NAMESPACE), service),
        (resource("apps/v1", "deployments", _NAMESPACE), {**named, "spec": _deployment()}),
    ]


def _deployment() -> Object:
    container = {
        "name": "coredns",
        "image": DNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return {"selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": pod}}
