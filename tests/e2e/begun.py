"""The copilot begun with other settings, ready or not; or a second one beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.lab.cluster import Cluster
from tests.lab.daemon import Daemon, Line


@asynccontextmanager
async def begun_with(lab: Cluster, **settings: str) -> AsyncIterator[list[Line]]:
    """The copilot of the cluster runs anew with these settings, ready or not, and as before afterwards. Gives the log as it is so far."""
    await lab.copilot.stop()
    so_far = lab.copilot.log()
    await lab.copilot.start(ready=False, seconds=30, **settings)
    try:
        await lab.copilot.until_logged("listening", times=1 + len([line for line in so_far if line.get("event") == "listening"]))
        yield so_far
    finally:
        await lab.copilot.stop()
        await lab.copilot.start()


async def ready(lab: Cluster) -> bool:
    return (await lab.copilot.get("/readyz"))[0] == 200


def second_daemon(lab: Cluster, **settings: str) -> Daemon:
    """Another one with the same settings but for these, and a log of its own without what only developers read."""
    folder = lab.folder / "second"
    folder.mkdir(exist_ok=True)
    (folder / "copilot.log").unlink(missing_ok=True)
    return Daemon(folder, {**lab.copilot.settings, "log_level": "info", **settings})
