"""The cached Debian root of another Slurm, made ready to be entered by chroot inside a private mount namespace."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.lab.slurm_commands import LabError


async def bind(root: Path) -> None:
    """Binds the root over itself, read-only, with the lab's /tmp, /run, /dev and names in it; once, however often it is called."""
    path = str(root)
    if os.path.ismount(path):
        return
    for name in ("hosts", "resolv.conf", "nsswitch.conf"):
        (root / "etc" / name).touch()
    await _checked("mount", "--bind", path, path)
    await _checked("mount", "-o", "remount,bind,ro", path)
    for inside in ("/tmp", "/run", "/dev", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"):
        await _checked("mount", "--rbind", inside, path + inside)
    await _checked("mount", "-t", "proc", "proc", f"{path}/proc")


async def _checked(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    _, err = await process.communicate()
    if process.returncode:
        raise LabError(f"{' '.join(argv)}: {err.decode(errors='replace').strip()}")
