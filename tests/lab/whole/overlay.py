"""manifests/overlays/demo on the node: its images under the names that the manifests use, its Secrets, and the wait until it works."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.controlplane import TREE
from tests.lab.endpoint import Object
from tests.lab.images import IMAGES, build
from tests.lab.node import State, import_image, inside, kubectl
from tests.lab.node.layout import CONTAINERD_SOCKET, need

NAMESPACE: Final = "slurm"
BASE: Final = "dc=slurm,dc=local"
NAMES: Final = ("slurm:24.11", "openldap:2.5", "phpldapadmin:1.2", "mariadb:11.8")
# By app.kubernetes.io/component. Workers are not among them: they come and go.
SERVING: Final = frozenset({"slurmctld", "slurmdbd", "mariadb", "openldap", "phpldapadmin", "login"})


def load(node: State, name: str, archive: Path) -> None:
    """Gives the node an image, also under the name that a registry's client would look for."""
    import_image(node, archive)
    ctr: list[str | Path] = [
        need("ctr"),
        "--address",
        str(CONTAINERD_SOCKET),
        "--namespace",
        "k8s.io",
        "images",
        "tag",
        "--force",
    ]
    subprocess.run(inside(node, *ctr, IMAGES[name].reference, f"docker.io/library/{name}"), check=True, stdout=subprocess.DEVNULL)


def apply(node: State) -> None:
    """The namespace, the Secrets as the documented command makes them, and all of the overlay with strict validation."""
    overlay = TREE / "manifests/overlays/demo"
    kubectl(node, "apply", "-f", str(TREE / "manifests/base/namespace.yaml"))
    make_secrets(node)
    kubectl(node, "apply", "--validate=strict", "-k", str(overlay))


def make_secrets(node: State) -> None:
    """Runs manifests/secrets; what is there already is kept."""
    environment = {"KUBECONFIG": str(node.kubeconfig), "PATH": f"{need('kubectl').parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run([TREE / "manifests/secrets", NAMESPACE], env=environment, check=True, stdout=subprocess.DEVNULL)


def serve(node: State, say: Callable[[str], None], within: float = 180.0) -> None:
    """Waits until every serving pod is Ready, and names each when it is. AssertionError with the state of the rest after `within` s."""
    deadline, told = time.monotonic() + within, set[str]()
    while told != SERVING:
        pods = json.loads(kubectl(node, "get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        for component in sorted({_component(pod) for pod in pods if is_ready(pod)} & SERVING - told):
            told.add(component)
            say(f"{component} is Ready, {len(SERVING - told)} to come")
        if time.monotonic() > deadline:
            table = kubectl(node, "get", "pods", "-n", NAMESPACE, "-o", "wide")
            raise AssertionError(f"not Ready within {within} s: {', '.join(sorted(SERVING - told))}\n{table}")
        time.sleep(0.2)


def is_ready(pod: Object) -> bool:
    """Whether the kubelet calls the pod Ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def _component(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get("app.kubernetes.io/component", ""))


@dataclass(frozen=True, slots=True)
class User:
    """Somebody to be known to the directory."""

    name: str
    number: int
    password: str

    def entries(self) -> str:
        """LDIF of the user and of the group of his own."""
        return f"""\
dn: uid={self.name},ou=people,{BASE}
objectClass: inetOrgPerson
objectClass: posixAccount
cn: {self.name}
sn: {self.name}
uid: {self.name}
uidNumber: {self.number}
gidNumber: {self.number}
homeDirectory: /home/{self.name}
loginShell: /bin/bash
userPassword: {self.password}

dn: cn={self.name},ou=groups,{BASE}
objectClass: posixGroup
cn: {self.name}
gidNumber: {self.number}
"""


def new_user(name: str, number: int) -> User:
    return User(name, number, secrets.token_urlsafe(9))


def directory(node: State, tool: str, ldif: str) -> None:
    """ldapadd or ldapmodify as the directory's administrator. CalledProcessError with its complaint in `stderr`."""
    admin = ["-x", "-H", "ldap://127.0.0.1:1389", "-D", f"cn=admin,{BASE}", "-y", "/run/secrets/ldap/password"]
    kubectl(node, "exec", "-i", "-n", NAMESPACE, "openldap-0", "-c", "openldap", "--", tool, *admin, text=ldif)


def address(node: State, service: str) -> str:
    """The Service's cluster address, which the machine outside reaches too."""
    return kubectl(node, "get", "service", service, "-n", NAMESPACE, "-o", "jsonpath={.spec.clusterIP}")


def execute(node: State, pod: str, *command: str, container: str = "") -> str:
    """What a command prints in a pod of the cluster (`deployment/login` names one too)."""
    where = ["-c", container] if container else []
    return kubectl(node, "exec", "-n", NAMESPACE, pod, *where, "--", *command)


def archives(names: Iterable[str] = NAMES) -> dict[str, Path]:
    """The docker-archives, built from the tree as it is now where they are not."""
    return {name: build(IMAGES[name]) for name in names}
