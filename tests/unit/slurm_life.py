"""A small model of Slurm's node life for the property tests: power saving, registration, jobs, as measured on real slurmctlds.

Much is left out (partitions, resources, several jobs on a node); what is there follows the measured facts, above all which registrations
slurmctld ignores and which states it never leaves by itself. Times are seconds, and shorter than in life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from copilot.model import Node, Verb
from copilot.plan.wish import RESUME_TIMEOUT_REASON

SUSPEND_TIME = 20.0
SUSPEND_TIMEOUT = 25.0
RESUME_TIMEOUT = 60.0
SILENT_AFTER = 8.0
SLURMD_TIMEOUT = 30.0
REQUEUE_DELAY = 5.0


class Power(Enum):
    OFF = "POWERED_DOWN"
    STARTING = "POWERING_UP"
    ON = ""
    STOPPING = "POWERING_DOWN"


@dataclass(frozen=True, slots=True)
class Daemon:
    """One life of a slurmd: its pod's uid, how often the container had restarted, and when it booted (slurmd -b)."""

    uid: str
    restarts: int
    boot: float


@dataclass(slots=True)
class Job:
    """Runs on all its nodes at once, in the slurmds that were registered when it started; it ends only if all of those still live."""

    size: int
    duration: float
    nodes: list[str] = field(default_factory=list)
    started: float | None = None
    eligible: float = 0.0
    homes: dict[str, Daemon] = field(default_factory=dict)


@dataclass(slots=True)
class Machine:
    """One node record of slurmctld."""

    name: str
    power: Power = Power.OFF
    since: float = 0.0
    requested: float = 0.0
    job: Job | None = None
    daemon: Daemon | None = None
    silent_since: float | None = None
    completing_until: float = 0.0
    idle_since: float = 0.0
    power_down: bool = False
    drained: bool = False
    down: bool = False
    reason: str = ""
    by_admin: bool = False
    listed: bool = True

    def node(self, now: float) -> Node:
        """The line of `scontrol show nodes`."""
        base = "DOWN" if self.down else "ALLOCATED" if self.job else "IDLE"
        silent = self.power is Power.STARTING or (self.silent_since is not None and now - self.silent_since >= SILENT_AFTER)
        flags = {
            "CLOUD": True,
            self.power.value: self.power is not Power.ON,
            "NOT_RESPONDING": silent,
            "COMPLETING": now < self.completing_until,
            "POWER_DOWN": self.power_down,
            "DRAIN": self.drained,
        }
        return Node(self.name, base, frozenset(flag for flag, there in flags.items() if there), self.reason)

    def go(self, power: Power, now: float) -> None:
        self.power, self.since = power, now
        self.silent_since = None
        if power is not Power.ON:
            self.power_down = False


