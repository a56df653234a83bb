"""What the kubelet's tests start instead of slurmds, and how to wait for pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.controllers import ready, terminating
from tests.lab.endpoint import Object
from tests.lab.kubelet import Kubelet

if TYPE_CHECKING:
    from tests.contract.conftest import Api


class Workers:
    """Stands for the slurmds: which run now, and how often each was started."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.running: dict[str, str] = {}
        self.starts: list[str] = []
        self.kubelet: Kubelet

    async def start(self, name: str, pod: Object) -> str:
        assert name not in self.running, f"{name} runs twice"
        self.running[name] = pod["metadata"]["uid"]
        self.starts.append(name)
        return f"10.77.1.{len(self.starts)}"

    async def stop(self, name: str) -> None:
        del self.running[name]


def ready_names(page: Object) -> list[str]:
    return [pod["metadata"]["name"] for pod in page["items"] if ready(pod) and not terminating(pod)]


async def until_ready(api: Api, *names: str) -> dict[str, Object]:
    """Exactly these pods are there, all of them ready. By name."""
    page = await api.admin.until(
        api.pods(), lambda page: sorted(ready_names(page)) == sorted(names) and len(page["items"]) == len(names)
    )
    return {pod["metadata"]["name"]: pod for pod in page["items"]}
