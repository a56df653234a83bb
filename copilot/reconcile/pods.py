"""From a pod as the API returns it to what the decision needs of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from copilot.model import Pod

Raw = dict[str, Any]
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff"})
# Reasons of a waiting or terminated container that are part of an ordinary start.
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})


def pod_of(raw: Raw, before: Pod | None, now: float, *, listed: bool = False) -> Pod:
    """The pod. `before` is what was known of the same name; a new uid is another pod, first seen `now`.

    One that is `listed` may have been there for long while nobody looked: it counts as seen when it was created.
    """
    meta, status = raw["metadata"], raw.get("status") or {}
    containers = status.get("containerStatuses") or []
    # one that has to end before the others may start holds the start up as well
    initial = [each for each in status.get("initContainerStatuses") or [] if not _over(each)]
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    uid = meta["uid"]
    same = before is not None and before.uid == uid
    trouble, message = _trouble(status, (*initial, *containers), conditions)
    first_seen, created = now, _epoch(meta.get("creationTimestamp"))
    if same and before is not None:
        trouble, message = _clearest(before, trouble, message)
        first_seen = before.first_seen
    elif listed and created:
        # The timestamp is cut to whole seconds: it may have been a second later.
        first_seen = min(now, now + created + 1 - time.time())
    return Pod(
        name=meta["name"],
        uid=uid,
        first_seen=first_seen,
        created_epoch=created,
        started_epoch=max(
            (_epoch((each.get("state") or {}).get("running", {}).get("startedAt")) for each in containers), default=0.0
        ),
        phase=status.get("phase", "Pending"),
        scheduled=bool((raw.get("spec") or {}).get("nodeName")),
        ready=_true(conditions, "Ready"),
        running=status.get("phase") == "Running" and _all_run(containers),
        terminating="deletionTimestamp" in meta,
        ends_at=_ends_at(meta.get("deletionTimestamp"), now, before.ends_at if before is not None and same else None),
        restarts=sum(container.get("restartCount", 0) for container in containers),
        host=(raw.get("spec") or {}).get("nodeName", ""),
        ip=status.get("podIP", ""),
        owner=next((ref["name"] for ref in meta.get("ownerReferences") or () if ref.get("controller")), ""),
        trouble=trouble,
        message=message,
        last_end=next((end for each in containers if (end := _with_last_end("", each))), ""),
    )


def _all_run(containers: Iterable[Raw]) -> bool:
    """No container is known to wait or to have ended. A status without the list (the tests' simplest kubelet) counts as running."""
    return all("running" in (container.get("state") or {}) for container in containers)


def _trouble(status: Raw, containers: Iterable[Raw], conditions: dict[str, Raw]) -> tuple[str, str]:
    """The first thing that keeps the pod from running, in Kubernetes' own words."""
    if status.get("reason"):
        return status["reason"], status.get("message", "")
    if (disrupted := conditions.get("DisruptionTarget", {})).get("status") == "True" and status.get("phase") == "Failed":
        return "DisruptionTarget", disrupted.get("message", "")
    for container in containers:
        for state in (container.get("state") or {}).values():
            if state.get("reason", "") not in _ORDINARY:
                return state["reason"], _with_last_end(state.get("message", ""), container)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return scheduled.get("reason", ""), scheduled.get("message", "")
    return "", ""


def _over(container: Raw) -> bool:
    """An init container that has done its work."""
    return bool((container.get("state") or {}).get("terminated", {}).get("exitCode", 1) == 0)


def _with_last_end(message: str, container: Raw) -> str:
    """How the container ended the last time is what tells why it waits now: 137 with OOMKilled, 127 for a command that is not there."""
    states = (container.get("state") or {}, container.get("lastState") or {})
    ended: Raw = next((state["terminated"] for state in states if "terminated" in state), {})
    if "exitCode" not in ended:
        return message
    how = f"exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
    words = ended.get("message", "") or message
    return f"{how}: {words}" if words else how


def _clearest(before: Pod, trouble: str, message: str) -> tuple[str, str]:
    """kubelet says ErrImagePull with the registry's answer and ImagePullBackOff with none, in turns: the answer is kept."""
    if trouble == "ImagePullBackOff" and before.trouble in _PULL:
        return before.trouble, before.message
    return trouble, message


def _ends_at(deleted: str | None, now: float, known: float | None) -> float | None:
    """When the grace of a pod that is being deleted is over, on our clock: `deletionTimestamp` has the grace in it already."""
    if deleted is None:
        return None
    return known if known is not None else now + _epoch(deleted) - time.time()


def _true(conditions: dict[str, Raw], name: str) -> bool:
    return bool(conditions.get(name, {}).get("status") == "True")


def _epoch(text: str | None) -> float:
    """RFC 3339 as the API server writes it, in wall-clock seconds; 0.0 when missing."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
