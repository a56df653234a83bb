"""What happens on a cluster that has the manifests already."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.lab.endpoint import Admin, resource
from tests.manifests.conftest import MANIFESTS, NAMESPACE, Kubectl


async def test_applying_again_restarts_nothing_and_leaves_the_scale(kubectl: Kubectl, admin: Admin) -> None:
    folder = MANIFESTS / "overlays/demo"
    kubectl("apply", "--validate=strict", "-k", folder)
    sets = {name: resource("apps/v1", "statefulsets", NAMESPACE, name) for name in ("head", "cpu")}
    sparse = resource("apps.kruise.io/v1beta1", "statefulsets", NAMESPACE, "sparse")
    await admin.patch(sets["cpu"], {"spec": {"replicas": 3, "ordinals": {"start": 4}}})
    await admin.patch(sparse, {"spec": {"replicas": 2, "reserveOrdinals": [0, 1]}})
    before = {path: (await admin.get(path))["spec"] for path in (*sets.values(), sparse)}
    kubectl("apply", "--validate=strict", "-k", folder)
    assert {path: (await admin.get(path))["spec"] for path in before} == before
    assert before[sets["cpu"]]["replicas"] == 3


def test_the_documented_command_makes_every_secret_once(kubectl: Kubectl, tmp_path: Path) -> None:
    run = [str(MANIFESTS / "secrets"), NAMESPACE]
    first = subprocess.run(run, env=kubectl.environment, capture_output=True, text=True, check=True)
    made = kubectl("get", "secrets", "-n", NAMESPACE, "-o", "yaml")
    again = subprocess.run(run, env=kubectl.environment, capture_output=True, text=True, check=True)
    assert first.stdout.count(" created") == again.stdout.count("is there already") == 5
    assert kubectl("get", "secrets", "-n", NAMESPACE, "-o", "yaml") == made
    for key in ("ca", "tls"):
        text = kubectl(
            "get", "secret", "ldap-tls", "-n", NAMESPACE, "-o", f'go-template={{{{index .data "{key}.crt" | base64decode}}}}'
        )
        (tmp_path / f"{key}.crt").write_text(text)
    verify = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", "openldap", "tls.crt"]
    subprocess.run(verify, check=True, capture_output=True, cwd=tmp_path)
