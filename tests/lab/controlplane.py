"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler. No node, no kubelet
(tests/lab/node adds them).

The binaries are those of $KUBEBUILDER_ASSETS when set, else those that `tests/lab/install kubernetes` has built.
Ready after 3-4 s. Runs in a plain process as well as in a network namespace that has nothing but lo.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import aiohttp
import yaml

from tests.lab import pki
from tests.lab.access import bind_role, write_kubeconfig
from tests.lab.component import Component, free_port
from tests.lab.endpoint import Admin, ApiEndpoint, ApiError, resource

TREE: Final = Path(__file__).resolve().parents[2]
Name = Literal["etcd", "apiserver", "controllers", "scheduler"]
_USERS = {"admin": "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": ""}


def cache() -> Path:
    """Where `tests/lab/install` keeps what it builds."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "slurmctld-copilot"
    return Path(os.environ.get("COPILOT_CACHE", default))


def missing() -> str:
    """Why the control plane cannot run here, "" when it can."""
    gone = [name for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler") if binary(name) is None]
    return f"not installed: {', '.join(gone)} (tests/lab/install kubernetes)" if gone else ""


def binary(name: str) -> Path | None:
    """The program's path, None when it is not installed."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets)] if assets else sorted(cache().glob("kubernetes-v*/"), reverse=True)
    found = [folder / name for folder in folders if (folder / name).is_file()]
    on_path = shutil.which(name)
    return found[0] if found else Path(on_path) if on_path else None


@dataclass(frozen=True, slots=True)
class RealNode:
    """The machine of a control plane that has a real kubelet: `address` is where kubelet, pods and tests reach the API server."""

    name: str
    address: str

    @property
    def users(self) -> dict[str, str]:
        """Its users and their groups, as kubelet and kube-proxy are known to the default roles."""
        return {f"system:node:{self.name}": "system:nodes", "system:kube-proxy": ""}


