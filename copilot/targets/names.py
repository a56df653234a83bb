"""Names: of nodes, and of the API's collections."""

from __future__ import annotations

import re

from copilot.model import Kind, TargetRef

# A StatefulSet's ordinals and a SlurmCluster's lists are int32.
MAX_INDEX = 2**31 - 1

_COLLECTIONS = {
    Kind.SLURM_CLUSTER: ("apis/kai.alibabacloud.com/v1", "slurmclusters"),
    Kind.STATEFUL_SET: ("apis/apps/v1", "statefulsets"),
    Kind.ADVANCED_STATEFUL_SET: ("apis/apps.kruise.io/v1beta1", "statefulsets"),
}
# What the API server accepts as a pod's name, of which the part behind the last "-" is the index as printed by %d.
_NODE = re.compile(r"(?P<group>[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?)-(?P<index>0|[1-9][0-9]{0,9})", re.ASCII)
_MAX_NAME = 253


def collection(kind: Kind, namespace: str) -> str:
    """The API path under which all objects of a kind are listed, watched and patched."""
    group_version, plural = _COLLECTIONS[kind]
    return f"/{group_version}/namespaces/{namespace}/{plural}"


def resource(kind: Kind) -> tuple[str, str]:
    """API group and plural, as a Role names them."""
    group_version, plural = _COLLECTIONS[kind]
    return group_version.split("/")[1], plural


def path(ref: TargetRef) -> str:
    """The API path of one object."""
    return f"{collection(ref.kind, ref.namespace)}/{ref.name}"


def split_node(name: str) -> tuple[str, int] | None:
    """The group and the index of a node, or None when no pod can have that name (zero-padded, suffixed, upper case, too long).

    Whether such a group exists is another question: `a-b-3` is the node 3 of `a-b`, never of `a`.
    """
    found = _NODE.fullmatch(name) if len(name) <= _MAX_NAME else None
    if found is None or int(found["index"]) > MAX_INDEX:
        return None
    return found["group"], int(found["index"])


def involved(ref: TargetRef, uid: str) -> dict[str, str]:
    """The object as an Event refers to it."""
    group_version, _ = _COLLECTIONS[ref.kind]
    return {
        "apiVersion": group_version.removeprefix("apis/"),
        "kind": ref.kind.api_kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": uid,
    }
