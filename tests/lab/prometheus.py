"""A real Prometheus and promtool, as `tests/lab/install prometheus` has taken them from Debian's package."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.lab.component import Component, free_port
from tests.lab.controlplane import cache

Sample = dict[str, Any]


def program(name: str) -> Path | None:
    """`prometheus` or `promtool`; None when they are not installed."""
    path = cache() / "prometheus-debian" / name
    return path if path.is_file() else None


def missing() -> str:
    """Why neither can run here, "" when they can."""
    return "" if program("promtool") else "not installed: prometheus (tests/lab/install prometheus)"


def definitions() -> list[Path]:
    """The Prometheus operator's CustomResourceDefinitions that the manifests use; none where they are not installed."""
    return sorted(cache().glob("prometheus-operator-v*/*.yaml"))


def promtool(*argv: str | Path, text: str = "") -> str:
    """What it prints; AssertionError with all it says when it finds fault."""
    found = program("promtool")
    assert found is not None, missing()
    done = subprocess.run([found, *argv], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """Scrapes one place every `interval` seconds, which is how long a scrape may take, and evaluates `rules` every second. `folder` takes its data and its log.

    The place may change (`scrape`), which it notices at once; its series have the same labels wherever it is.
    """

    def __init__(self, folder: Path, rules: Path, *, interval: float = 2.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._targets = folder / "targets.json"
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        config = {
            "global": {
                "scrape_interval": f"{interval:g}s",
                "scrape_timeout": f"{interval:g}s",
                "evaluation_interval": "1s",
            },
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "slurmctld-copilot", "file_sd_configs": [{"files": [str(self._targets)]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        found = program("prometheus")
        assert found is not None, missing()
        argv: list[str | Path] = [
            found,
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        self.component = Component("prometheus", argv, folder / "prometheus.log")

    def scrape(self, address: str, **labels: str) -> None:
        """`address` as host:port. The labels are those that a PodMonitor gives."""
        said = [{"targets": [address], "labels": {"instance": "copilot", "namespace": "slurm", **labels}}]
        # Renamed into place, so that it is never read half.
        part = self._targets.with_suffix(".part")
        part.write_text(json.dumps(said))
        part.replace(self._targets)

    async def start(self) -> None:
        """Returns when it answers queries."""
        self.component.start()
        await self.component.ready(self._answers)

    async def _answers(self) -> bool:
        try:
            await self.query("vector(1)")
        except (aiohttp.ClientError, TimeoutError, AssertionError):
            return False
        return True

    async def query(self, expression: str) -> list[Sample]:
        """What an expression comes to now: `{"metric": labels, "value": [time, text]}`. AssertionError when it cannot be evaluated."""
        found: list[Sample] = (await self._ask("query", query=expression))["result"]
        return found

    async def until(self, expression: str, seconds: float = 60) -> None:
        """Waits until an expression gives anything; AssertionError when time is up."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not await self.query(expression):
            assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s for {expression}"
            await asyncio.sleep(0.2)

    async def range(self, expression: str, start: float, end: float, step: float) -> list[Sample]:
        """The same over time (Unix seconds): `{"metric": labels, "values": [[time, text], ...]}`."""
        asked = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        found: list[Sample] = (await self._ask("query_range", **asked))["result"]
        return found

    async def firing(self) -> dict[str, list[Mapping[str, str]]]:
        """The labels of the alerts that fire now, by the alert's name."""
        found: dict[str, list[Mapping[str, str]]] = {}
        for one in (await self._ask("alerts"))["alerts"]:
            if one["state"] == "firing":
                found.setdefault(one["labels"]["alertname"], []).append(one["labels"])
        return found

    async def rules(self) -> dict[str, str]:
        """The health of each alert's rule (`ok` once it was evaluated) by the alert's name."""
        return {rule["name"]: rule["health"] for group in (await self._ask("rules"))["groups"] for rule in group["rules"]}

    async def until_firing(self, *names: str, seconds: float = 60) -> dict[str, list[Mapping[str, str]]]:
        """Waits until all of these alerts fire; AssertionError with what fires instead when time is up."""
        return await self._until(lambda now: set(names) <= now.keys(), f"{', '.join(names)} to fire", seconds)

    async def until_quiet(self, *names: str, seconds: float = 60) -> None:
        """Waits until none of these alerts fires (without names: none at all)."""
        await self._until(lambda now: not (set(now) & set(names) if names else set(now)), f"quiet: {names or 'all'}", seconds)

    async def _until(
        self, good: Callable[[dict[str, list[Mapping[str, str]]]], bool], what: str, seconds: float
    ) -> dict[str, list[Mapping[str, str]]]:
        deadline = asyncio.get_running_loop().time() + seconds
        while not good(now := await self.firing()):
            assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s for {what}; there fire: {now}"
            await asyncio.sleep(0.2)
        return now

    async def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{self._url}/api/v1/{what}", params=parameters) as answer,
        ):
            body = await answer.json()
        assert body["status"] == "success", body
        data: dict[str, Any] = body["data"]
        return data
