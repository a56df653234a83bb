"""What the demo sees while the job goes its way: pods as they come and go, and the copilot's log as an operator would follow it."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.daemon import Line
from tests.lab.endpoint import Object, resource

# The lines that tell the story; the others are for whoever looks for a fault.
STORY = frozenset({"hook", "target_patched", "node_scheduled", "node_running", "node_up", "wait", "node_off", "slurm_updated"})
_HIDDEN = frozenset({"event", "time", "level", "request_id", "node_count", "count", "ignored"})


def moment(line: Line) -> float:
    """When a line was logged, as Unix time."""
    return datetime.fromisoformat(line["time"]).timestamp()


def shown(line: Line) -> str:
    """One line as a terminal would have it."""
    clock = datetime.fromisoformat(line["time"]).astimezone().strftime("%H:%M:%S.%f")[:-3]
    words = " ".join(f"{key}={_value(value)}" for key, value in line.items() if key not in _HIDDEN and value not in ("", None))
    return f"    copilot  {clock} {line['event']:<15} {words}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}={_value(one)}" for key, one in value.items()) + "}"
    return str(value)


class Recorder:
    """`exist`, `run` and `gone`: Unix times at which each pod was first seen to exist and to be Running, and last seen at all."""

    def __init__(self, cluster: Cluster) -> None:
        self.exist: dict[str, float] = {}
        self.run: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self._cluster = cluster
        self._printed = len(cluster.copilot.log())
        self.failure: BaseException | None = None

    async def watch_pods(self) -> None:
        """For ever."""
        while True:
            async for event in self._cluster.admin.watch(resource("v1", "pods", NAMESPACE), timeoutSeconds="300"):
                self._note(event)

    def _note(self, event: Object) -> None:
        name, now = event["object"]["metadata"]["name"], time.time()
        if event["type"] == "DELETED":
            self.gone[name] = now
            return
        self.exist.setdefault(name, now)
        if event["object"]["status"].get("phase") == "Running":
            self.run.setdefault(name, now)

    async def follow_log(self) -> None:
        """Prints what the copilot logs, for ever."""
        while True:
            self.print_log()
            await asyncio.sleep(0.1)

    def print_log(self) -> None:
        """Prints the lines since the last time: those of the story, and whatever is a warning."""
        lines = self._cluster.copilot.log()
        for line in lines[self._printed :]:
            if line.get("event") in STORY or line.get("level") in ("warning", "error"):
                print(shown(line), flush=True)
        self._printed = len(lines)