class ControlPlane:
    """`folder` takes the keys, etcd's data, kubeconfigs and logs; it is made, and not removed."""

    def __init__(self, folder: Path, node: RealNode | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._node = node
        self._users = {**_USERS, **(node.users if node else {})}
        self._tokens = {user: secrets.token_hex(16) for user in self._users}
        self._port = free_port()
        url = f"https://{node.address if node else '127.0.0.1'}:{self._port}"
        ca = folder / "ca.crt"
        self.endpoint = ApiEndpoint(url, ca, self._tokens["admin"], folder / "admin.kubeconfig")
        self.components: dict[Name, Component] = {}

    async def start(self) -> ApiEndpoint:
        """Everything runs and a pod could be created in the namespace `default`."""
        if why := missing():
            raise RuntimeError(why)
        await asyncio.to_thread(self._write_files)
        self.components = {
            "etcd": Component("etcd", self._etcd(), self.folder / "etcd.log", {"ETCD_UNSUPPORTED_ARCH": os.uname().machine}),
            "apiserver": Component("kube-apiserver", self._apiserver(), self.folder / "kube-apiserver.log"),
            "controllers": Component("kube-controller-manager", self._controllers(), self.folder / "kube-controller-manager.log"),
            "scheduler": Component("kube-scheduler", self._scheduler(), self.folder / "kube-scheduler.log"),
        }
        for name in self.components:
            await self.start_component(name)
        async with Admin(self.endpoint) as admin:
            await admin.until(resource("v1", "serviceaccounts", "default", "default"), bool, within=60)
        return self.endpoint

    async def stop(self) -> None:
        """All of it, the clients of each first. etcd loses nothing, so `start_component` in order brings the same cluster back."""
        for name in reversed(list(self.components)):
            await self.stop_component(name)

    async def start_component(self, name: Name) -> None:
        """Waits until etcd or the API server answers; the controllers and the scheduler are not waited for."""
        component = self.components[name]
        component.start()
        if name == "apiserver":
            await component.ready(self._answers)

    async def stop_component(self, name: Name) -> None:
        # The API server would wait for its watchers to go; nobody's data are at stake here.
        await (self.components[name].kill() if name == "apiserver" else self.components[name].stop())

    async def kill_component(self, name: Name) -> None:
        await self.components[name].kill()

    async def restart_component(self, name: Name) -> None:
        await self.stop_component(name)
        await self.start_component(name)

    async def service_account(self, namespace: str, manifest: Path = TREE / "manifests/base/rbac.yaml") -> str:
        """Applies the manifest's ServiceAccount, Role and RoleBinding to the namespace (made if need be); a token of the account."""
        async with Admin(self.endpoint) as admin:
            return await bind_role(admin, namespace, list(yaml.safe_load_all(manifest.read_text())))

    async def kubeconfig(self, namespace: str) -> Path:
        """A kubeconfig file with exactly the rights that the manifests give to the copilot."""
        token = await self.service_account(namespace)
        return write_kubeconfig(
            self.folder / f"{namespace}.kubeconfig", self.endpoint.url, self.endpoint.ca_file, token, namespace
        )

    async def _answers(self) -> bool:
        try:
            async with Admin(self.endpoint, timeout=2) as admin:
                await admin.get("/readyz")
        except (aiohttp.ClientError, TimeoutError, ApiError):
            return False
        return True

    def _write_files(self) -> None:
        pki.make_authority(self.folder)
        addresses = ["IP:127.0.0.1", "IP:10.96.0.1", "IP:10.77.0.1", "DNS:localhost"]
        addresses += [f"DNS:{name}" for name in ("kubernetes", "kubernetes.default", "kubernetes.default.svc")]
        if self._node:
            addresses.append(f"IP:{self._node.address}")
            pki.make_server(self.folder, "kubelet", [f"IP:{self._node.address}", f"DNS:{self._node.name}"])
            pki.make_client(self.folder, "apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
        pki.make_server(self.folder, "apiserver", addresses)
        pki.make_signing_pair(self.folder)
        lines = [f'{token},{user},{user},"{self._users[user]}"\n' for user, token in self._tokens.items()]
        (self.folder / "tokens.csv").write_text("".join(lines))
        write_kubeconfig(self.endpoint.kubeconfig_path, self.endpoint.url, self.endpoint.ca_file, self._tokens["admin"])
        for user in self._users.keys() - {"admin"}:
            write_kubeconfig(self.config_of(user), self.endpoint.url, self.endpoint.ca_file, self._tokens[user])
        self._etcd_url, self._peer_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))

    def config_of(self, user: str) -> Path:
        """The kubeconfig file of one of the cluster's own users (`system:kube-scheduler`)."""
        return self.folder / f"{user.removeprefix('system:')}.kubeconfig"

    def _etcd(self) -> list[str | Path]:
        listen = ["--listen-client-urls", self._etcd_url, "--advertise-client-urls", self._etcd_url]
        peers = ["--listen-peer-urls", self._peer_url, "--initial-advertise-peer-urls", self._peer_url]
        first = ["--initial-cluster", f"default={self._peer_url}", "--data-dir", str(self.folder / "etcd")]
        return [_need("etcd"), *listen, *peers, *first, "--unsafe-no-fsync", "--log-level", "warn"]

    def _apiserver(self) -> list[str | Path]:
        folder = self.folder
        return [
            _need("kube-apiserver"),
            f"--etcd-servers={self._etcd_url}",
            *self._reach(),
            f"--secure-port={self._port}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-key-file={folder / 'sa.pub'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--profiling=false",
        ]

    def _reach(self) -> list[str]:
        """Who reaches the API server, and whom it reaches."""
        if self._node is None:
            # An address must be told where the machine has no route; nobody uses it.
            nobody = ["--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none"]
            return ["--bind-address=127.0.0.1", *nobody, "--authorization-mode=RBAC"]
        return [
            "--bind-address=0.0.0.0",
            f"--advertise-address={self._node.address}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={self.folder / 'apiserver-kubelet.crt'}",
            f"--kubelet-client-key={self.folder / 'apiserver-kubelet.key'}",
            f"--kubelet-certificate-authority={self.folder / 'ca.crt'}",
            # The node's name cannot be resolved: exec and logs would fail.
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controllers(self) -> list[str | Path]:
        return [
            _need("kube-controller-manager"),
            f"--kubeconfig={self.config_of('system:kube-controller-manager')}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            # Without a kubelet the lab's nodes are bare objects whose lease nobody renews: they must not be tainted.
            f"--controllers=*{'' if self._node else ',-node-lifecycle-controller'}",
            # At the default of 20 requests a second the first ServiceAccount takes 2-5 s.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _scheduler(self) -> list[str | Path]:
        config = self.config_of("system:kube-scheduler")
        return [_need("kube-scheduler"), f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]


def _need(name: str) -> Path:
    found = binary(name)
    assert found is not None, name
    return found


async def _show() -> None:
    """Starts one, says how long that took, and stops it: `python -m tests.lab.controlplane FOLDER`."""
    import sys

    plane = ControlPlane(Path(sys.argv[1]))
    begun = time.monotonic()
    try:
        await plane.start()
        print(f"ready after {time.monotonic() - begun:.1f} s; KUBECONFIG={plane.endpoint.kubeconfig_path}", flush=True)
        await asyncio.Event().wait()
    finally:
        await plane.stop()


if __name__ == "__main__":
    asyncio.run(_show())
