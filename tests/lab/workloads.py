"""The objects that scale workers, as an installation would have them, and which pods each of them asks for."""

from __future__ import annotations

from itertools import count, islice

from copilot.model import Kind
from tests.lab.controllers import reserved_ordinals
from tests.lab.endpoint import Object, resource
from tests.lab.pod_status import CONTAINER

LABELS = {"app.kubernetes.io/component": "slurmd"}
_API = {
    Kind.STATEFUL_SET: ("apps/v1", "statefulsets", "StatefulSet"),
    Kind.ADVANCED_STATEFUL_SET: ("apps.kruise.io/v1beta1", "statefulsets", "StatefulSet"),
    Kind.SLURM_CLUSTER: ("kai.alibabacloud.com/v1", "slurmclusters", "SlurmCluster"),
}


def collection(kind: Kind, namespace: str) -> str:
    """The API path under which the objects of a kind are created."""
    api, plural, _ = _API[kind]
    return resource(api, plural, namespace)


def manifest(kind: Kind, group: str) -> Object:
    """The object that runs the nodes `<group>-<index>`, with no pod wanted yet."""
    api, _, word = _API[kind]
    template: Object = {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": CONTAINER, "image": "slurm"}]}}
    if kind is Kind.SLURM_CLUSTER:
        name, _, suffix = group.partition("-worker-")
        entry = {"groupName": suffix, "replicas": 0, "podsToBeCreated": [], "podsToBeDeleted": [], "template": template}
        return {"apiVersion": api, "kind": word, "metadata": {"name": name}, "spec": {"workerGroupSpecs": [entry]}}
    template["metadata"]["labels"]["app.kubernetes.io/name"] = group
    spec = {
        "replicas": 0,
        "serviceName": group,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app.kubernetes.io/name": group}},
        "template": template,
    }
    return {"apiVersion": api, "kind": word, "metadata": {"name": group, "labels": dict(LABELS)}, "spec": spec}


def path_of(kind: Kind, namespace: str, group: str) -> str:
    """The API path of the object that runs a group."""
    return f"{collection(kind, namespace)}/{group.partition('-worker-')[0] if kind is Kind.SLURM_CLUSTER else group}"


def entry_of(obj: Object, group: str) -> Object:
    """A SlurmCluster's entry of one group; {} while it has none."""
    word = group.partition("-worker-")[2]
    found: Object = next((one for one in obj["spec"]["workerGroupSpecs"] if one["groupName"] == word), {})
    return found


def replicas_of(kind: Kind, obj: Object, group: str) -> int:
    spec = entry_of(obj, group) if kind is Kind.SLURM_CLUSTER else obj["spec"]
    return int(spec.get("replicas") or 0)


def asked(kind: Kind, obj: Object) -> set[int] | None:
    """The indexes that the object asks for; None where it does not tell (SlurmCluster)."""
    if kind is Kind.SLURM_CLUSTER:
        return None
    spec = obj["spec"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    reserved = reserved_ordinals(spec.get("reserveOrdinals") or []) if kind is Kind.ADVANCED_STATEFUL_SET else set()
    return set(islice((index for index in count(start) if index not in reserved), int(spec.get("replicas") or 0)))


def window(kind: Kind, indexes: set[int]) -> set[int]:
    """What a target must ask for to have these: a StatefulSet cannot leave any out between the lowest and the highest."""
    if kind is Kind.STATEFUL_SET and indexes:
        return set(range(min(indexes), max(indexes) + 1))
    return set(indexes)
