"""The kinds that are served, with the defaults and the validation that callers notice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.lab.endpoint import Object

Causes = list[tuple[str, str, str]]  # (field, reason, message)

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource.

    `default` fills in what is missing at each write. `mutable` names the spec fields that an update may change (None: all), `refusal`
    is what is said of the others; fields that are not `known` (None: all are) are dropped silently.
    `keeps_status`: a create may bring a status. `generation`: the kind has one.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    subresources: frozenset[str] = frozenset()
    default: Callable[[Object], None] = lambda _obj: None
    validate: Callable[[Object], Causes] = lambda _obj: []
    mutable: frozenset[str] | None = None
    refusal: str = ""
    known: frozenset[str] | None = None
    generation: bool = True
    keeps_status: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Identifies the kind in the store: `apps/v1/statefulsets`."""
        return f"{self.api_version}/{self.plural}"


def name_causes(obj: Object) -> Causes:
    name = obj["metadata"].get("name") or ""
    if not name:
        return [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    if not _NAME.match(name) or len(name) > 253:
        return [("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}')]
    return []


def _integer(value: Any, where: str) -> Causes:
    """A replica count: absent, or an integer of at least 0."""
    if value is None:
        return []
    if not isinstance(value, int) or isinstance(value, bool):
        word = "string" if isinstance(value, str) else type(value).__name__
        return [(where, "FieldValueTypeInvalid", f'Invalid value: "{word}": {where} in body must be of type integer: "{word}"')]
    if value < 0:
        return [(where, "FieldValueInvalid", f"Invalid value: {value}: must be greater than or equal to 0")]
    return []


def _default_pod_spec(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(name, value)


def _default_pod(obj: Object) -> None:
    _default_pod_spec(obj)
    obj.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})


def _check_pod(obj: Object) -> Causes:
    if not (obj.get("spec") or {}).get("containers"):
        return [("spec.containers", "FieldValueRequired", "Required value")]
    return []


def _default_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    _default_pod_spec(spec.setdefault("template", {}))
    obj.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def _check_set(obj: Object) -> Causes:
    spec = obj.get("spec") or {}
    causes: Causes = _integer(spec.get("replicas"), "spec.replicas")
    causes += _integer((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    selector = (spec.get("selector") or {}).get("matchLabels")
    template = spec.get("template") or {}
    if not selector:
        causes.append(("spec.selector", "FieldValueRequired", "Required value"))
    if not selector or not selector.items() <= ((template.get("metadata") or {}).get("labels") or {}).items():
        causes.append(
            (
                "spec.template.metadata.labels",
                "FieldValueInvalid",
                "Invalid value: null: `selector` does not match template `labels`",
            )
        )
    if not (template.get("spec") or {}).get("containers"):
        causes.append(("spec.template.spec.containers", "FieldValueRequired", "Required value"))
    return causes


def _check_cluster(obj: Object) -> Causes:
    causes: Causes = []
    for place, group in enumerate((obj.get("spec") or {}).get("workerGroupSpecs") or []):
        where = f"spec.workerGroupSpecs[{place}]"
        causes += [cause for cause in _integer(group.get("replicas"), f"{where}.replicas") if cause[1] == "FieldValueTypeInvalid"]
        for number, index in enumerate(group.get("podsToBeCreated") or []):
            causes += _integer(index, f"{where}.podsToBeCreated[{number}]")
    return causes


def _default_node(obj: Object) -> None:
    obj.setdefault("spec", {})
    obj.setdefault("status", {})


def _default_namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")
    obj.setdefault("spec", {"finalizers": ["kubernetes"]})
    obj.setdefault("status", {"phase": "Active"})


_SET_FIELDS = (
    "replicas ordinals template updateStrategy revisionHistoryLimit persistentVolumeClaimRetentionPolicy minReadySeconds"
)
_SET_REFUSAL = (
    "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_POD_FIELDS = "containers initContainers activeDeadlineSeconds tolerations terminationGracePeriodSeconds"
_POD_REFUSAL = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_STATUS = frozenset({"status"})

NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False, default=_default_namespace, generation=False)
PODS = Kind(
    "", "v1", "pods", "Pod", subresources=frozenset({"status", "binding"}), default=_default_pod, validate=_check_pod,
    mutable=frozenset(_POD_FIELDS.split()), refusal=_POD_REFUSAL,
)  # fmt: skip
STATEFUL_SETS = Kind(
    "apps", "v1", "statefulsets", "StatefulSet", subresources=frozenset({"status", "scale"}), default=_default_set,
    validate=_check_set, mutable=frozenset(_SET_FIELDS.split()), refusal=_SET_REFUSAL,
    known=frozenset(_SET_FIELDS.split()) | {"serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"},
)  # fmt: skip
BUILT_IN = (
    NAMESPACES,
    PODS,
    Kind("", "v1", "nodes", "Node", False, subresources=_STATUS, default=_default_node, keeps_status=True, generation=False),
    Kind("", "v1", "events", "Event", generation=False),
    STATEFUL_SETS,
)
CUSTOM = (
    Kind(
        "apps.kruise.io", "v1beta1", "statefulsets", "StatefulSet", custom=True, subresources=frozenset({"status", "scale"}),
        default=_default_set, validate=_check_set,
    ),
    Kind(
        "kai.alibabacloud.com", "v1", "slurmclusters", "SlurmCluster", custom=True, subresources=_STATUS, validate=_check_cluster,
    ),
)  # fmt: skip
