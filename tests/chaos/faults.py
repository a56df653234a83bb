"""What goes wrong with the daemons and between them."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final

from tests.chaos import operations as ops
from tests.chaos.history import Span
from tests.chaos.operations import Operation, Sort
from tests.chaos.scene import Scene
from tests.e2e.hook_script import instead
from tests.lab.cluster import NAMESPACE
from tests.lab.embedded import Action, EmbeddedServer
from tests.lab.endpoint import resource

Act = Callable[[Scene, Operation], Awaitable[None]]
_HOOKS: Final = ("slurm-resume.sh", "slurm-suspend.sh")
# The scaling objects themselves: their status is what the lab's controllers write.
_TARGETS: Final = "(statefulsets|slurmclusters)/[^/]+$"
_ARMED: Final = 10.0  # seconds for which a fault waits for requests to strike


async def kill_copilot(scene: Scene, op: Operation) -> None:
    with scene.trouble(op, "copilot"):
        await scene.cluster.copilot.stop(kill=True)
        await scene.last(op.seconds)
        await scene.cluster.copilot.start(ready=False)


async def stop_copilot(scene: Scene, op: Operation) -> None:
    with scene.trouble(op, "copilot"):
        code = await scene.cluster.copilot.stop()
        # By the signal itself: it had only just been started, and had not come to taking signals.
        if code not in (0, -signal.SIGTERM):
            scene.history.faults.append((scene.now, f"told to stop, the copilot ended with {code}"))
        await scene.last(op.seconds)
        await scene.cluster.copilot.start(ready=False)


async def freeze_copilot(scene: Scene, op: Operation) -> None:
    with scene.trouble(op, "copilot"):
        scene.cluster.copilot.freeze()
        try:
            await scene.last(op.seconds)
        finally:
            scene.cluster.copilot.thaw()


async def freeze_slurmctld(scene: Scene, op: Operation) -> None:
    with scene.trouble(op, "slurmctld"):
        scene.cluster.slurm.freeze()
        try:
            await scene.last(op.seconds)
        finally:
            scene.cluster.slurm.thaw()


async def restart_slurmctld(scene: Scene, op: Operation) -> None:
    """One that is deaf is killed in the end, as by a kubelet: 24.11 tries each name that does not resolve for ten seconds under its locks."""
    with scene.trouble(op, "slurmctld"):
        begun = scene.now
        if await scene.cluster.slurm.stop_slurmctld():
            scene.history.spans.append(Span(begun, scene.now, "slurmctld was deaf and had to be killed", harm=True, forgets=True))
        await scene.cluster.slurm.start_slurmctld()


async def kill_slurmctld(scene: Scene, op: Operation) -> None:
    """It comes back with what it last wrote, which may be seconds old."""
    with scene.trouble(op, "slurmctld", forgets=True):
        await scene.cluster.slurm.stop_slurmctld(kill=True)
        await scene.last(op.seconds)
        await scene.cluster.slurm.start_slurmctld()


async def api_away(scene: Scene, op: Operation) -> None:
    with scene.trouble(op, "api"):
        async with scene.cluster.api_away():
            await scene.last(op.seconds)
        revive(scene)


async def etcd_away(scene: Scene, op: Operation) -> None:
    plane = scene.cluster.plane
    assert plane is not None
    with scene.trouble(op, "api"):
        await plane.kill_component("etcd")
        await scene.last(op.seconds)
        await plane.start_component("etcd")
        revive(scene)


async def full_quota(scene: Scene, op: Operation) -> None:
    """No pod more than there are."""
    path = resource("v1", "resourcequotas", NAMESPACE)
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
    with scene.trouble(op, "quota"):
        await scene.cluster.admin.post(path, body | {"spec": {"hard": {"pods": str(len(await scene.cluster.pods()))}}})
        try:
            await scene.last(op.seconds)
        finally:
            await scene.cluster.admin.delete(f"{path}/full")


async def step_clock(scene: Scene, op: Operation) -> None:
    """And back."""
    clock = scene.cluster.clock
    assert clock is not None
    with scene.trouble(op, "clock"):
        clock.step(op.count)
        await scene.last(op.seconds)
        clock.step(0.0)


def revive(scene: Scene) -> None:
    """Starts what has given up meanwhile, as kubelet does with static pods: a scheduler ends itself when its server forgets a binding."""
    for component in scene.cluster.plane.components.values() if scene.cluster.plane is not None else ():
        if not component.running:
            component.start()


async def lose_hooks(scene: Scene, op: Operation) -> None:
    await _hooks(scene, op, "exit 1")


async def double_hooks(scene: Scene, op: Operation) -> None:
    await _hooks(scene, op, '"$real" "$1"; "$real" "$1"')


async def _hooks(scene: Scene, op: Operation, body: str) -> None:
    with scene.trouble(op, "hooks"), ExitStack() as stack:
        for name in _HOOKS:
            stack.enter_context(instead(scene.cluster, name, body))
        await scene.last(op.seconds)


async def cut(scene: Scene, op: Operation) -> None:
    with scene.trouble(op):
        _server(scene).cut_connections()


def striking(action: Action, verb: str, path: str = "") -> Act:
    """An act that lets the next `count` such requests be struck, or all of `seconds`."""

    async def act(scene: Scene, op: Operation) -> None:
        given: dict[str, Any] = {"times": op.count, "status": op.status or 500, "seconds": op.seconds}
        if op.status == 429:
            given["retry_after"] = 1
        faults = _server(scene).faults
        with scene.trouble(op):
            fault = faults.add(action, verb=verb, path=path, **given)
            try:
                await scene.last(op.seconds or _ARMED)
            finally:
                faults.remove(fault)

    return act


def _server(scene: Scene) -> EmbeddedServer:
    assert scene.cluster.embedded is not None
    return scene.cluster.embedded


FAULTS: Final[dict[Sort, Act]] = {
    ops.KILL_COPILOT: kill_copilot,
    ops.STOP_COPILOT: stop_copilot,
    ops.FREEZE_COPILOT: freeze_copilot,
    ops.FREEZE_SLURMCTLD: freeze_slurmctld,
    ops.RESTART_SLURMCTLD: restart_slurmctld,
    ops.KILL_SLURMCTLD: kill_slurmctld,
    ops.API_AWAY: api_away,
    ops.ETCD_AWAY: etcd_away,
    ops.FULL_QUOTA: full_quota,
    ops.STEP_CLOCK: step_clock,
    ops.LOSE_HOOKS: lose_hooks,
    ops.DOUBLE_HOOKS: double_hooks,
    ops.CUT: cut,
    ops.CUT_WATCH: striking(Action.CUT_WATCH, "watch"),
    ops.GONE_WATCH: striking(Action.GONE, "watch"),
    ops.REFUSE_PATCH: striking(Action.STATUS, "patch", _TARGETS),
    ops.REFUSE_ALL: striking(Action.STATUS, "get|list|watch|patch|delete"),
    ops.SLOW: striking(Action.SLOW, "patch", _TARGETS),
    ops.HANG: striking(Action.HANG, "patch", _TARGETS),
    ops.LOSE_ANSWER: striking(Action.RESET_AFTER, "patch", _TARGETS),
    ops.LOSE_PATCH: striking(Action.RESET_BEFORE, "patch", _TARGETS),
}
