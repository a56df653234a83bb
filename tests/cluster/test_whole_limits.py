"""What users and workers cannot reach, and what the copilot's own token cannot do."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cluster.whole import Whole
from tests.lab.endpoint import Object
from tests.lab.node.layout import need
from tests.lab.whole.overlay import NAMESPACE, execute

_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
# Without a token one is system:anonymous, who may read no pods.
_ASKS = f"curl -sk -m 20 -o /dev/null -w '%{{http_code}}\\n' https://kubernetes.default.svc/api/v1/namespaces/{NAMESPACE}/pods"
_SOCKETS = "find /run /tmp -name 'copilot*.sock' 2>/dev/null || true"


def test_a_user_s_session_has_neither_the_copilot_s_socket_nor_a_token(whole: Whole) -> None:
    assert whole.head(_SOCKETS), "beside slurmctld there is one"
    assert whole.shell(_SOCKETS) == ""
    assert whole.shell(f"test -e {_TOKEN} || echo absent") == "absent"


@pytest.mark.parametrize("path", ["/run/secrets/munge/munge.key", "/run/secrets/ssh-host-keys/ssh_host_ed25519_key"])
def test_a_user_s_session_cannot_read_the_cluster_s_keys(whole: Whole, path: str) -> None:
    refused = whole.ssh(f"cat {path}")
    assert refused.returncode and "Permission denied" in refused.stderr, refused


def test_a_job_has_no_key_no_token_and_no_socket(whole: Whole) -> None:
    script = f"cat /run/secrets/munge/munge.key; test -e {_TOKEN} || echo no token; {_ASKS}; {_SOCKETS}"
    job = whole.submit("-N1 -w cpu-4", script)
    whole.until_state(job, "COMPLETED", 90)
    said = whole.shell(f"cat slurm-{job}.out").splitlines()
    assert said[0].endswith("Permission denied") and said[1:] == ["no token", "403"], said


@pytest.fixture(scope="module")
def token(whole: Whole) -> str:
    """The one that the copilot uses, out of its container."""
    return execute(whole.node, "head-0", "cat", _TOKEN, container="copilot")


def _as_copilot(whole: Whole, token: str, *argv: str) -> subprocess.CompletedProcess[str]:
    server = json.loads(whole.node.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    ca = whole.node.plane / "ca.crt"
    options = [
        f"--server={server}",
        f"--certificate-authority={ca}",
        f"--token={token}",
        "--kubeconfig=/dev/null",
        "-n",
        NAMESPACE,
    ]
    return subprocess.run([str(need("kubectl")), *options, *argv], capture_output=True, text=True)


def _patch(kind: str, name: str, body: Object) -> tuple[str, ...]:
    return ("patch", kind, name, "--type=merge", "-p", json.dumps(body), "--dry-run=server")


_LABEL = {"metadata": {"labels": {"mine": "now"}}}
_TEMPLATE = {"spec": {"template": {"metadata": {"labels": {"mine": "now"}}}}}
_IMAGE = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "slurm:mine"}]


@pytest.mark.parametrize("kind", ["statefulset.apps/cpu", "statefulsets.apps.kruise.io/sparse"])
def test_its_token_scales_and_changes_neither_labels_nor_templates_nor_images(whole: Whole, token: str, kind: str) -> None:
    resource, _, name = kind.partition("/")
    assert "patched" in _as_copilot(whole, token, *_patch(resource, name, {"spec": {"replicas": 2}})).stdout
    image = ("patch", resource, name, "--type=json", "-p", json.dumps(_IMAGE), "--dry-run=server")
    for argv in (_patch(resource, name, _LABEL), _patch(resource, name, _TEMPLATE), image):
        refused = _as_copilot(whole, token, *argv)
        assert refused.returncode and "the copilot may change no" in refused.stderr, refused


@pytest.mark.parametrize(
    "argv",
    [
        ("delete", "pod", "head-0", "--dry-run=server"),
        ("create", "configmap", "new", "--dry-run=server"),
        ("get", "secrets"),
        ("exec", "head-0", "-c", "slurmctld", "--", "true"),
        ("patch", "pod", "head-0", "--type=merge", "-p", json.dumps(_LABEL), "--dry-run=server"),
    ],
    ids=lambda argv: argv[0] + argv[1],
)
def test_its_token_does_nothing_else(whole: Whole, token: str, argv: tuple[str, ...]) -> None:
    refused = _as_copilot(whole, token, *argv)
    assert refused.returncode and "orbidden" in refused.stderr, refused
