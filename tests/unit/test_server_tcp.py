"""The TCP port: metrics in both formats, liveness, readiness."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from copilot.server import Health
from copilot.telemetry import HookOutcome
from tests.unit.server_fixture import FakeCore, serving, settings_in


async def get(core: FakeCore, folder: Path, path: str, accept: str = "*/*") -> tuple[int, str, str]:
    """Status, content type and text."""
    async with (
        serving(core, settings_in(folder)) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.metrics_address}{path}", headers={"Accept": accept}) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.text()


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [("*/*", "text/plain", "\n"), ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "# EOF\n")],
)
async def test_metrics_in_both_formats(tmp_path: Path, accept: str, kind: str, end: str) -> None:
    core = FakeCore()
    core.metrics.hook("resume", HookOutcome.ACCEPTED)
    status, content_type, text = await get(core, tmp_path, "/metrics", accept)
    assert status == 200
    assert content_type.startswith(kind)
    assert 'slurm_copilot_hook_requests_total{action="resume",outcome="accepted"} 1.0' in text
    assert text.endswith(end)


@pytest.mark.parametrize(
    ("alive", "ready", "health", "readiness"), [(True, True, 200, 200), (True, False, 200, 503), (False, False, 503, 503)]
)
async def test_liveness_is_the_loops_and_readiness_tells_why(
    tmp_path: Path, alive: bool, ready: bool, health: int, readiness: int
) -> None:
    core = FakeCore(state=Health(alive, ready, "the API server does not answer: check --kubeconfig"))
    for path, expected in (("/healthz", health), ("/readyz", readiness)):
        status, _, text = await get(core, tmp_path, path)
        assert (status, text) == (expected, "the API server does not answer: check --kubeconfig\n")


async def test_hooks_are_not_served_there(tmp_path: Path) -> None:
    assert (await get(FakeCore(), tmp_path, "/v1/groups"))[0] == 404


async def test_off_is_off(tmp_path: Path) -> None:
    async with serving(FakeCore(), settings_in(tmp_path, listen=None)) as server:
        assert server.metrics_address is None
