"""What a kubelet writes into the status of pods and of its Node."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.lab.endpoint import Object

CONTAINER = "slurmd"
NODE: Object = {
    "status": {
        "capacity": {"cpu": "1000", "memory": "1Ti", "pods": "20000"},
        "allocatable": {"cpu": "1000", "memory": "1Ti", "pods": "20000"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        ],
    }
}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, status: bool, reason: str = "", message: str = "") -> Object:
    condition: Object = {"type": kind, "status": str(status), "lastTransitionTime": _now()}
    return condition | ({"reason": reason, "message": message} if reason else {})


def _container(state: Object, ready: bool, restarts: int, last: Object | None = None) -> list[Object]:
    container: Object = {
        "name": CONTAINER,
        "image": "slurm",
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
    }
    return [{**container, "state": state, "lastState": last or {}}]


def _not_ready(containers: list[Object]) -> Object:
    conditions = [
        _condition("Initialized", True),
        _condition("Ready", False, "ContainersNotReady", "containers not ready: [slurmd]"),
    ]
    return {"conditions": conditions, "containerStatuses": containers}


def running(ip: str, restarts: int, *, oom: bool = False) -> Object:
    last = _terminated(oom) if restarts else None
    return {
        "phase": "Running",
        "podIP": ip,
        # Merged by address otherwise, and a pod may have but one of each family.
        "podIPs": [{"$patch": "replace"}, {"ip": ip}],
        "startTime": _now(),
        "conditions": [_condition(kind, True) for kind in ("Initialized", "ContainersReady", "Ready")],
        "containerStatuses": _container({"running": {"startedAt": _now()}}, True, restarts, last),
    }


def _terminated(oom: bool = False) -> Object:
    code, reason = (137, "OOMKilled") if oom else (1, "Error")
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": _now(), "finishedAt": _now()}}


def crashing(restarts: int, *, oom: bool = False) -> Object:
    """The container exited with 1, or was killed for its memory, and waits for its next start."""
    message = f"back-off 10s restarting failed container={CONTAINER}"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    return {"phase": "Running", **_not_ready(_container(waiting, False, restarts, _terminated(oom)))}


def config_error() -> Object:
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "munge-key" not found'}}
    return {"phase": "Pending", **_not_ready(_container(waiting, False, 0))}


def host_away() -> Object:
    """What the node lifecycle controller makes of a pod whose host says nothing any more: all stays as it was, but not Ready."""
    return {"conditions": [_condition("Ready", False, "NodeNotReady")]}


def image_pull_error() -> Object:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "slurm"'}}
    return {"phase": "Pending", **_not_ready(_container(waiting, False, 0))}


def unschedulable() -> Object:
    message = "0/1 nodes are available: 1 Insufficient cpu."
    return {"conditions": [_condition("PodScheduled", False, "Unschedulable", message)]}


def evicted() -> Object:
    return {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
