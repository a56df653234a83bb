"""The embedded API server as a program of its own, and its pace."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import yaml

from tests.lab.controllers import StatefulSets
from tests.lab.embedded import EmbeddedServer
from tests.lab.endpoint import Admin, ApiEndpoint, resource
from tests.lab.objects import stateful_set

TREE = Path(__file__).parents[2]


async def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "here" / "admin.conf"
    kubeconfig.parent.mkdir()
    argv = ["-m", "tests.lab.embedded", "--kubeconfig", str(kubeconfig)]
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, cwd=TREE, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(30):
            assert process.stdout is not None
            said = json.loads(await process.stdout.readline())
            config = yaml.safe_load(kubeconfig.read_text())
            assert config["clusters"][0]["cluster"]["server"] == said["url"]
            endpoint = ApiEndpoint(said["url"], None, config["users"][0]["user"]["token"], kubeconfig)
            async with Admin(endpoint) as admin:
                assert (await admin.get("/version"))["gitVersion"].startswith("v1.")
                # A watch that is open does not keep it from going.
                events = admin.watch(resource("v1", "pods"))
                waiting = asyncio.ensure_future(anext(events, None))
                await admin.get("/readyz")
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
                await asyncio.gather(waiting, return_exceptions=True)
                await events.aclose()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_thousand_pods_come_and_go(tmp_path: Path) -> None:
    pods, sets = resource("v1", "pods", "default"), resource("apps/v1", "statefulsets", "default")
    async with EmbeddedServer(tmp_path) as server, Admin(server.endpoint) as admin, StatefulSets(server.endpoint):
        await admin.post(sets, stateful_set("w", 1000))
        await admin.until(f"{sets}/w", lambda obj: obj["status"].get("replicas") == 1000, within=120)
        listed = await admin.list(pods, limit="300")
        assert len({pod["metadata"]["uid"] for pod in listed}) == 1000
        assert len(server.requests("list", "^/api/v1/namespaces/default/pods$")) == 4
        await admin.patch(f"{sets}/w", {"spec": {"replicas": 0}})
        await admin.until(pods, lambda page: not page["items"], within=120)
