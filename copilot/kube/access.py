"""Where the API server is and who we are: the pod's own ServiceAccount, or a kubeconfig file.

kubernetes_asyncio reads a pod's token inside the request and fails with whatever the file system says; a kubeconfig's token it reads once.
Here both are read outside the event loop, a pod's token once a minute (the kubelet replaces it long before it ends), and either again when
the server answers 401.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copilot.kube.errors import NotConfigured, Unavailable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_LIFE = 60.0  # seconds between two readings of the token file
_TOKEN = "BearerToken"  # noqa: S105 - the library's name for the header


class Access:
    """`configuration` is the library's; `namespace` is the pod's or the kubeconfig context's."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        self.configuration = configuration
        self.namespace = namespace

    async def renew(self) -> bool:
        """Reads the credentials again; whether they have changed."""
        raise NotImplementedError


class PodAccess(Access):
    """The ServiceAccount of the pod we run in."""

    def __init__(self, configuration: Any, namespace: str, folder: Path) -> None:
        super().__init__(configuration, namespace)
        self._file = folder / "token"
        self._read_again_at = 0.0
        configuration.api_key[_TOKEN] = ""
        configuration.refresh_api_key_hook = self._refresh

    async def renew(self) -> bool:
        before = self.configuration.api_key[_TOKEN]
        self._read_again_at = 0.0
        await self._refresh(self.configuration)
        return bool(self.configuration.api_key[_TOKEN] != before)

    async def _refresh(self, configuration: Any) -> None:
        """Called by the library before every request. While the file is missing or empty the last token serves on."""
        now = asyncio.get_running_loop().time()
        if now < self._read_again_at:
            return
        token = await asyncio.to_thread(_text, self._file)
        if token:
            configuration.api_key[_TOKEN] = f"Bearer {token}"
            self._read_again_at = now + _TOKEN_LIFE
        elif not configuration.api_key[_TOKEN]:
            raise Unavailable(
                f"{self._file} is missing or empty: the kubelet has not written the ServiceAccount's token", "token"
            )


class FileAccess(Access):
    """A kubeconfig file, for a daemon outside the cluster and for tests."""

    def __init__(self, configuration: Any, namespace: str, file: Path) -> None:
        super().__init__(configuration, namespace)
        self._file = file

    async def renew(self) -> bool:
        before = self.configuration.api_key.get(_TOKEN)
        try:
            await _load(self._file, self.configuration)
        except NotConfigured:
            return False  # half written, perhaps; what was read before goes on to be used
        return bool(self.configuration.api_key.get(_TOKEN) != before)


async def find_access(kubeconfig: Path | None, environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Access:
    """A kubeconfig when given, else the pod's account. NotConfigured when neither is to be had, with the cure."""
    configuration = await asyncio.to_thread(_configuration)
    if kubeconfig is not None:
        return FileAccess(configuration, await _load(kubeconfig, configuration), kubeconfig)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise NotConfigured(
            "no API server: this is no pod (KUBERNETES_SERVICE_HOST is not set), so set COPILOT_KUBECONFIG to a file"
        )
    authority = folder / "ca.crt"
    namespace = await asyncio.to_thread(_text, folder / "namespace")
    if not await asyncio.to_thread(_text, authority) or not namespace:
        raise NotConfigured(
            f"no API server: {folder} lacks ca.crt or namespace; the pod needs automountServiceAccountToken: true"
        )
    configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    configuration.ssl_ca_cert = str(authority)
    return PodAccess(configuration, namespace, folder)


def _configuration() -> Any:
    # The import costs 0.4 s and 70 MiB: only who talks to an API server pays it.
    from kubernetes_asyncio.client import Configuration

    return Configuration()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


async def _load(file: Path, configuration: Any) -> str:
    """Fills the configuration from the file and returns its namespace. It reads files and may run a login program, so in a thread."""

    def load() -> str:
        from kubernetes_asyncio.config import load_kube_config

        loader = asyncio.run(load_kube_config(config_file=str(file), client_configuration=configuration, persist_config=False))
        context = loader.current_context or {}
        return str(context["context"].get("namespace") or "default")

    try:
        return await asyncio.to_thread(load)
    except Exception as error:  # the library lets through whatever YAML, files, base64 and login programs raise
        raise NotConfigured(f"kubeconfig {file} cannot be used: {type(error).__name__}: {error}") from error
