"""What the kubelet's part does for a pod: a real slurmd of the lab, as it should be or with one of the faults that containers have."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.lab.endpoint import Object
from tests.lab.slurm import SlurmLab


class Containers:
    """The callbacks of `Kubelet`. `before_stop(name)` is asked before a container is ended.

    `without_boot`: nodes whose slurmd is started without -b. `mute`: nodes whose container runs but whose slurmd never starts, so that
    they cannot register, until `speak`. `held`: nodes whose container is not started until `release`.
    `reports`: what the slurmd of a node says that its machine has, in words of slurm.conf ("CPUs=1 RealMemory=1000").
    `starts` counts the containers that were started, by node.
    """

    def __init__(self, slurm: SlurmLab, before_stop: Callable[[str], Awaitable[None]]) -> None:
        self._slurm = slurm
        self._before_stop = before_stop
        self.without_boot: set[str] = set()
        self.mute: set[str] = set()
        self.reports: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._silent: set[str] = set()
        self.arrived: dict[str, asyncio.Event] = {}

    def mend(self) -> None:
        """All that a test asked for is over: what is held starts, and later containers are as they should be."""
        self.release()
        self.mute.clear()
        self.without_boot.clear()
        self.reports.clear()

    def hold(self, *names: str) -> None:
        """The next containers of these nodes are not started before `release`."""
        for name in names:
            self._held[name] = asyncio.Event()
            self.arrived[name] = asyncio.Event()

    def release(self, *names: str) -> None:
        """Lets the containers of these nodes start; without names, all that are held."""
        for name in names or list(self._held):
            self._held.pop(name).set()

    async def speak(self, name: str) -> None:
        """Starts the slurmd of a mute node whose container runs, and of later ones at once."""
        self.mute.discard(name)
        if name in self._silent:
            self._silent.discard(name)
            await self._start(name)

    async def start(self, name: str, _pod: Object) -> str:
        if (gate := self._held.get(name)) is not None:
            self.arrived[name].set()
            await gate.wait()
        self.starts[name] = self.starts.get(name, 0) + 1
        if name in self.mute:
            self._silent.add(name)
            return "10.77.255.254"
        return await self._start(name)

    async def _start(self, name: str) -> str:
        return await self._slurm.start_node(name, boot=name not in self.without_boot, reports=self.reports.get(name, ""))

    async def stop(self, name: str) -> None:
        await self._before_stop(name)
        self._silent.discard(name)
        await self._slurm.stop_node(name)
