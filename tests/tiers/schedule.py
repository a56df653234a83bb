"""Runs tiers side by side with the installations they wait for."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.tiers.outcome import NOTHING_CHOSEN, UNAVAILABLE, Ended, Outcome, failed, judge, last_sentence, merged, skipped, tail
from tests.tiers.processes import run
from tests.tiers.table import TREE, Tier, choose, parts_of

INSTALL_LIMIT: Final = 3000.0  # seconds; a cold build of the control plane takes 7 minutes on two idle cores
_INSTALLS_AT_ONCE: Final = 2
_PROGRESS_SECONDS: Final = 30.0


class Schedule:
    """`jobs` tiers at once at most; `logs` keeps one log per tier and installation; `scratch` takes what only this run needs."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        jobs: int,
        logs: Path,
        scratch: Path,
        say: Callable[[str], None],
        extra: Sequence[str] = (),
    ) -> None:
        self._waiting = list(tiers)
        self._jobs = jobs
        self._logs = logs
        self._scratch = scratch
        self._print = say
        self._extra = tuple(extra)
        self._begin = self._said = time.monotonic()
        self._gate = asyncio.Semaphore(_INSTALLS_AT_ONCE)
        self._installed: dict[str, Ended] = {}
        self._since: dict[str, float] = {}  # what runs now, and since when
        self._running: dict[str, Tier] = {}
        self._outcomes: list[Outcome] = []

    async def run(self) -> list[Outcome]:
        """The outcomes, in the order in which the tiers ended. Cancelled, it ends everything it started."""
        async with asyncio.TaskGroup() as group:
            pending: set[asyncio.Task[None]] = {group.create_task(self._install(part)) for part in parts_of(self._waiting)}
            while True:
                self._drop_impossible()
                while len(self._running) < self._jobs and (tier := choose(self._ready(), self._running.values())):
                    self._waiting.remove(tier)
                    self._running[tier.name] = tier
                    pending.add(group.create_task(self._run_tier(tier)))
                if not self._waiting and not self._running:
                    break
                quiet = self._said + _PROGRESS_SECONDS - time.monotonic()
                _, pending = await asyncio.wait(pending, timeout=max(quiet, 0.1), return_when=asyncio.FIRST_COMPLETED)
                if time.monotonic() >= self._said + _PROGRESS_SECONDS:
                    self._say(self._progress())
            for task in pending:  # only wanted by tiers that failed before it was there
                task.cancel()
        return self._outcomes

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._print(f"[{self._said - self._begin:5.0f} s] {text}")

    def _progress(self) -> str:
        now = time.monotonic()
        runs = ", ".join(f"{name} ({now - since:.0f} s)" for name, since in self._since.items())
        waits = ", ".join(tier.name for tier in self._waiting)
        return f"... at work: {runs or 'nothing'}" + (f"; waiting: {waits}" if waits else "")

    def _ready(self) -> list[Tier]:
        return [tier for tier in self._waiting if all(part in self._installed for part in (*tier.needs, *tier.wants))]

    def _drop_impossible(self) -> None:
        """Tiers that will never run are told at once: their tests are not written, or a part of theirs is not to be had."""
        for tier in list(self._waiting):
            outcome = self._impossible(tier)
            if outcome:
                self._waiting.remove(tier)
                self._ended(outcome)

    def _impossible(self, tier: Tier) -> Outcome | None:
        if not tier.there():
            return failed(tier.name, f"{tier.target} is not there")
        for part in tier.needs:
            ended = self._installed.get(part)
            if ended is None or ended.code == 0:
                continue  # still at it, or there
            if ended.code == UNAVAILABLE:
                return skipped(tier.name, last_sentence(ended.log))
            return failed(tier.name, f"{part} could not be installed, see {ended.log}", tail(ended.log))
        return None

    async def _install(self, part: str) -> None:
        async with self._gate:
            self._since[f"install {part}"] = time.monotonic()
            ended = await run(("tests/lab/install", part), self._logs / f"install-{part}.log", INSTALL_LIMIT)
            del self._since[f"install {part}"]
        self._installed[part] = ended
        if ended.code is None:
            self._say(f"install {part}: stopped at its limit of {INSTALL_LIMIT:.0f} s")
        elif ended.code:
            self._say(f"install {part}: {last_sentence(ended.log)}")
        elif ended.seconds > 1:
            self._say(f"install {part}: ready after {ended.seconds:.0f} s")

    async def _run_tier(self, tier: Tier) -> None:
        log = self._logs / f"{tier.name}.log"
        self._say(f"{tier.name} starts, log in {os.path.relpath(self._logs)}/{tier.name}.log")
        self._since[tier.name] = time.monotonic()
        try:
            outcome = await (self._run_modules(tier, log) if tier.modules_at_once else self._run_whole(tier, log))
        finally:
            del self._since[tier.name], self._running[tier.name]
        self._ended(outcome)

    async def _run_whole(self, tier: Tier, log: Path) -> Outcome:
        report = self._scratch / f"{tier.name}.xml" if tier.folder else None
        ended = await run(self._command(tier, tier.target, report), log, tier.limit, tier.env)
        return judge(tier.name, ended, tier.limit, report)

    async def _run_modules(self, tier: Tier, log: Path) -> Outcome:
        """Each module of the folder in namespaces of its own, the largest first, so that none goes on alone for long.

        The log has their logs, in the order in which they ended.
        """
        begin, gate = time.monotonic(), asyncio.Semaphore(tier.modules_at_once)
        log.write_bytes(b"")

        async def one(module: Path) -> Outcome:
            report, part = (self._scratch / f"{tier.name}-{module.stem}.{kind}" for kind in ("xml", "log"))
            async with gate:
                left = max(begin + tier.limit - time.monotonic(), 1.0)
                try:
                    ended = await run(self._command(tier, os.fspath(module), report), part, left, tier.env)
                finally:
                    with log.open("ab") as whole:
                        whole.write(f"==> {module.name}\n".encode() + (part.read_bytes() if part.exists() else b""))
            return Outcome(tier.name) if ended.code == NOTHING_CHOSEN else judge(tier.name, ended, tier.limit, report)

        async with asyncio.TaskGroup() as group:
            modules = sorted((TREE / tier.target).glob("test_*.py"), key=lambda each: each.stat().st_size, reverse=True)
            runs = {each.stem: group.create_task(one(each)) for each in modules}
        return merged(tier.name, {name: each.result() for name, each in runs.items()}, time.monotonic() - begin)

    def _command(self, tier: Tier, target: str, report: Path | None) -> list[str]:
        prefix = [os.fspath(TREE / "tests/lab/isolated")] if tier.isolated else []
        if report is None:
            return [*prefix, sys.executable, "-m", target]
        # Several run in one tree at once: no cache of pytest's, and temporary folders of their own.
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={report.with_suffix('.tmp')}", f"--junit-xml={report}"]
        return [*prefix, sys.executable, "-m", "pytest", *options, *self._extra, target]

    def _ended(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        why = f" ({outcome.reason})" if outcome.reason else ""
        self._say(f"{outcome.tier} {outcome.result}: {outcome.counts} in {outcome.seconds:.0f} s{why}")
        for line in outcome.told:
            self._say(line)