class Slurm:
    """slurmctld: `step` lets time pass, `heard` is a slurmd that knocks, `update` is scontrol. Hooks collect in `hooks`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.machines = {name: Machine(name) for name in names}
        self.jobs: list[Job] = []
        self.hooks: list[tuple[Verb, tuple[str, ...]]] = []
        self.relapsed: set[Daemon] = set()

    def view(self, now: float) -> dict[str, Node]:
        return {name: machine.node(now) for name, machine in self.machines.items() if machine.listed}

    def submit(self, size: int, duration: float) -> Job:
        job = Job(size, duration)
        self.jobs.append(job)
        return job

    def cancel(self, job: Job, now: float) -> None:
        self._free(job, now)
        if job in self.jobs:
            self.jobs.remove(job)

    def healthy(self, alive: Mapping[str, Daemon]) -> frozenset[str]:
        """Nodes on which a job runs in the slurmd that it was started in.

        Not counted is a slurmd that came under a node that was allocated already, but whose job still waited for other nodes: no field of the
        node tells that from a slurmd that came under a running job.
        """
        homes = [(name, home) for job in self.jobs for name, home in job.homes.items()]
        return frozenset(name for name, home in homes if alive.get(name) == home and home not in self.relapsed)

    def step(self, now: float, alive: Mapping[str, Daemon]) -> None:
        """One second or less of slurmctld's life. `alive` are the slurmds that run, by node."""
        for machine in self.machines.values():
            self._power(machine, now)
            self._ping(machine, now, alive)
        self._hook(
            Verb.RESUME, now, [machine for machine in self.machines.values() if machine.job and machine.power is Power.OFF]
        )
        for job in list(self.jobs):
            self._job(job, now, alive)

    def _hook(self, verb: Verb, now: float, machines: list[Machine]) -> None:
        """One power scan: all its nodes in one call."""
        for machine in machines:
            machine.go(Power.STARTING if verb is Verb.RESUME else Power.STOPPING, now)
            machine.requested = now
        if machines:
            self.hooks.append((verb, tuple(machine.name for machine in machines)))

    def _power(self, machine: Machine, now: float) -> None:
        if machine.power is Power.STARTING and now - machine.requested > RESUME_TIMEOUT:
            # slurmctld lifts even an administrator's drain here (measured on 22.05), and overwrites the reason
            machine.go(Power.OFF, now)
            machine.down, machine.drained, machine.reason = True, False, f"{RESUME_TIMEOUT_REASON} [slurm@1]"
            self._requeue(machine, now)
            self.hooks.append((Verb.RESUME_FAIL, (machine.name,)))
        elif machine.power is Power.STOPPING and now - machine.since > SUSPEND_TIMEOUT:
            machine.go(Power.OFF, now)
            machine.down = machine.down and machine.by_admin
        elif self._suspendable(machine, now):
            self._hook(Verb.SUSPEND, now, [machine])

    def _suspendable(self, machine: Machine, now: float) -> bool:
        if machine.power is not Power.ON or machine.job or now < machine.completing_until:
            return False
        return machine.power_down or now - machine.idle_since > SUSPEND_TIME

    def _ping(self, machine: Machine, now: float, alive: Mapping[str, Daemon]) -> None:
        if machine.power is not Power.ON or machine.down:
            return
        if alive.get(machine.name) == machine.daemon:
            machine.silent_since = None
        elif machine.silent_since is None:
            machine.silent_since = now
        elif now - machine.silent_since > SLURMD_TIMEOUT:
            machine.down, machine.reason = True, "Not responding [slurm@1]"
            self._requeue(machine, now)

    def heard(self, name: str, daemon: Daemon, now: float, first: bool) -> None:
        """A slurmd knocks: `first` when it has just started, else because it is still waiting to be accepted."""
        machine = self.machines[name]
        if (
            not machine.listed
            or machine.power is Power.STOPPING
            or (machine.daemon == daemon and machine.power is Power.ON and not machine.down)
        ):
            return
        if machine.power is Power.STARTING and daemon.boot < machine.requested:
            return
        if machine.power is Power.OFF and not first:
            return
        if machine.power is not Power.ON:
            machine.go(Power.ON, now)
            machine.idle_since = now
        elif machine.down:
            machine.idle_since = now
        elif machine.job:
            self.relapsed.add(daemon)
        machine.daemon, machine.down, machine.by_admin, machine.silent_since = daemon, False, False, None

    def _job(self, job: Job, now: float, alive: Mapping[str, Daemon]) -> None:
        mine = [self.machines[name] for name in job.nodes]
        if not mine:
            free = [machine for machine in self.machines.values() if self._usable(machine, now)]
            if len(free) >= job.size and now >= job.eligible:
                # those that are on come first, as a scheduler with weights would
                chosen = sorted(free, key=lambda machine: machine.power is not Power.ON)[: job.size]
                job.nodes = [machine.name for machine in chosen]
                for machine in chosen:
                    machine.job = job
        elif job.started is None:
            if all(machine.power is Power.ON and machine.silent_since is None for machine in mine):
                job.started = now
                job.homes = {machine.name: machine.daemon for machine in mine if machine.daemon}
        elif now - job.started > job.duration and all(alive.get(name) == home for name, home in job.homes.items()):
            self.cancel(job, now)
            for machine in mine:
                machine.completing_until = now + 2

    def _usable(self, machine: Machine, now: float) -> bool:
        return (
            machine.listed
            and machine.power in (Power.OFF, Power.ON)
            and not (machine.job or machine.down or machine.drained or machine.power_down or machine.silent_since)
            and now >= machine.completing_until
        )

    def _free(self, job: Job, now: float) -> None:
        for name in job.nodes:
            self.machines[name].job = None
            self.machines[name].idle_since = now
        job.nodes, job.started, job.homes = [], None, {}

    def _requeue(self, machine: Machine, now: float) -> None:
        if machine.job:
            machine.job.eligible = now + REQUEUE_DELAY
            self._free(machine.job, now)

    def update(self, state: str, name: str, reason: str, now: float) -> None:
        """scontrol update nodename=... state=..., for the verbs that the copilot and the administrators of these tests use."""
        machine = self.machines[name]
        if state == "resume":
            if machine.power is Power.STARTING:
                return  # "Invalid node state specified"
            machine.drained = machine.down = machine.by_admin = False
            if machine.power is Power.STOPPING:
                machine.go(Power.OFF, now)
        elif state == "power_down_force":
            self._requeue(machine, now)
            machine.drained = machine.down = machine.by_admin = False
            machine.reason = reason
            self._hook(Verb.SUSPEND, now, [machine])
        elif state == "down":
            self._requeue(machine, now)
            # a node that powers up stays DOWN+POWERING_UP (measured on 22.05)
            machine.down, machine.reason, machine.by_admin = True, reason, not reason.startswith("copilot: ")
        elif state == "drain":
            machine.drained, machine.reason = True, reason
            if machine.power is Power.STARTING:
                self._requeue(machine, now)
        elif state == "":
            machine.reason = reason
        else:
            raise AssertionError(f"no such verb here: {state}")

    def crash(self, now: float, lost: float) -> None:
        """kill -9 and a restart: what happened in the last `lost` seconds is forgotten, though the hook has run."""
        for machine in self.machines.values():
            if machine.power is Power.STARTING and now - machine.since <= lost:
                machine.go(Power.OFF, now)
