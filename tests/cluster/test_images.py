"""What is in the images, layer by layer, as they would be pushed: also what a later layer hides."""

from __future__ import annotations

import json
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.conftest import TESTED

SLURM = [name for name in TESTED if name.startswith("slurm")]
HOOKS = ("slurm-resume.sh", "slurm-suspend.sh", "slurm-resume-fail.sh", "slurm-prolog.sh")
SECRET_NAMES = re.compile(
    r"munge\.key|ssh_host_\w+_key|ssl-cert-snakeoil|(^|/)id_(rsa|ed25519|ecdsa)$|slapd\.d/cn=config|\.mdb$|nslcd\.conf$"
)
SECRET_WORDS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}|^(rootpw|bindpw|StoragePass)[ =]\S", re.MULTILINE
)


def _layers(archive: Path) -> Iterator[tarfile.TarFile]:
    with tarfile.open(archive) as outer:
        for layer in json.loads(_read(outer, "manifest.json"))[0]["Layers"]:
            inner = outer.extractfile(layer)
            assert inner is not None
            with tarfile.open(fileobj=inner) as tar:
                yield tar


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    source: IO[bytes] | None = tar.extractfile(name)
    assert source is not None, name
    return source.read()


def _config(archive: Path) -> dict[str, object]:
    with tarfile.open(archive) as outer:
        config: dict[str, object] = json.loads(_read(outer, json.loads(_read(outer, "manifest.json"))[0]["Config"]))["config"]
    return config


def _speaks(layer: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    return member.size < 100_000 and bool(SECRET_WORDS.search(_read(layer, member.name)))


@pytest.mark.parametrize("name", TESTED)
def test_no_secret_is_in_any_layer(archives: dict[str, Path], name: str) -> None:
    seen = 0
    found = []
    for layer in _layers(archives[name]):
        for member in layer:
            seen += member.isfile()
            if member.isfile() and (SECRET_NAMES.search(member.name) or _speaks(layer, member)):
                found.append(member.name)
    assert found == []
    assert seen > 1000, "the layers were read"


def test_the_search_for_secrets_finds_them() -> None:
    assert SECRET_NAMES.search("etc/munge/munge.key") and SECRET_NAMES.search("etc/ssh/ssh_host_ed25519_key")
    key = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMw\n"
    assert SECRET_WORDS.search(key) and SECRET_WORDS.search(b"uri x\nbindpw secret\n")


@pytest.mark.parametrize("name", SLURM)
def test_hooks_are_at_the_root_and_only_root_can_write_them(archives: dict[str, Path], name: str) -> None:
    """slurmctld turns power saving off for a hook that others can write, or that SlurmUser cannot read and execute."""
    modes = {member.name: member for layer in _layers(archives[name]) for member in layer}
    for hook in (*HOOKS, "slurmctld-copilot", "entrypoint.sh"):
        member = modes[hook]
        assert (stat.S_IMODE(member.mode), member.uid, member.gid) == (0o755, 0, 0), hook
    assert stat.S_IMODE(modes["copilot-hook.sh"].mode) == 0o644


@pytest.mark.parametrize("name", SLURM)
def test_the_copilot_is_compiled(archives: dict[str, Path], name: str) -> None:
    names = {member.name for layer in _layers(archives[name]) for member in layer}
    for package in ("opt/copilot/app/copilot/", "/site-packages/kubernetes_asyncio/", "/site-packages/aiohttp/"):
        sources = {one for one in names if package in one and one.endswith(".py")}
        compiled = {re.sub(r"__pycache__/([^/]+)\.cpython-\d+\.pyc$", r"\1.py", one) for one in names if one.endswith(".pyc")}
        assert sources and not sources - compiled, package


@pytest.mark.parametrize("name", SLURM)
def test_the_copilot_s_code_is_in_small_layers_of_its_own(archives: dict[str, Path], name: str) -> None:
    """So that a change of it neither rebuilds nor pulls the rest."""
    layers = [{member.name: member.size for member in layer} for layer in _layers(archives[name])]
    own = [layer for layer in layers if any(one.startswith("opt/copilot/app/") for one in layer)]
    assert own and sum(sum(layer.values()) for layer in own) < 5_000_000
    assert not any("usr/sbin/slurmctld" in layer for layer in own)


@pytest.mark.parametrize("name", ["openldap:2.5", "phpldapadmin:1.2"])
def test_directory_and_page_run_without_root(archives: dict[str, Path], name: str) -> None:
    user = str(_config(archives[name])["User"])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "a number, so that runAsNonRoot can be checked"


@pytest.mark.parametrize("name", TESTED)
def test_the_first_process_passes_signals_and_reaps(archives: dict[str, Path], name: str) -> None:
    assert _config(archives[name])["Entrypoint"] == ["/usr/bin/tini", "--", "/entrypoint.sh"]
