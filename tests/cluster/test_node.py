"""What the cluster's tests and its users rely on: pods, names, Services, and kubectl's ways into a pod, on the real node."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import BUSYBOX
from tests.cluster.pods import until
from tests.lab.component import free_port
from tests.lab.endpoint import Object
from tests.lab.node import State, kubectl
from tests.lab.node.layout import need

PAGE = "it is I"


@pytest.fixture(scope="module")
def web(node: State) -> Iterator[str]:
    """A StatefulSet of two pods with a headless and a common Service, each serving its own name."""
    serve = f"/busybox mkdir /www; /busybox echo {PAGE} $HOSTNAME >/www/index.html; /busybox echo started; exec /busybox httpd -f -p 8080 -h /www"
    container: Object = {"name": "web", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/busybox", "sh", "-c", serve]}
    container["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    labels = {"app": "web"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    sets = {"replicas": 2, "serviceName": "web", "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}}
    objects = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "None", "selector": labels}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "page"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {**sets, "template": template}},
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl(node, "apply", "-f", "-", text=listed)
    kubectl(node, "rollout", "status", "statefulset/web", "--timeout=60s")
    yield "web"
    kubectl(node, "delete", "-f", "-", "--wait=true", text=listed)


def test_exec_and_logs(node: State, web: str) -> None:
    assert kubectl(node, "exec", f"{web}-1", "--", "/busybox", "hostname").strip() == f"{web}-1"
    assert kubectl(node, "logs", f"{web}-0").strip() == "started"


def test_a_pod_finds_another_by_its_name(node: State, web: str) -> None:
    """The name is known some moments after the pod is Ready, and one that was asked for before that is unknown until CoreDNS forgets it."""

    def page() -> str:
        try:
            return kubectl(node, "exec", f"{web}-0", "--", "/busybox", "wget", "-qO-", f"http://{web}-1.{web}:8080/").strip()
        except subprocess.CalledProcessError as error:
            return str(error.stderr)

    until(lambda: page() == f"{PAGE} {web}-1", f"{web}-1 to be found by its name: {page()}", 90)


def test_a_service_is_reached_from_pods_and_from_outside(node: State, web: str) -> None:
    inside = kubectl(node, "exec", f"{web}-0", "--", "/busybox", "wget", "-qO-", "http://page.default.svc.cluster.local/")
    assert inside.startswith(PAGE)
    address = kubectl(node, "get", "service", "page", "-o", "jsonpath={.spec.clusterIP}")
    with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
        assert answer.read().decode().startswith(PAGE)


def test_a_pod_reaches_the_api_server_with_its_own_account(node: State, web: str) -> None:
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f"/busybox test -s {folder}/token && /busybox nc -w 5 kubernetes.default 443 </dev/null && /busybox echo reached"
    assert kubectl(node, "exec", f"{web}-0", "--", "/busybox", "sh", "-c", script).strip() == "reached"


def test_other_names_are_refused_at_once(node: State, web: str) -> None:
    script = "/busybox nslookup example.org. 10.96.0.10; /busybox echo ended $?"
    answer = kubectl(node, "exec", f"{web}-0", "--", "/busybox", "sh", "-c", script)
    assert "ended 1" in answer and "timed out" not in answer


def test_port_forward(node: State, web: str) -> None:
    port = free_port()
    argv = [str(need("kubectl")), f"--kubeconfig={node.kubeconfig}", "port-forward", "service/page", f"{port}:80"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as forward:
        try:
            _wait_for_port(port)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                assert answer.read().decode().startswith(f"{PAGE} {web}-")
        finally:
            forward.terminate()


def test_the_machine_s_tunables_are_untouched(node: State) -> None:
    assert node.first.exists()
    shown = Path(f"/proc/{node.first.read_text()}/root/proc/sys/kernel/panic")
    assert shown.read_text().strip() == "10", "kubelet would have set this"
    mounts = Path(f"/proc/{node.first.read_text()}/mounts").read_text()
    assert " /proc/sys/kernel/panic " in mounts, "it is a file, not the machine's value"


def _wait_for_port(port: int, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port} after {within} s")
