"""Images without a registry: a docker-archive of one program, or of a root file system, that `ctr images import` takes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


def program_image(archive: Path, name: str, programs: Sequence[Path], entrypoint: Sequence[str]) -> None:
    """An image with nothing but these static programs, in its root folder."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for program in programs:
            info = tar.gettarinfo(str(program), program.name)
            info.mode, info.uid, info.gid, info.uname, info.gname, info.mtime = 0o755, 0, 0, "", "", 0
            with program.open("rb") as source:
                tar.addfile(info, source)
    layer.seek(0)
    _write(archive, name, layer, {"Entrypoint": list(entrypoint)})


def root_image(archive: Path, name: str, layer: Path, config: dict[str, Any]) -> None:
    """An image whose only layer is the tar file of a root file system; `config` is the image's (`Cmd`, `Env`)."""
    with layer.open("rb") as source:
        _write(archive, name, source, config)


def _write(archive: Path, name: str, layer: IO[bytes], config: dict[str, Any]) -> None:
    digest = hashlib.file_digest(layer, "sha256")  # type: ignore[arg-type]  # any seekable binary file serves
    size = layer.seek(0, io.SEEK_END)
    layer.seek(0)
    description = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
        "history": [{"created_by": "tests/lab"}],
    }
    text = json.dumps(description).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    index = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, config_name, len(text), io.BytesIO(text))
        _add(tar, "layer.tar", size, layer)
        table = json.dumps(index).encode()
        _add(tar, "manifest.json", len(table), io.BytesIO(table))


def _add(tar: tarfile.TarFile, name: str, size: int, source: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    tar.addfile(info, source)
