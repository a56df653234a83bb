"""Makes one target say what is wanted: one patch at a time, computed anew from the newest object, until it does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import structlog

from copilot import targets
from copilot.config import Settings
from copilot.hostlist import fold
from copilot.kube import Conflict, Kube, KubeError, Refused, Unavailable
from copilot.model import Kind, Target, TargetRef
from copilot.plan import Unpatched
from copilot.reconcile.orders import ORDER_GRACE, Orders
from copilot.telemetry import Metrics, PatchOutcome

Wanted = Mapping[str, frozenset[int]]
Existing = Mapping[str, AbstractSet[int]]
_log = structlog.get_logger()
# A server that takes a patch but does not keep what it says (a field unknown to its version) is not asked again for so long.
_IGNORED_PAUSE = 30.0
_PATCH_CURE = "tried again with growing pauses; if it stays so: slurmctld-copilot check tells missing rights, the error a policy that refuses"


class Writer:
    """One target. `observe` brings objects, `want` the wish; `run` does the rest for ever.

    `observe` and `want` never wait; a wish that is replaced before it was sent is simply not sent, so any number of hints within
    `coalesce` seconds after a patch become one patch.
    """

    def __init__(
        self,
        ref: TargetRef,
        kube: Kube,
        settings: Settings,
        clock: Callable[[], float],
        metrics: Metrics,
        ordinals: Callable[[], bool],
    ) -> None:
        self.ref = ref
        self.object: dict[str, Any] = {}
        self.target: Target | None = None
        self.problem = ""
        # while the API server answers our patches with a refusal: since when, and its words
        self.refused: Unpatched | None = None
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._ordinals = ordinals
        self._wanted: Wanted = {}
        self._existing: Existing = {}
        # What the last accepted patch said, for the kind whose object alone does not tell (SlurmCluster).
        self._said: Wanted = {}
        self._orders = Orders(ref.kind, clock)
        self._patched_at = float("-inf")
        self._unjudged = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._hurry = asyncio.Event()

    def observe(self, obj: dict[str, Any]) -> None:
        """An object as listed, watched or returned. An older generation of the same object is passed over."""
        target = targets.read(self.ref.kind, obj)
        if self.target is not None and target.uid == self.target.uid and target.generation < self.target.generation:
            return
        if self.target is None or target.uid != self.target.uid:
            self._said = {}
            self._orders = Orders(self.ref.kind, self._clock)
            for warning in target.warnings:
                _log.warning("target_warning", target=str(self.ref), problem=warning)
        self.object, self.target = obj, target
        # Acted on with the next decision, which has seen it: what somebody else scaled up is an orphan, with a grace, not a mistake of ours.
        self._unjudged = True

    def want(self, wanted: Wanted, existing: Existing) -> None:
        """What the decision says now: indexes by group, and those that have a pod."""
        if self._unjudged or wanted != self._wanted or existing != self._existing:
            self._wanted, self._existing, self._unjudged = wanted, existing, False
            self._idle.clear()
            self._changed.set()

    def covers(self, group: str) -> frozenset[int]:
        """The indexes whose pods the target is bound to run, as far as is known."""
        for state in self.target.states if self.target else ():
            if state.group.name == group and state.covers is not None:
                return frozenset(state.covers)
        return self._said.get(group, frozenset())

    async def run(self) -> None:
        """Never returns, and never raises because of the API server."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._idle.clear()
            await self._converge()
            if self._orders.outstanding:
                # an order that was taken off the list and led to nothing is given again
                asyncio.get_running_loop().call_later(ORDER_GRACE, self._changed.set)
            if not self._changed.is_set():
                self._idle.set()

    async def finish(self) -> None:
        """Sends what is still to be sent without waiting for more hints; returns when the target says it. The caller bounds it."""
        self._hurry.set()
        self._changed.set()
        self._idle.clear()
        await self._idle.wait()

    async def _converge(self) -> None:
        failures = 0
        while operations := self._operations():
            pause = self._patched_at + self._settings.coalesce - self._clock()
            if pause > 0 and not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause)
                continue
            pause = await self._patch(operations, failures)
            failures = failures + 1 if pause else 0
            await asyncio.sleep(pause)

    def _operations(self) -> list[dict[str, Any]]:
        if self.target is None or self.target.deleting:
            return []
        existing = self._orders.fulfilled(self.object, self._wanted, self._existing)
        operations = targets.patch(self.ref.kind, self.object, self._wanted, existing, self._ordinals())
        if not operations:
            self._said, self.problem, self.refused = self._wanted, "", None
        return operations

    async def _patch(self, operations: list[dict[str, Any]], failures: int) -> float:
        """Sends one patch; returns the seconds to wait before the next look at the target, 0 when it was accepted."""
        wanted, began = self._wanted, self._clock()
        try:
            obj = await self._kube.patch(targets.path(self.ref), operations)
        except Conflict as error:
            return await self._conflict(error, failures)
        except Refused as error:
            return self._failed(PatchOutcome.REJECTED, error, failures)
        except Unavailable as error:
            # Whether the patch was applied is unknown: the object is read again before anything else is said.
            await self._read()
            return self._failed(PatchOutcome.ERROR, error, failures)
        self._patched_at = self._clock()
        self.observe(obj)
        if not targets.says(self.ref.kind, obj, wanted):
            words = "the server took the patch but did not keep it: check the version of the target's API (reserveOrdinals needs v1beta1)"
            return self._failed(PatchOutcome.REJECTED, Refused(words), failures, at_least=_IGNORED_PAUSE)
        self._count_drift(wanted)
        self._accepted(wanted, self._patched_at - began)
        return 0.0

    def _count_drift(self, wanted: Wanted) -> None:
        """A target that had said what is still wanted was changed by somebody else. A SlurmCluster's operator clears its lists by rights."""
        if wanted == self._said and self.ref.kind is not Kind.SLURM_CLUSTER:
            for group in wanted:
                self._metrics.drift_repaired(group)

    def _accepted(self, wanted: Wanted, seconds: float) -> None:
        self._said, self.problem, self.refused = wanted, "", None
        self._orders.gave(self.object)
        self._count(PatchOutcome.ACCEPTED)
        nodes = fold(f"{group}-{index}" for group, indexes in wanted.items() for index in indexes)
        _log.info(
            "target_patched", target=str(self.ref), wanted=nodes, count=sum(map(len, wanted.values())), seconds=round(seconds, 4)
        )

    async def _conflict(self, error: Conflict, failures: int) -> float:
        """Somebody else wrote first: read and compute again. If nobody did, the patch itself is refused, by an admission policy say."""
        before = self.target
        self._count(PatchOutcome.CONFLICT)
        read = await self._read()
        if (
            read
            and before is not None
            and self.target is not None
            and (self.target.uid, self.target.generation) == (before.uid, before.generation)
        ):
            return self._failed(PatchOutcome.REJECTED, error, failures)
        return random.uniform(0.01, 0.05) * (failures + 1)  # noqa: S311 - jitter

    async def _read(self) -> bool:
        try:
            self.observe(await self._kube.get(targets.path(self.ref)))
        except KubeError:
            return False  # the watch or the next attempt will tell
        return True

    def _failed(self, outcome: PatchOutcome, error: KubeError, failures: int, at_least: float = 1.0) -> float:
        """Said once for each new cause; the pauses grow, so a dead API server is asked at most once a second."""
        if str(error) != self.problem:
            _log.error("target_patch_failed", target=str(self.ref), outcome=outcome, error=str(error), cure=_PATCH_CURE)
        self.problem = str(error)
        if isinstance(error, Refused | Conflict):
            since = self.refused.since if self.refused else self._clock()
            self.refused = Unpatched(since, self.problem, admission=_by_admission(self.problem))
        if outcome is not PatchOutcome.CONFLICT:
            self._count(outcome)
        retry_after = error.retry_after if isinstance(error, Unavailable) and error.retry_after else 0.0
        pause = max(at_least, retry_after, min(2.0**failures, self._settings.retry_max))
        return pause * random.uniform(1.0, 1.2)  # noqa: S311 - jitter

    def _count(self, outcome: PatchOutcome) -> None:
        for group in self.target.groups if self.target else ():
            self._metrics.patch(group.name, outcome)


def _by_admission(words: str) -> bool:
    """Whether a webhook or a policy refused, not a missing right."""
    return "admission webhook" in words or "ValidatingAdmissionPolicy" in words
