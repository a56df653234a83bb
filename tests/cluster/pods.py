"""Pods of the tests: made by kubectl, awaited with a deadline, asked for their words."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tests.lab.endpoint import Object
from tests.lab.node import State, kubectl
from tests.lab.node.layout import need

T = TypeVar("T")


def pod(
    name: str,
    image: str,
    args: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod's manifest. `secrets` and `config` (ConfigMaps) are mounted: where to, by name. `command` and `resources` go to the container."""
    volumes: list[Object] = [{"name": one, "secret": {"secretName": one}} for one in secrets or {}]
    volumes += [{"name": one, "configMap": {"name": one}} for one in config or {}]
    mounts = [{"name": one, "mountPath": path} for one, path in {**(secrets or {}), **(config or {})}.items()]
    container: Object = {"name": "main", "image": image, "imagePullPolicy": "Never", "args": list(args), "volumeMounts": mounts}
    container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    for key in ("command", "resources", "securityContext"):
        if key in spec:
            container[key] = spec.pop(key)
    body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container], "volumes": volumes, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def hardened(one: Object, *writable: str, user: int = 0) -> Object:
    """The pod without any right that its program does not need; `writable` folders become emptyDirs. `user` 0 leaves the image's."""
    spec = one["spec"]
    spec["securityContext"] = {"runAsNonRoot": True, **({"runAsUser": user, "runAsGroup": user, "fsGroup": user} if user else {})}
    container = spec["containers"][0]
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for number, path in enumerate(writable):
        spec["volumes"].append({"name": f"writable-{number}", "emptyDir": {}})
        container["volumeMounts"].append({"name": f"writable-{number}", "mountPath": path})
    return one


def service(name: str, **spec: Any) -> Object:
    """A Service of the pods with the label `app: <name>`."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, **spec}}


def apply(node: State, *objects: Object) -> None:
    """Creates or changes them, with the server's strict validation."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl(node, "apply", "--validate=strict", "-f", "-", text=text)


def delete(node: State, *objects: Object) -> None:
    """Returns when they are gone."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl(node, "delete", "--ignore-not-found", "--wait=true", "-f", "-", text=text)


def run(node: State, one: Object, within: float = 60.0) -> tuple[int, str]:
    """Runs a pod to its end and removes it: the exit code and what it wrote."""
    apply(node, one)
    try:
        return outcome(node, one, within)
    finally:
        delete(node, one)


def outcome(node: State, one: Object, within: float = 60.0) -> tuple[int, str]:
    """Waits for the end of a pod that was applied: the exit code and what it wrote."""
    name = one["metadata"]["name"]
    ended = until(lambda: _ended(node, name), f"pod {name} to end", within)
    return ended["exitCode"], kubectl(node, "logs", name)


def execute(node: State, name: str, script: str) -> str:
    """What a shell script prints in a running pod; AssertionError with all it said when it fails."""
    try:
        return kubectl(node, "exec", name, "--", "sh", "-c", script).strip()
    except subprocess.CalledProcessError as error:
        said = subprocess.run(_logs(node, name), capture_output=True, text=True).stdout
        raise AssertionError(f"{script!r} in {name}: {error.stdout}{error.stderr}\nthe pod's log ends: {said}") from None


def _logs(node: State, name: str) -> list[str]:
    return [str(need("kubectl")), f"--kubeconfig={node.kubeconfig}", "logs", name, "--tail=5"]


def until(question: Callable[[], T], what: str, within: float = 60.0) -> T:
    """Asks until the answer is truthy; AssertionError with the last answer after `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := question()):
        assert time.monotonic() < deadline, f"waited {within} s for {what}; last answer: {answer}"
        time.sleep(0.1)
    return answer


def _ended(node: State, name: str) -> Object:
    status = json.loads(kubectl(node, "get", "pod", name, "-o", "json"))["status"]
    states = status.get("containerStatuses") or [{"state": {}}]
    ended: Object = states[0]["state"].get("terminated") or {}
    return ended
