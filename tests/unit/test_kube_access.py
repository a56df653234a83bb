"""Who we are: the pod's token as the kubelet really leaves it, and every bad way to be given a kubeconfig."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubernetes_asyncio.client import ApiClient

from copilot.kube import Kube, NotConfigured, Unavailable
from copilot.kube.access import PodAccess, find_access

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    for name, text in {"token": "first\n", "ca.crt": "PEM", "namespace": "hpc"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


async def token_of(access: PodAccess) -> str:
    """What the library would put into the next request."""
    settings = await access.configuration.auth_settings()
    return str(settings["BearerToken"]["value"])


async def in_pod(folder: Path, environ: dict[str, str] | None = None) -> PodAccess:
    access = await find_access(None, environ or POD, folder)
    assert isinstance(access, PodAccess)
    return access


async def test_a_pod_finds_its_server_token_and_namespace(account: Path) -> None:
    access = await in_pod(account)
    assert (access.configuration.host, access.namespace) == ("https://10.96.0.1:443", "hpc")
    assert await token_of(access) == "Bearer first"
    access = await in_pod(account, {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert access.configuration.host == "https://[fd00::1]:443"


@pytest.mark.looptime
async def test_the_token_is_read_again_each_minute_and_outlives_a_gap(account: Path) -> None:
    access = await in_pod(account)
    assert await token_of(access) == "Bearer first"
    (account / "token").write_text("second")
    assert await token_of(access) == "Bearer first"
    await asyncio.sleep(61)
    assert await token_of(access) == "Bearer second"
    for gap in ("", None):
        (account / "token").write_text("") if gap is not None else (account / "token").unlink()
        await asyncio.sleep(61)
        assert await token_of(access) == "Bearer second"
    (account / "token").write_text("third")
    assert await token_of(access) == "Bearer third", "after a gap the file is looked at each time"


async def test_without_any_token_the_request_says_what_is_missing(account: Path) -> None:
    (account / "token").unlink()
    access = await in_pod(account)
    with pytest.raises(Unavailable, match="token is missing or empty") as caught:
        await token_of(access)
    assert caught.value.status == "token"


async def test_a_refused_token_is_compared_with_the_file(account: Path) -> None:
    access = await in_pod(account)
    await token_of(access)
    assert not await access.renew()
    (account / "token").write_text("second")
    assert await access.renew()
    assert await token_of(access) == "Bearer second"


@pytest.mark.parametrize("lacking", ["ca.crt", "namespace"])
async def test_an_account_that_is_not_mounted_is_named(account: Path, lacking: str) -> None:
    (account / lacking).unlink()
    with pytest.raises(NotConfigured, match="automountServiceAccountToken"):
        await in_pod(account)


async def test_neither_pod_nor_kubeconfig_names_the_cure(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="COPILOT_KUBECONFIG"):
        await find_access(None, {}, tmp_path)


CONTEXT = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
BAD = [
    "",
    "- a list",
    "{",
    "current-context: gone\ncontexts: []\nclusters: []\nusers: []",
    "current-context: a\ncontexts: [{name: a, context: {}}]",
    CONTEXT + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: /nowhere}}]",
]


@pytest.mark.parametrize("text", BAD)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(NotConfigured, match=f"kubeconfig {file} cannot be used: "):
        await find_access(file)


@pytest.mark.parametrize("data", ["%", "bm8gY2VydGlmaWNhdGU="])
async def test_certificates_that_are_none_are_named(tmp_path: Path, data: str) -> None:
    file = tmp_path / "config"
    file.write_text(CONTEXT + f"clusters: [{{name: c, cluster: {{server: 'https://x', certificate-authority-data: '{data}'}}}}]")
    with pytest.raises(NotConfigured, match="certificates for https://x cannot be used"):
        await Kube.connect(kubeconfig=file)


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="nowhere"):
        await find_access(tmp_path / "nowhere")


async def test_our_configuration_is_the_librarys(account: Path) -> None:
    """The names that we set on it are looked at by the library; one that was renamed would be ignored in silence."""
    access = await in_pod(account)
    (account / "ca.crt").unlink()
    with pytest.raises(FileNotFoundError):
        ApiClient(access.configuration)
