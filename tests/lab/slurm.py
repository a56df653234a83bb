"""A real slurmctld with real slurmds, each worker in namespaces of its own, joined to the bridge of `tests/lab/isolated`.

Everything a lab writes is in its folder, so several labs can use one installed Slurm at once. Versions from a cached Debian root
are entered by chroot: the root is bound over itself read-only inside the private mount namespace, so nobody else sees or changes it.
Where namespaces are not to be had (`namespaces=False`) the workers are slurmds on one loopback port each; 22.05 only.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab.clock import Clock
from tests.lab.roots import bind
from tests.lab.slurm_commands import COMMANDS, Done, LabError, SlurmCommands, end, environment_of, pids
from tests.lab.slurm_conf import DEFAULT_WORKERS, HEAD_ADDRESS, HEAD_NAME, ROOTS, Network, Workers, render

HERE = Path(__file__).resolve().parent
# Of this process: an address that a worker of an earlier lab had may still be known by its old neighbour entry.
_STARTS = itertools.count(1)

__all__ = ["DEFAULT_WORKERS", "Done", "LabError", "SlurmLab", "Workers", "cache_folder", "free_ports"]


def cache_folder() -> Path:
    """Where tests/lab/install keeps what it made."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("COPILOT_CACHE") or f"{home}/slurmctld-copilot")


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class SlurmLab(SlurmCommands):
    """One Slurm cluster. `hooks` maps slurm.conf keys (ResumeProgram, ...) to scripts, which are copied to where SlurmUser may run them."""

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        workers: Sequence[Workers] = DEFAULT_WORKERS,
        lines: Sequence[str] = (),
        options: Mapping[str, str | None] | None = None,
        hooks: Mapping[str, Path] | None = None,
        namespaces: bool = True,
        unhurried: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if version not in ROOTS:
            raise ValueError(f"no Slurm {version} in the lab, only {', '.join(ROOTS)}")
        if folder.parts[:2] != ("/", "tmp"):
            raise ValueError(f"{folder}: the lab's folder must be under /tmp, which SlurmUser can reach and the roots share")
        if namespaces and os.environ.get("COPILOT_ISOLATED") != "1":
            raise LabError("run this inside tests/lab/isolated, or ask for namespaces=False")
        if ROOTS[version] and not namespaces:
            raise ValueError(f"Slurm {version} runs in a root of its own, which needs namespaces")
        self.version, self.workers, self.namespaces, self.unhurried = version, tuple(workers), namespaces, unhurried
        self._clock = clock
        super().__init__(cache_folder() / ROOTS[version] if ROOTS[version] else Path("/"), folder)
        self.lines, self.options, self.hooks = tuple(lines), dict(options or {}), dict(hooks or {})
        self.network = self._network()
        self._controller: asyncio.subprocess.Process | None = None
        self._munged: asyncio.subprocess.Process | None = None
        self._nodes: dict[str, asyncio.subprocess.Process] = {}

    def _network(self) -> Network:
        if self.namespaces:
            return Network(HEAD_NAME, HEAD_ADDRESS)
        names = [name for group in self.workers for name in group.nodes]
        controller, *ports = free_ports(len(names) + 1)
        return Network(socket.gethostname().split(".")[0], "127.0.0.1", controller, dict(zip(names, ports, strict=True)))

    # Life of the cluster

    async def start(self, *, controller: bool = True) -> None:
        """Writes the configuration and starts munged and slurmctld; returns when slurmctld answers."""
        if self.root != Path("/"):
            if not (self.root / "usr/sbin/slurmctld").exists():
                raise LabError(f"{self.root} has no Slurm: run tests/lab/install slurm-{self.version}")
            await bind(self.root)
        self._make_folder()
        self.configure()
        munge = self.folder / "munge"
        argv = [
            "/usr/sbin/munged",
            "--foreground",
            f"--key-file={munge}/key",
            f"--socket={munge}/socket",
            f"--pid-file={munge}/pid",
        ]
        argv += [f"--log-file={munge}/log", f"--seed-file={munge}/seed"]
        self._munged = await self._spawn("munged", argv)
        await self.wait_for("munged's socket", self._munge_ready, bool)
        if self.namespaces and (self.version == "22.05" or sum(len(group.nodes) for group in self.workers) > 100):
            self._name_workers()
        if controller:
            await self.start_slurmctld()

    async def stop(self) -> None:
        """Ends every process of the lab. The folder stays, for its logs."""
        for name in list(self._nodes):
            await self.stop_node(name)
        await self.stop_slurmctld()
        if self._munged:
            await end(self._munged, signal.SIGTERM)
        self._munged = None
        if not self.namespaces:
            self._kill_left_behind("")

    def _name_workers(self) -> None:
        """Makes every worker's name resolve, to an address that nobody has; slurmd's registration brings the right one.

        22.05 holds its locks while it tries each unknown name for 10 s (a job cancelled while POWERING_UP is enough); 24.11 was seen to
        try ten times, a second apart, when a thousand nodes were set IDLE.
        /etc/hosts is a file of the namespaces' own.
        """
        names = [name for group in self.workers for name in group.nodes]
        with Path("/etc/hosts").open("a") as hosts:
            hosts.writelines(f"10.77.{200 + number // 250}.{2 + number % 250} {name}\n" for number, name in enumerate(names))

    async def _munge_ready(self) -> bool:
        return (self.folder / "munge/socket").exists()

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in ("etc", "etc/node", "bin", "hooks", "munge", "spool", "state", "log", "run"):
            (self.folder / name).mkdir(mode=0o755, exist_ok=True)
        for name in ("state", "log", "run"):
            shutil.chown(self.folder / name, "slurm", "slurm")
        key = self.folder / "munge/key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(64))
        for command in COMMANDS:
            script = self.folder / "bin" / command
            script.write_text(f'#!/bin/sh\nexec /usr/sbin/chroot {self.root} /usr/bin/{command} "$@"\n')
            script.chmod(0o755)

    def configure(self, **options: str | None) -> None:
        """Writes slurm.conf and the hooks anew, with further options; slurmctld sees it at its next start or `scontrol reconfigure`."""
        self.options |= options
        merged = dict(self.options)
        for key, source in self.hooks.items():
            target = self.folder / "hooks" / source.name
            shutil.copyfile(source, target)
            target.chmod(0o755)
            merged.setdefault(key, str(target))
        self._merged = merged
        text = render(self.version, self.folder, self.network, self.workers, self.lines, merged)
        self.conf_path.write_text(text)
        for folder in (self.folder / "etc", self.folder / "etc/node"):
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n" if self.root != Path("/") else "")
        self._node_conf("")

    def _node_conf(self, reports: str, name: str = "node") -> Path:
        folder = self.folder / "etc" / name
        folder.mkdir(exist_ok=True)
        shutil.copyfile(self.folder / "etc/cgroup.conf", folder / "cgroup.conf")
        path = folder / "slurm.conf"
        path.write_text(
            render(self.version, self.folder, self.network, self.workers, self.lines, self._merged, slurmd=True, reports=reports)
        )
        return path

    # slurmctld

    async def start_slurmctld(self) -> None:
        clock = ["/usr/bin/env", *(f"{key}={value}" for key, value in self._clock.environment.items())] if self._clock else []
        self._controller = await self._spawn("slurmctld", ["chroot", str(self.root), *clock, "/usr/sbin/slurmctld", "-D"])
        await self.wait_for("slurmctld to answer", self._answer, lambda answer: " is UP" in answer)

    async def _answer(self) -> str:
        assert self._controller is not None
        if self._controller.returncode is not None:
            raise LabError(
                f"slurmctld ended with {self._controller.returncode}: {self.tail('slurmctld.log')}{self.tail('slurmctld.out')}"
            )
        return (await self.run("scontrol", "ping")).out

    async def stop_slurmctld(self, kill: bool = False) -> bool:
        """SIGTERM, or SIGKILL with `kill`; returns when it has ended, and whether it was deaf to SIGTERM and had to be killed."""
        controller, self._controller = self._controller, None
        return await end(controller, signal.SIGKILL if kill else signal.SIGTERM) if controller else False

    def freeze(self) -> None:
        """slurmctld keeps its port open and answers nothing."""
        assert self._controller is not None
        os.kill(self._controller.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._controller is not None
        os.kill(self._controller.pid, signal.SIGCONT)

    # Workers

    async def start_node(self, name: str, *, boot: bool = True, reports: str = "") -> str:
        """Starts a slurmd as a fresh pod would, with an address never used before, and returns that address.

        `unhurried`: in a later second than it was asked for, as on any real node. slurmd tells its age in whole seconds of the machine's
        uptime, which may turn over just then: one that starts within the second of the resume request may seem to have booted in the
        second before it, and is ignored (about one in a hundred, on 22.05.8).

        Without `boot` slurmd runs without -b and tells the machine's boot time. `reports` is what it says it has ("CPUs=1 RealMemory=10").
        """
        if self.unhurried:
            await asyncio.sleep(1.01 - time.time() % 1)  # a little more, as timers may be early
        if name in self.nodes_running():
            raise LabError(f"{name} runs already")
        number = next(_STARTS)
        spool = self.folder / "spool" / name
        # A new pod has nothing of the one before, which was killed: where the script of a job is left, the job cannot be launched again.
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir()
        # Without a pid namespace the worker's processes are known by the path of their slurm.conf.
        own = reports or not self.namespaces
        conf = self._node_conf(reports, f"node-{name}") if own else self.folder / "etc/node/slurm.conf"
        address = f"10.77.{1 + number // 250}.{2 + number % 250}" if self.namespaces else "127.0.0.1"
        argv = ["/usr/sbin/slurmd", "-D", *(["-b"] if boot else []), "-N", name]
        if self.namespaces:
            pod = [str(HERE / "pod"), name, address, f"pod{number}", str(os.getpid()), str(self.root)]
            argv = ["unshare", "--net", "--mount", "--uts", "--ipc", "--propagation", "private", *pod, *argv]
        self._nodes[name] = await self._spawn(name, argv, conf)
        return address

    async def stop_node(self, name: str) -> None:
        """Ends the worker and all its jobs at once, as the end of a pod does."""
        process = self._nodes.pop(name, None)
        if process:
            await end(process, signal.SIGKILL)
        if process and not self.namespaces:
            self._kill_left_behind(f"node-{name}/")

    def freeze_node(self, name: str) -> None:
        """The worker and its jobs stop where they are, as on a host that hangs; `stop_node` ends them all the same."""
        todo = [pid for pid in (self.node_pid(name),) if pid is not None]
        while todo:
            pid = todo.pop()
            os.kill(pid, signal.SIGSTOP)
            todo += [
                int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
            ]

    def nodes_running(self) -> list[str]:
        return [name for name, process in self._nodes.items() if process.returncode is None]

    def node_pid(self, name: str) -> int | None:
        """The process below which everything of the worker runs; None when it does not run."""
        process = self._nodes.get(name)
        return process.pid if process is not None and process.returncode is None else None

    def _kill_left_behind(self, conf: str) -> None:
        """Without a pid namespace the steps of a killed slurmd live on: they are known by the configuration in their environment."""
        ours = f"SLURM_CONF={self.folder}/etc/{conf}".encode()
        while left := [pid for pid in pids() if ours in environment_of(pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # Processes

    async def _spawn(self, name: str, argv: Sequence[str], conf: Path | None = None) -> asyncio.subprocess.Process:
        environment = self.environment | {"SLURM_CONF": str(conf or self.conf_path)}
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *argv, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
