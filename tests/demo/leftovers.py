"""What a run may have left on the machine: looked for by what everything of a run carries, the name of its folder."""

from __future__ import annotations

import os
from pathlib import Path


def left_behind(folder: Path) -> list[str]:
    """Processes that name the folder in their arguments or environment, and mounts below it."""
    mark, mine = os.fsencode(folder), os.getpid()
    found = []
    for proc in Path("/proc").iterdir():
        if not proc.name.isdigit() or int(proc.name) == mine:
            continue
        try:
            command = (proc / "cmdline").read_bytes()
            if mark in command or mark in (proc / "environ").read_bytes():
                found.append(f"process {proc.name}: {command.replace(bytes(1), b' ').decode(errors='replace')[:120]}")
        except OSError:  # it has ended
            continue
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return found + [f"mount {line.split()[1]}" for line in mounts if str(folder) in line]
