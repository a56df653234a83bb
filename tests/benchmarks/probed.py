"""The copilot's command line with a probe in its event loop: `python -m tests.benchmarks.probed serve ...`.

Notes every piece of work between two looks for I/O that took NOTED seconds or more, as one line of JSON in the file that
COPILOT_STALLS names: `at` (time.monotonic() at its end), `wall` seconds, `work` without what the thread waited for a core because
other processes had them all (/proc/.../schedstat), and `gc`, the garbage collector's part of it.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any

NOTED = 0.005


class _Probe(selectors.EpollSelector):
    """What asyncio waits with; the time from the end of one wait to the begin of the next is the loop's work."""

    def __init__(self) -> None:
        super().__init__()
        self._began: tuple[float, float] | None = None
        self._collected = 0.0
        self._collecting = 0.0
        self._file = Path(os.environ["COPILOT_STALLS"])
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        gc.callbacks.append(self._collector)

    def _waited(self) -> float:
        """Seconds that this thread has been ready to run without a core."""
        return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9

    def _collector(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if self._began is not None:
            self._note(*self._began)
        try:
            return super().select(timeout)
        finally:
            self._collected = 0.0
            self._began = time.monotonic(), self._waited()

    def _note(self, began: float, waited: float) -> None:
        now = time.monotonic()
        if now - began >= NOTED:
            work = now - began - (self._waited() - waited)
            line = {"at": now, "wall": now - began, "work": work, "gc": self._collected}
            with self._file.open("a") as notes:
                notes.write(json.dumps(line) + "\n")


def main() -> int:
    selectors.DefaultSelector = _Probe  # type: ignore[assignment,misc]
    from copilot.cli import main as copilot

    return copilot()


if __name__ == "__main__":
    sys.exit(main())
