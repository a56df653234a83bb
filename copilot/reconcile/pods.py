"""From a pod as the API returns it to what the decision needs of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from copilot.model import Pod

Raw = dict[str, Any]
# Reasons of a waiting or terminated container that are part of an ordinary start.
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})


def pod_of(raw: Raw, before: Pod | None, now: float) -> Pod:
    """The pod. `before` is what was known of the same name; a new uid is another pod, first seen `now`."""
    meta, status = raw["metadata"], raw.get("status") or {}
    containers = status.get("containerStatuses") or []
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    trouble, message = _trouble(status, containers, conditions)
    uid = meta["uid"]
    return Pod(
        name=meta["name"],
        uid=uid,
        first_seen=before.first_seen if before is not None and before.uid == uid else now,
        created_epoch=_epoch(meta.get("creationTimestamp")),
        phase=status.get("phase", "Pending"),
        scheduled=bool((raw.get("spec") or {}).get("nodeName")),
        ready=_true(conditions, "Ready"),
        running=status.get("phase") == "Running" and _all_run(containers),
        terminating="deletionTimestamp" in meta,
        restarts=sum(container.get("restartCount", 0) for container in containers),
        host=(raw.get("spec") or {}).get("nodeName", ""),
        ip=status.get("podIP", ""),
        owner=next((ref["name"] for ref in meta.get("ownerReferences") or () if ref.get("controller")), ""),
        trouble=trouble,
        message=message,
    )


def _all_run(containers: Iterable[Raw]) -> bool:
    """No container is known to wait or to have ended. A status without the list (the tests' simplest kubelet) counts as running."""
    return all("running" in (container.get("state") or {}) for container in containers)


def _trouble(status: Raw, containers: Iterable[Raw], conditions: dict[str, Raw]) -> tuple[str, str]:
    """The first thing that keeps the pod from running, in Kubernetes' own words."""
    if status.get("reason"):
        return status["reason"], status.get("message", "")
    for container in containers:
        for state in (container.get("state") or {}).values():
            if state.get("reason", "") not in _ORDINARY:
                return state["reason"], state.get("message", "")
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason", ""), scheduled.get("message", "")
    return "", ""


def _true(conditions: dict[str, Raw], name: str) -> bool:
    return bool(conditions.get(name, {}).get("status") == "True")


def _epoch(text: str | None) -> float:
    """RFC 3339 as the API server writes it, in wall-clock seconds; 0.0 when missing."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
