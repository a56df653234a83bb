"""What the inside and the outside of the node have to agree on: names, addresses, files of the state folder, programs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.controlplane import binary, cache

NAME: Final = "node1"
# Also in tests/lab/node/space.
ADDRESS: Final = "10.78.0.1"
OUTSIDE_ADDRESS: Final = "10.78.0.2"
POD_NETWORK: Final = "10.88.0.0/16"
SERVICE_NETWORK: Final = "10.96.0.0/16"
DNS_ADDRESS: Final = "10.96.0.10"
DNS_DOMAIN: Final = "cluster.local"
CNI_PLUGINS: Final = Path("/usr/lib/cni")
# Sockets and other things that end with the node are in a /run that only its namespaces have.
RUN: Final = Path("/run/node")
CONTAINERD_SOCKET: Final = RUN / "containerd.sock"
PAUSE_IMAGE: Final = "lab.local/pause:1"
DNS_IMAGE: Final = "lab.local/coredns:1"
_DEBIAN: Final = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables", "ip": "iproute2"}


@dataclass(frozen=True, slots=True)
class State:
    """The files of one node's state folder."""

    folder: Path

    @property
    def ready(self) -> Path:
        """Appears when a pod could be created."""
        return self.folder / "ready"

    @property
    def plane(self) -> Path:
        """The control plane's folder: keys, etcd's data, kubeconfigs, logs."""
        return self.folder / "plane"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.plane / "admin.kubeconfig"

    @property
    def log(self) -> Path:
        """What the node's first process says; each program has a log of its own in the folder or in `plane`."""
        return self.folder / "node.log"

    @property
    def supervisor(self) -> Path:
        """The number of the process that keeps a node which outlives the command that started it (`make cluster`)."""
        return self.folder / "pid"

    @property
    def first(self) -> Path:
        """The number, as seen from outside, of the first process inside."""
        return self.folder / "first.pid"


def program(name: str) -> Path | None:
    """Path of kubelet, kube-proxy or coredns (built by the lab's installer) or of a program of Debian; None if it is not here."""
    if name in ("coredns", "pause"):
        found = sorted(cache().glob(f"coredns-v*/{name}"), reverse=True)
        return found[0] if found else None
    if name in ("kubelet", "kube-proxy"):
        assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
        found = [assets / name, *sorted(cache().glob(f"kubernetes-node-v*/{name}"), reverse=True)]
        return next((path for path in found if path.is_file()), None)
    if name.startswith("kube") or name == "etcd":
        return binary(name)
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    return Path(path) if path else None


def need(name: str) -> Path:
    """The same; AssertionError if it is not here, which `preflight` has excluded."""
    found = program(name)
    assert found is not None, f"not installed: {name}"
    return found


def missing_programs() -> list[str]:
    """A sentence for each program that is not here."""
    built = (
        "kubelet",
        "kube-proxy",
        "coredns",
        "pause",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    )
    sentences = [f"not installed: {name} (tests/lab/install node)" for name in built if program(name) is None]
    sentences += [
        f"not installed: {name} (apt-get install {package})" for name, package in _DEBIAN.items() if program(name) is None
    ]
    gone = [name for name in ("bridge", "host-local", "loopback") if not (CNI_PLUGINS / name).is_file()]
    if gone:
        sentences.append(f"not installed: the CNI plugins {', '.join(gone)} (apt-get install containernetworking-plugins)")
    return sentences
