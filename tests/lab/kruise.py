"""The real OpenKruise manager against a running control plane: it owns the Advanced StatefulSets.

Its webhooks guard pods and the built-in StatefulSets too, and fail closed: `stop` removes their configurations, or every write would
wait and fail. Ready about 10 s after the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.lab.component import Component, free_port
from tests.lab.controlplane import cache
from tests.lab.endpoint import Admin, ApiEndpoint, ApiError, Object, resource

NAMESPACE = "kruise-system"
API = "apps.kruise.io/v1beta1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_HOOKS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


def installed() -> Path | None:
    """The folder with the manager and its configuration, None when `tests/lab/install kruise` has not been run."""
    folders = [folder for folder in sorted(cache().glob("kruise-v*/"), reverse=True) if (folder / "kruise-manager").is_file()]
    return folders[0] if folders else None


def missing() -> str:
    """Why the manager cannot run here, "" when it can."""
    return "" if installed() else "not installed: OpenKruise's manager (tests/lab/install kruise)"


class Kruise:
    """`folder` takes the log and the webhook's certificates; the API server reaches the webhooks on loopback."""

    def __init__(self, endpoint: ApiEndpoint, folder: Path) -> None:
        self._endpoint = endpoint
        self._folder = folder
        self._probe = free_port()
        self.manager: Component | None = None

    async def start(self) -> None:
        """CRDs, webhook configurations and the manager; returns when a set would be admitted and acted upon."""
        home = installed()
        assert home is not None, missing()
        self._folder.mkdir(parents=True, exist_ok=True)
        async with Admin(self._endpoint) as admin:
            for crd in documents(home / "config/crd/bases"):
                await _ensure(admin, resource("apiextensions.k8s.io/v1", "customresourcedefinitions"), crd)
            await _ensure(admin, resource("v1", "namespaces"), {"metadata": {"name": NAMESPACE}})
            await _ensure(admin, resource("v1", "secrets", NAMESPACE), {"metadata": {"name": "kruise-webhook-certs"}})
            for hooks in documents(home / "config/webhook/manifests.yaml"):
                name = f"kruise-{hooks['metadata']['name']}"
                await _ensure(admin, resource(_ADMISSION, _HOOKS[hooks["kind"]]), {**hooks, "metadata": {"name": name}})
            self.manager = Component("kruise-manager", self._argv(home), self._folder / "kruise-manager.log", self._environment())
            self.manager.start()
            await self.manager.ready(self._answers)
            # The last thing it does: the webhooks get the authority that it made, and its own address.
            for plural in _HOOKS.values():
                name = f"kruise-{'mutating' if plural.startswith('m') else 'validating'}-webhook-configuration"
                await admin.until(resource(_ADMISSION, plural, name=name), has_authority, within=60)

    async def stop(self) -> None:
        """The webhook configurations first, then the manager. The CRDs and the sets stay."""
        if self.manager is None:
            return
        async with Admin(self._endpoint) as admin:
            for kind, plural in _HOOKS.items():
                name = f"kruise-{'mutating' if kind.startswith('M') else 'validating'}-webhook-configuration"
                if await admin.exists(resource(_ADMISSION, plural, name=name)):
                    await admin.delete(resource(_ADMISSION, plural, name=name))
        await self.manager.stop()

    async def _answers(self) -> bool:
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
                answer = await session.get(f"http://127.0.0.1:{self._probe}/readyz")
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _argv(self, home: Path) -> list[str | Path]:
        return [
            home / "kruise-manager",
            "--enable-leader-election=false",
            "--enable-pprof=false",
            "--metrics-addr=0",
            f"--health-probe-addr=127.0.0.1:{self._probe}",
            "--rest-config-qps=500",
            "--rest-config-burst=1000",
        ]

    def _environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self._endpoint.kubeconfig_path),
            "POD_NAMESPACE": NAMESPACE,
            "WEBHOOK_HOST": "127.0.0.1",
            "WEBHOOK_PORT": str(free_port()),
            "WEBHOOK_CERT_DIR": str(self._folder / "webhook-certs"),
        }


def documents(source: Path) -> list[Any]:
    """The objects of a file, or of all files of a folder."""
    files = sorted(source.glob("*.yaml")) if source.is_dir() else [source]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


async def _ensure(admin: Admin, collection: str, body: Object) -> None:
    try:
        await admin.post(collection, body)
    except ApiError as error:
        if error.status != 409:
            raise


def has_authority(configuration: Object) -> bool:
    """Whether the manager has given a webhook configuration its authority, which it does when it can answer."""
    hooks = configuration.get("webhooks") or []
    return bool(hooks) and all(hook["clientConfig"].get("caBundle") for hook in hooks)
