"""The product's images, built here from their Dockerfiles by buildah: `python -m tests.lab.images slurm:24.11 [NAME...]` prints the archives.

No registry is asked: the base of FROM is made by mmdebstrap and put into buildah's storage under that name, and pip's wheels are laid
beside. An archive is kept in the cache under a hash of all that goes into it. The build runs in mount and process namespaces of its own
and with the host's network: with a network of its own buildah would leave a bridge and firewall rules behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.controlplane import TREE, cache

_PYTHON: Final = {"trixie": "3.13", "bookworm": "3.11"}
# Overlay storage needs a file system that is not itself an overlay; the cache's is the one that was found to do.
_STORAGE: Final = cache() / "buildah"


@dataclass(frozen=True, slots=True)
class Image:
    """One image: `inputs` are what its Dockerfile takes from the tree, files and folders."""

    name: str
    folder: str
    suite: str
    inputs: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """Its name in containerd and in manifests."""
        return f"lab.local/{self.name}"

    @property
    def wheels(self) -> bool:
        return bool(self.inputs)


_OURS: Final = ("pyproject.toml", "constraints.txt", "scripts", "copilot")
IMAGES: Final = {
    image.name: image
    for image in (
        Image("slurm:24.11", "images/slurm", "trixie", _OURS),
        Image("slurm:22.05", "images/slurm", "bookworm", _OURS),
        Image("openldap:2.5", "images/openldap", "bookworm"),
        Image("phpldapadmin:1.2", "images/phpldapadmin", "bookworm"),
        # The lab's stand-in for the official image.
        Image("mariadb:11.8", "tests/lab/mariadb", "trixie"),
    )
}


def build(image: Image) -> Path:
    """The docker-archive of the image as the tree is now. CalledProcessError when a step fails, after its output."""
    with _lock():
        archive = cache() / "images" / f"{image.name.replace(':', '-')}-{_digest(image)}.tar"
        if archive.exists():
            return archive
        begin = time.monotonic()
        _base(image.suite)
        options = ["--isolation", "chroot", "--network", "host", "--pull-never", "--layers", "--format", "docker"]
        options += ["--build-arg", f"DEBIAN={image.suite}", "--tag", image.reference, "--file", f"{image.folder}/Dockerfile"]
        if image.wheels:
            options += [
                "--volume",
                f"{_wheels(image.suite)}:/wheels:ro",
                "--build-arg",
                "PIP_NO_INDEX=1",
                "--build-arg",
                "PIP_FIND_LINKS=/wheels",
            ]
        _buildah("bud", *options, str(TREE))
        archive.parent.mkdir(exist_ok=True)
        unfinished = archive.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        _buildah("push", "--quiet", image.reference, f"docker-archive:{unfinished}:{image.reference}")
        for old in archive.parent.glob(f"{image.name.replace(':', '-')}-*.tar"):
            old.unlink()
        unfinished.rename(archive)
        _say(f"{image.name} built in {time.monotonic() - begin:.0f} s, {archive.stat().st_size / 1e6:.0f} MB")
        return archive


def missing() -> str:
    """Why no image can be built here, "" when it can."""
    if os.geteuid() != 0:
        return "only root can build the images"
    gone = [name for name in ("buildah", "mmdebstrap") if subprocess.run(["which", name], capture_output=True).returncode]
    return f"not installed: {', '.join(gone)} (tests/lab/install images)" if gone else ""


def _digest(image: Image) -> str:
    """Changes with whatever goes into the image, the base's suite included; Debian's packages are those of the day of the build."""
    total = hashlib.sha256(f"{image.suite} {image.name}".encode())
    for source in (image.folder, *image.inputs):
        root = TREE / source
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(f"{path.relative_to(TREE)} {path.stat().st_mode:o}\n".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def _base(suite: str) -> None:
    """Debian's smallest system, in the storage under the name that FROM uses."""
    name = f"docker.io/library/debian:{suite}-slim"
    if name in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        return
    _say(f"making a Debian {suite} base")
    options = ["--quiet", "--mode=root", "--variant=minbase", "--include=ca-certificates"]
    options += ["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*"]
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        rootfs = f"{folder}/base.tar"
        _run(["mmdebstrap", *options, suite, rootfs])
        container = _buildah("from", "scratch").strip()
        _buildah("add", "--quiet", container, rootfs, "/")
        _buildah("config", "--cmd", "bash", container)
        _buildah("commit", "--quiet", "--rm", container, name)


def _wheels(suite: str) -> Path:
    """The copilot's libraries for the Python of that Debian, at the versions of the constraints file."""
    version = _PYTHON[suite]
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    wanted, pinned = project["dependencies"], TREE / "constraints.txt"
    key = hashlib.sha256("\n".join([*wanted, pinned.read_text()]).encode()).hexdigest()[:12]
    folder = cache() / f"wheels-{version}-{key}"
    if not folder.exists():
        _say(f"fetching wheels for Python {version}")
        machine, tag = os.uname().machine, f"cp{version.replace('.', '')}"
        options = ["--quiet", "--only-binary=:all:", "--implementation", "cp", "--python-version", version]
        options += [word for abi in (tag, "abi3", "none") for word in ("--abi", abi)]
        options += [
            word
            for glibc in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
            for word in ("--platform", f"{glibc}_{machine}")
        ]
        unfinished = folder.with_suffix(".part")
        _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(unfinished), "--constraint", str(pinned), *wanted])
        unfinished.rename(folder)
    return folder


def _buildah(*words: str) -> str:
    """What it prints; what it says on the way goes to stderr."""
    with tempfile.TemporaryDirectory(prefix="buildah-") as run:
        # Whatever options it is given, it keeps a cache below /var/lib.
        private = ["sh", "-c", 'mount -t tmpfs private /var/lib && exec "$@"', "sh"]
        return _run([*private, "buildah", "--root", str(_STORAGE), "--runroot", run, "--storage-driver", "overlay", *words])


def _run(argv: Sequence[str]) -> str:
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    done = subprocess.run(["nice", *spaces, "--", *argv], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout)
        done.check_returncode()
    return done.stdout


@contextmanager
def _lock() -> Iterator[None]:
    """One build at a time on this machine: the storage and the two cores are everybody's."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def main(names: Sequence[str]) -> int:
    """Builds the images named, all of them when none is; prints the archives' paths."""
    if why := missing():
        _say(why)
        return 77
    unknown = [name for name in names if name not in IMAGES]
    if unknown:
        _say(f"no image {', '.join(unknown)}; there are {', '.join(IMAGES)}")
        return 2
    for name in names or IMAGES:
        print(build(IMAGES[name]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
