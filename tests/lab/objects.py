"""Objects as tests make them: the smallest that both API servers take."""

from __future__ import annotations

from typing import Any

from tests.lab.endpoint import Object


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "slurmd", "image": "slurm"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def stateful_set(name: str, replicas: int = 0, **spec: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(name)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": template,
            **spec,
        },
    }


def cluster(name: str, *groups: str, replicas: int = 0) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name)["spec"]}
    specs = [{"groupName": group, "replicas": replicas, "template": template} for group in groups]
    return {
        "apiVersion": "kai.alibabacloud.com/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": name},
        "spec": {"workerGroupSpecs": specs},
    }
