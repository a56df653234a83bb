"""OpenKruise in the node's cluster as its own manifests run it: the manager in a pod, its webhooks behind a Service."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Final

import yaml

from tests.lab.endpoint import Object
from tests.lab.kruise import NAMESPACE, documents, has_authority, installed, missing
from tests.lab.node import State, import_image, kubectl
from tests.lab.node.archive import program_image

IMAGE: Final = "lab.local/kruise-manager:1"
_LABELS: Final = {"control-plane": "controller-manager"}
# They fail closed, and would refuse the manager's own pod.
_ELSEWHERE: Final = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE, "kube-system"]}]
}
_HOOKS: Final = (
    "mutatingwebhookconfigurations/kruise-mutating-webhook-configuration",
    "validatingwebhookconfigurations/kruise-validating-webhook-configuration",
)


def start(node: State) -> None:
    """Applies it; `ready` waits for it. AssertionError where it is not installed."""
    home = installed()
    assert home is not None, missing()
    archive = node.folder / "kruise.tar"
    program_image(archive, IMAGE, [home / "kruise-manager"], ["/kruise-manager"])
    import_image(node, archive)
    archive.unlink()
    # Server-side: the definitions are too large for the annotation that the other way leaves.
    kubectl(node, "apply", "--server-side", "-f", "-", text=yaml.safe_dump_all([*_given(home), *_objects()]))


def ready(node: State, within: float = 90.0) -> None:
    """Returns when a set would be admitted and acted upon; AssertionError with the manager's last words after `within` seconds."""
    deadline = time.monotonic() + within
    while not _ready(node):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"OpenKruise was not ready within {within} s:\n{kubectl(node, 'logs', '-n', NAMESPACE, '-l', 'control-plane')}"
            )
        time.sleep(0.2)


def _ready(node: State) -> bool:
    """The manager gives its webhooks their authority last, and is Ready before."""
    try:
        seen = [json.loads(kubectl(node, "get", hooks, "-o", "json")) for hooks in _HOOKS]
        deployment = json.loads(kubectl(node, "get", "deployment/kruise-controller-manager", "-n", NAMESPACE, "-o", "json"))
    except subprocess.CalledProcessError:
        return False
    return bool(deployment["status"].get("readyReplicas")) and all(has_authority(one) for one in seen)


def _given(home: Path) -> list[Object]:
    """OpenKruise's own objects, its webhooks under the names that the manager looks for."""
    hooks = documents(home / "config/webhook/manifests.yaml")
    for one in hooks:
        one["metadata"]["name"] = f"kruise-{one['metadata']['name']}"
        for hook in one["webhooks"]:
            hook["namespaceSelector"] = _ELSEWHERE
            hook["clientConfig"]["service"] |= {"namespace": NAMESPACE, "name": "kruise-webhook-service"}
    return [*documents(home / "config/crd/bases"), *hooks]


def _objects() -> list[Object]:
    here = {"namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", "name": "kruise-manager", **here}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kruise-manager", **here}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kruise-manager"},
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kruise-webhook-certs", **here}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kruise-webhook-service", **here},
            "spec": {"selector": _LABELS, "ports": [{"port": 443, "targetPort": 9876}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kruise-controller-manager", **here},
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": _pod()},
            },
        },
    ]


def _pod() -> Object:
    arguments = ["--enable-leader-election=false", "--enable-pprof=false", "--metrics-addr=0", "--health-probe-addr=:8000"]
    manager: Object = {
        "name": "manager",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": [*arguments, "--rest-config-qps=500", "--rest-config-burst=1000"],
        "env": [{"name": "POD_NAMESPACE", "value": NAMESPACE}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8000}, "periodSeconds": 1},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "scratch", "mountPath": folder, "subPath": folder[1:]} for folder in ("/tmp", "/log")],
    }
    volumes = [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]
    return {
        "serviceAccountName": "kruise-manager",
        "terminationGracePeriodSeconds": 2,
        "containers": [manager],
        "volumes": volumes,
    }
