"""The node's own control groups: one in each hierarchy of the machine, removed afterwards with all that kubelet and runc made below."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "copilot-node-"
# What kubelet and runc use of version 1; "systemd" is the named hierarchy without a controller.
_VERSION_1: Final = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
_VERSION_2: Final = "+cpuset +cpu +io +memory +pids"
_YOUNG_SECONDS: Final = 60.0


def unified() -> bool:
    """Whether this machine has the one hierarchy of version 2."""
    return (ROOT / "cgroup.controllers").is_file()


def parents() -> dict[str, Path]:
    """The folders below which the node's groups go, by hierarchy."""
    if unified():
        return {"unified": ROOT}
    own = dict(_own_groups())
    return {name: ROOT / name / own.get(name, "") for name in _VERSION_1}


def make(token: str) -> list[Path]:
    """One group in each hierarchy. OSError where the machine does not let us."""
    groups = []
    for name, parent in parents().items():
        group = parent / f"{PREFIX}{token}"
        if name == "unified":
            (parent / "cgroup.subtree_control").write_text(_VERSION_2)
        group.mkdir()
        if name == "cpuset":  # a new group of this kind may use nothing, unless told
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((parent / file).read_text())
        groups.append(group)
    return groups


def remove(token: str, within: float = 10.0) -> list[Path]:
    """Removes the groups and all below them; what is left after `within` seconds, since the kernel clears up a little later."""
    deadline = time.monotonic() + within
    groups = [parent / f"{PREFIX}{token}" for parent in parents().values()]
    while left := [group for group in groups if group.is_dir() and not _removed(group)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def sweep() -> None:
    """Removes groups of nodes that were killed outright. One that has a process, or was just made, is somebody's."""
    for parent in parents().values():
        for group in parent.glob(f"{PREFIX}*/"):
            with contextlib.suppress(OSError):  # another sweeper was quicker
                old = time.time() - group.stat().st_mtime > _YOUNG_SECONDS
                if old and not any(file.read_text() for file in group.rglob("cgroup.procs")):
                    _removed(group)


def _removed(group: Path) -> bool:
    for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _own_groups() -> Iterator[tuple[str, str]]:
    """This process's groups (a container is in one of its own), by hierarchy, without the leading slash."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.removeprefix("name=").split(","):
            yield name, path.lstrip("/")
