"""A copilot of the lab with a real Prometheus that scrapes it wherever it runs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from copilot.model import Kind
from tests.lab.cluster import Cluster
from tests.lab.prometheus import Prometheus
from tests.monitoring.conftest import shortened

KINDS = {"cpu": Kind.STATEFUL_SET, "demo-worker-gpu": Kind.SLURM_CLUSTER}
# Nodes that cannot register are given up, and orphans removed, within seconds; the breaker stays open until a test is done with it.
SETTINGS = {"registration_timeout": "5", "orphan_grace": "5", "breaker_pause": "60", "poll_quiet": "2"}


@dataclass(frozen=True, slots=True)
class Scraped:
    """`began` in Unix seconds: when the first scrape was."""

    cluster: Cluster
    prometheus: Prometheus
    began: float = field(default_factory=time.time)

    async def start(self, *, ready: bool = True) -> None:
        """The copilot starts, and is scraped where it listens now."""
        await self.cluster.copilot.start(ready=ready, seconds=60)
        self.prometheus.scrape(self.cluster.copilot.listen)


@asynccontextmanager
async def scraped(slurm: str, folder: Path) -> AsyncIterator[Scraped]:
    """Both, started; and ended."""
    folder.chmod(0o755)
    prometheus = Prometheus(folder / "prometheus", shortened(folder))
    async with Cluster(slurm, folder, kinds=KINDS, settings=SETTINGS) as cluster:
        prometheus.scrape(cluster.copilot.listen)
        try:
            await prometheus.start()
            yield Scraped(cluster, prometheus)
        finally:
            await prometheus.component.stop()
