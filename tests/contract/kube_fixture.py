"""A Kube with exactly the rights of the manifests' Role, against either server, and a way to wait for what happens in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from copilot.kube import Kube, Reflector
from tests.contract.conftest import Api

Seen = list[tuple[str, str]]


@asynccontextmanager
async def kube_of(api: Api) -> AsyncIterator[tuple[Kube, Seen]]:
    """With it, what the observer was told: verb and error of every request."""
    seen: Seen = []
    kubeconfig = await api.server.kubeconfig(api.namespace)
    kube = await Kube.connect(kubeconfig=kubeconfig, observe=lambda verb, _, error: seen.append((verb, error)))
    try:
        yield kube, seen
    finally:
        await kube.close()


def name_and_labels(obj: dict[str, Any], _before: object) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


@asynccontextmanager
async def running(reflector: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
        assert not task.done(), "a reflector never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any], what: str, within: float = 20.0) -> None:
    """Asks every 10 ms; AssertionError after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - it is about a whole program, not about one event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within} s: {what}") from None
