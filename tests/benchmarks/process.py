"""What a process has used, read from /proc."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds on a core, of the process itself and of its children that have ended (each scontrol)."""

    own: float
    children: float

    @property
    def all(self) -> float:
        return self.own + self.children

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.own - before.own, self.children - before.children)


def cpu(pid: int) -> Cpu:
    """So far. The resolution is 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, child_user, child_system = (int(field) * _TICK for field in fields[11:15])
    return Cpu(user + system, child_user + child_system)


def rss(pid: int, field: str = "VmRSS") -> float:
    """Resident MiB; `VmHWM` for the most that it ever was."""
    return _kib(Path(f"/proc/{pid}/status"), field) / 1024


def pss(pid: int) -> float:
    """MiB in use with each shared page counted in parts, so that the sum over processes is what the machine gives."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss") / 1024


def _kib(path: Path, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    assert found is not None, f"{path} has no {field}"
    return int(found[1])


def descendants(pid: int) -> list[int]:
    """The process and everything below it."""
    found = [pid]
    for each in found:
        tasks = Path(f"/proc/{each}/task")
        for task in tasks.iterdir() if tasks.exists() else ():
            found += map(int, (task / "children").read_text().split())
    return found
