"""A wall clock that tests step, for the processes that are started with it: libfaketime (Debian) adds what a file says.

Time that only passes (CLOCK_MONOTONIC), waiting, and the dates of files are the kernel's own, as when an administrator or NTP steps a real clock.
"""

from __future__ import annotations

import shutil
from pathlib import Path

# Of a package whose folder has the machine's name in it.
_LIBRARY = "*/faketime/libfaketimeMT.so.1"


class Clock:
    """`environment` is what a process needs to be under it; a step takes effect within a second."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        # Beside the file, because Slurm's releases run in roots of their own, which share this folder.
        [source] = Path("/usr/lib").glob(_LIBRARY)
        library = shutil.copy(source, folder / source.name)
        self.step(0.0)
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def step(self, seconds: float) -> None:
        """From now on the clock is ahead of the machine's by so many seconds, or behind it."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.1f}\n")
        fresh.chmod(0o644)
        fresh.replace(self._file)
