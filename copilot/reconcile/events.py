"""What Kubernetes tells only by Events: pods that could not be made, volumes that are missing, what a cluster autoscaler will do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from copilot.kube import Kube, Reflector, Selection
from copilot.model import KubeEvent

Raw = dict[str, Any]
Index = Mapping[str, Mapping[str, KubeEvent]]
# Written by this daemon itself.
_OURS = "slurmctld-copilot"
# The rest is in the pod's status too, or is nothing that holds a start up.
RELEVANT = frozenset(
    {
        "FailedCreate",  # by the controller of a set: quota, admission
        "FailedMount",
        "FailedAttachVolume",
        "FailedCreatePodSandBox",
        "TriggeredScaleUp",
        "NotTriggerScaleUp",
        "Nominated",  # Karpenter's word for a machine to come
    }
)
# A thousand pods that start make thousands of these: the server leaves them out (fields of Events can be compared with != only).
_CHATTER = (
    "Pulled",
    "Pulling",
    "Created",
    "Started",
    "Scheduled",
    "Killing",
    "SuccessfulCreate",
    "SuccessfulDelete",
    "BackOff",
    "Unhealthy",
    "FailedScheduling",
)
SELECTION = Selection(fields=",".join(f"reason!={reason}" for reason in _CHATTER))


class Events:
    """The latest relevant Event of each object and reason. Bounded by what the server keeps (an hour by default)."""

    def __init__(self, kube: Kube, clock: Callable[[], float], on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._index: dict[str, dict[str, KubeEvent]] | None = None
        self.reflector: Reflector[KubeEvent] = Reflector(
            kube,
            f"/api/v1/namespaces/{kube.namespace}/events",
            lambda raw, _before: event_of(raw, clock(), time.time()),
            selection=SELECTION,
            on_change=self._changed,
        )

    @property
    def index(self) -> Index:
        """By "Kind/name" of the object, then by reason. Made when it is asked for: Events come in storms."""
        if self._index is None:
            self._index = {}
            for event in self.reflector.items.values():
                of_object = self._index.setdefault(event.about, {})
                if event.reason not in of_object or of_object[event.reason].seen_at < event.seen_at:
                    of_object[event.reason] = event
        return self._index

    def _changed(self) -> None:
        self._index = None
        self._on_change()


def event_of(raw: Raw, now: float, wall: float) -> KubeEvent | None:
    """The Event, None when it says nothing that matters here. Its last time is put on our clock, so that an old one never looks fresh."""
    reason, involved = raw.get("reason") or "", raw.get("involvedObject") or {}
    source = raw.get("reportingComponent") or (raw.get("source") or {}).get("component")
    if reason not in RELEVANT or source == _OURS or not involved.get("name"):
        return None
    series = raw.get("series") or {}
    told = (
        series.get("lastObservedTime")
        or raw.get("lastTimestamp")
        or raw.get("eventTime")
        or raw["metadata"].get("creationTimestamp")
    )
    age = max(0.0, wall - datetime.fromisoformat(told).timestamp()) if told else 0.0
    return KubeEvent(f"{involved.get('kind', '')}/{involved['name']}", reason, raw.get("message") or "", now - age)
