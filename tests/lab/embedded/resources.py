"""What each verb does to the store: the rules of resourceVersion, generation, subresources and deletion."""

from __future__ import annotations

import copy
import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.lab.embedded import patches, status
from tests.lab.embedded.kinds import NAMESPACES, PODS, Kind, name_causes
from tests.lab.embedded.store import Key, Store
from tests.lab.endpoint import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Object

_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH)
_CUSTOM_PATCH_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
# What a writer may say of the metadata; the rest belongs to the server.
_WRITABLE_METADATA = ("name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers")


def timestamp(offset: float = 0.0) -> str:
    """Now plus `offset` seconds, with the API's resolution of one second."""
    return (datetime.now(UTC) + timedelta(seconds=offset)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Resources:
    """`pruned` holds (kind's path, spec field) pairs that are dropped silently at each write, as by a CRD that lacks the field."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pruned: set[tuple[str, str]] = set()

    def key(self, kind: Kind, namespace: str, name: str) -> Key:
        return (kind.path, namespace if kind.namespaced else "", name)

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        found = self.store.get(self.key(kind, namespace, name))
        if found is None:
            raise status.not_found(kind.group, kind.plural, name)
        return found

    def create(self, kind: Kind, namespace: str, body: Any) -> Object:
        obj = self._read(kind, body)
        given = obj.get("metadata") or {}
        metadata = {name: given[name] for name in _WRITABLE_METADATA if given.get(name)}
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise status.bad_request("the namespace of the provided object does not match the namespace sent on the request")
            self.get(NAMESPACES, "", namespace)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        obj["metadata"] = metadata
        if "status" in kind.subresources and not kind.keeps_status:
            obj.pop("status", None)
        self._drop_unknown(kind, obj)
        self._check(kind, obj, name_causes(obj))
        key = self.key(kind, namespace, metadata["name"])
        if self.store.get(key) is not None:
            raise status.already_exists(kind.group, kind.plural, metadata["name"])
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
        if kind.generation:
            metadata["generation"] = 1
        return self.store.put(key, obj)

    def update(self, kind: Kind, namespace: str, name: str, sub: str, body: Any) -> Object:
        """PUT of the object or of a subresource."""
        if sub == "scale":
            return self._scale(kind, namespace, name, body)
        new = self._read(kind, body)
        old = self.get(kind, namespace, name)
        metadata = new.setdefault("metadata", {})
        if kind.custom and not metadata.get("resourceVersion"):
            cause = ("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
            raise status.invalid(kind.group, kind.plural, name, [cause])
        if metadata.get("uid") not in (None, "", old["metadata"]["uid"]):
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old['metadata']['uid']}"
            raise status.conflict(kind.group, kind.plural, name, why)
        return self._write(kind, old, new, sub)

    def patch(self, kind: Kind, namespace: str, name: str, sub: str, content_type: str, patch: Any) -> Object:
        if content_type not in (*_PATCH_TYPES, *(() if kind.custom else (STRATEGIC_PATCH,))):
            raise status.unsupported_media_type(_CUSTOM_PATCH_TYPES if kind.custom else "")
        old = self.get(kind, namespace, name)
        if sub == "scale":
            return self._scale(kind, namespace, name, patches.apply(content_type, scale_of(old), patch))
        new = patches.apply(content_type, old, patch)
        # The status of a custom resource is written without a look at the metadata that came with it.
        if not (kind.custom and sub == "status") and new["metadata"].get("uid") != old["metadata"]["uid"]:
            cause = (
                "metadata.uid",
                "FieldValueInvalid",
                f'Invalid value: "{new["metadata"].get("uid", "")}": field is immutable',
            )
            raise status.invalid(kind.group, kind.kind, name, [cause])
        return self._write(kind, old, new, sub)

    def delete(self, kind: Kind, namespace: str, name: str, options: Object) -> Object:
        old = self.get(kind, namespace, name)
        _check_preconditions(kind, old, options.get("preconditions") or {})
        key = self.key(kind, namespace, name)
        if kind is not PODS:
            self.store.remove(key)
            return status.success(kind.group, kind.plural, name, old["metadata"]["uid"])
        return self._delete_pod(key, old, options.get("gracePeriodSeconds"))

    def _delete_pod(self, key: Key, old: Object, asked: int | None) -> Object:
        """With a node the pod stays, Terminating, until somebody deletes it with a grace period of 0; without one it goes at once."""
        metadata, spec = old["metadata"], old["spec"]
        grace = spec.get("terminationGracePeriodSeconds", 30) if asked is None else max(asked, 0)
        if not spec.get("nodeName") or old["status"].get("phase") in ("Succeeded", "Failed"):
            grace = 0
        marked = "deletionTimestamp" in metadata
        if marked and grace > 0 and (asked is None or grace >= metadata["deletionGracePeriodSeconds"]):
            return old
        dying = {
            **metadata,
            "deletionTimestamp": timestamp(grace),
            "deletionGracePeriodSeconds": grace,
            "generation": metadata["generation"] + (0 if marked else 1),
        }
        stored = self.store.put(key, {**old, "metadata": dying})
        return self.store.remove(key) if grace == 0 else stored

    def bind(self, namespace: str, name: str, body: Any) -> Object:
        """POST pods/NAME/binding: the scheduler's word. 409 when the pod has a node already."""
        pod = self.get(PODS, namespace, name)
        if node := pod["spec"].get("nodeName"):
            raise status.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{node}"')
        target = (body or {}).get("target", {}).get("name", "")
        conditions = [*(pod["status"].get("conditions") or [])]
        conditions = [one for one in conditions if one.get("type") != "PodScheduled"]
        conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()})
        bound = {**pod, "spec": {**pod["spec"], "nodeName": target}, "status": {**pod["status"], "conditions": conditions}}
        self.store.put(self.key(PODS, namespace, name), bound)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _scale(self, kind: Kind, namespace: str, name: str, scale: Any) -> Object:
        old = self.get(kind, namespace, name)
        version = scale["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
        new = copy.deepcopy(old)
        new["metadata"]["resourceVersion"] = version
        new["spec"]["replicas"] = scale["spec"].get("replicas", 0)
        return scale_of(self._write(kind, old, new, ""))

    def _read(self, kind: Kind, body: Any) -> Object:
        if not isinstance(body, dict) or not body.get("kind"):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get version/kind"
            )
        if body["kind"] != kind.kind and kind.custom:
            cause = ("kind", "FieldValueInvalid", f'Invalid value: "{body["kind"]}": must be {kind.kind}')
            raise status.invalid(kind.group, body["kind"], (body.get("metadata") or {}).get("name", ""), [cause])
        if body.get("apiVersion") != kind.api_version:
            raise status.bad_request(
                f"the API version in the data ({body.get('apiVersion')}) does not match the expected API version ({kind.api_version})"
            )
        if body["kind"] != kind.kind:
            raise status.bad_request(f'{body["kind"]} in version "{kind.version}" cannot be handled as a {kind.kind}')
        return copy.deepcopy(body)

    def _write(self, kind: Kind, old: Object, new: Object, sub: str) -> Object:
        """The common end of PUT and PATCH. Nothing is written, and no version spent, when nothing changes."""
        name, given = old["metadata"]["name"], new.get("metadata") or {}
        if given.get("name", name) != name:
            raise status.bad_request(f"the name of the object ({given['name']}) does not match the name on the URL ({name})")
        if given.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise status.conflict(kind.group, kind.plural, name)
        if sub == "status":
            new = {**old, "status": new.get("status") or {}}
        else:
            kept = {key: value for key, value in old["metadata"].items() if key not in _WRITABLE_METADATA}
            given = {key: given[key] for key in _WRITABLE_METADATA if given.get(key)}
            new = {**new, "metadata": {**kept, **given, "name": name}}
            if "status" in kind.subresources:
                new.pop("status", None)
                new |= {"status": old["status"]} if "status" in old else {}
            self._drop_unknown(kind, new)
            self._check(kind, new, _forbidden(kind, old, new))
        if _content(new) != _content(old) and kind.generation:
            new["metadata"] = {**new["metadata"], "generation": old["metadata"]["generation"] + 1}
        if new == old:
            return old
        return self.store.put(self.key(kind, old["metadata"].get("namespace", ""), name), new)

    def _drop_unknown(self, kind: Kind, obj: Object) -> None:
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj["spec"] = {
                field: value
                for field, value in spec.items()
                if (kind.path, field) not in self.pruned and (kind.known is None or field in kind.known)
            }

    def _check(self, kind: Kind, obj: Object, causes: list[tuple[str, str, str]]) -> None:
        """Defaults in place; StatusError 422 when anything is wrong."""
        kind.default(obj)
        if causes := [*causes, *kind.validate(obj)]:
            raise status.invalid(kind.group, kind.kind, obj["metadata"].get("name", ""), causes)


def scale_of(obj: Object) -> Object:
    metadata = {name: obj["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    labels = obj["spec"].get("selector", {}).get("matchLabels", {})
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    seen = {"replicas": (obj.get("status") or {}).get("replicas", 0), "selector": selector}
    spec = {"replicas": obj["spec"].get("replicas", 0)}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": seen}


def _content(obj: Object) -> Object:
    """What generation counts the changes of."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _forbidden(kind: Kind, old: Object, new: Object) -> list[tuple[str, str, str]]:
    if kind.mutable is None:
        return []
    before, after = old.get("spec") or {}, new.get("spec") or {}
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return [("spec", "FieldValueForbidden", kind.refusal)] if changed - kind.mutable else []


def _check_preconditions(kind: Kind, obj: Object, wanted: Object) -> None:
    for field, word, end in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        have, want = obj["metadata"][field], wanted.get(field)
        if want is not None and want != have:
            why = f"the {word} in the precondition ({want}) does not match the {word} in record ({have}). The object might have been {end}"
            raise status.conflict(kind.group, kind.kind, obj["metadata"]["name"], why)
