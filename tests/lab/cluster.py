"""A whole cluster in the current namespaces: a Kubernetes API, worker groups, a kubelet's part with real slurmds, slurmctld with the real
hooks, and the copilot as its own process with exactly the rights that the manifests give it.

    async with Cluster("22.05", folder) as cluster:
        job = await cluster.sbatch("--nodes=3")
        await cluster.slurm.wait_job(job, "COMPLETED")
        await cluster.settle()
        await cluster.audit.assert_clean()
"""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml

from copilot.model import Kind
from tests.lab import workloads
from tests.lab.access import write_kubeconfig
from tests.lab.audit import Audit
from tests.lab.clock import Clock
from tests.lab.containers import Containers
from tests.lab.controllers import AdvancedStatefulSets, StatefulSets
from tests.lab.controlplane import TREE, ControlPlane
from tests.lab.daemon import Daemon
from tests.lab.embedded import EmbeddedServer
from tests.lab.endpoint import Admin, ApiEndpoint, Object, established, resource
from tests.lab.kruise import Kruise
from tests.lab.kubelet import Kubelet
from tests.lab.operator import Operator, Reading
from tests.lab.settled import until_agreed
from tests.lab.slurm import SlurmLab, Workers

NAMESPACE = "slurm"
HOOKS = {
    "ResumeProgram": "slurm-resume.sh",
    "SuspendProgram": "slurm-suspend.sh",
    "ResumeFailProgram": "slurm-resume-fail.sh",
    "PrologSlurmctld": "slurm-prolog.sh",
}
# Nodes come and go within seconds, so that a whole life fits into a test; what ends a start that goes well but slowly is far off.
QUICK = {
    "SuspendTime": "5",
    "SuspendTimeout": "10",
    "ResumeTimeout": "120",
    # A job that waits for a node is looked at every few seconds, not every 30.
    "SchedulerParameters": "bf_interval=3,sched_interval=5",
}
# The copilot's waits that are minutes by default.
BRISK = {"poll_quiet": "5", "orphan_grace": "6", "stale_grace": "4", "registration_timeout": "60", "missed_hook_grace": "2"}
WORKERS = (Workers("cpu", 30, "cpu"), Workers("demo-worker-gpu", 8, "gpu"))


class Cluster:
    """`kinds`: how each group is scaled; a group that is left out has no target. `settings` are the copilot's, `options` slurm.conf's.

    `unhurried`: as on a real node, no slurmd starts within the second in which it was asked for (see SlurmLab.start_node).
    `steppable`: slurmctld and the copilot, which share a pod, have a `clock` of their own, whose host tests may step.
    """

    def __init__(
        self,
        slurm_version: str,
        folder: Path,
        *,
        kubernetes: Literal["embedded", "real"] = "embedded",
        kinds: Mapping[str, Kind] | None = None,
        reading: Reading = Reading.CLEARS_AT_ONCE,
        workers: Sequence[Workers] = WORKERS,
        lines: Sequence[str] = (),
        options: Mapping[str, str | None] | None = None,
        settings: Mapping[str, str] | None = None,
        fast_start: bool = True,
        namespaces: bool = True,
        unhurried: bool = False,
        steppable: bool = False,
    ) -> None:
        self.folder, self.kubernetes, self.reading = folder, kubernetes, reading
        self.kinds = dict(kinds if kinds is not None else {"cpu": Kind.STATEFUL_SET})
        self.clock = Clock(folder) if steppable else None
        hooks = {key: TREE / "scripts" / name for key, name in HOOKS.items() if fast_start or key != "PrologSlurmctld"}
        self._slurm_lab = partial(
            SlurmLab,
            slurm_version,
            workers=workers,
            lines=lines,
            options={**QUICK, **(options or {})},
            hooks=hooks,
            namespaces=namespaces,
            unhurried=unhurried,
            clock=self.clock,
        )
        self.slurm = self._slurm_lab(folder / "slurm")
        self._base, self._times = folder, 1
        self._settings = {**BRISK, **(settings or {})}
        self._stack = AsyncExitStack()
        self.embedded: EmbeddedServer | None = None
        self.plane: ControlPlane | None = None
        self.operator: Operator | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def anew(self) -> None:
        """Ends all of it and begins again, in a folder inside the first, where the logs of before stay.

        Raises what the parts that end raise, when all have ended; then it may be called again.
        """
        self._times += 1
        self.folder = self._base / f"again-{self._times}"
        try:
            await self._stack.aclose()
        finally:
            self.slurm = self._slurm_lab(self.folder / "slurm")
            self.embedded = self.plane = self.operator = None
        await self.__aenter__()

    # Start

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.endpoint = await self._start_api()
        self.admin = await self._stack.enter_async_context(Admin(self.endpoint))
        kubeconfig = await self._rights()
        await self._start_controllers()
        for group, kind in self.kinds.items():
            await self.admin.post(workloads.collection(kind, NAMESPACE), workloads.manifest(kind, group))
        self.audit = await self._stack.enter_async_context(Audit(self.slurm, self.endpoint, NAMESPACE, self.kinds))
        self.containers = Containers(self.slurm, self.audit.before_stop)
        binds = self.kubernetes == "embedded"
        self._stack.push_async_callback(self.slurm.stop)
        self.kubelet = await self._stack.enter_async_context(
            Kubelet(self.endpoint, self.containers.start, self.containers.stop, namespace=NAMESPACE, binds=binds)
        )
        self._stack.callback(self.containers.release)
        self.copilot = Daemon(self.folder, self._copilot_settings(kubeconfig), self.clock)
        self._stack.push_async_callback(self.copilot.stop)
        self._lay_out_hooks()
        await self.slurm.start()
        await self.copilot.start()

    async def _start_api(self) -> ApiEndpoint:
        folder = self.folder / "kubernetes"
        folder.mkdir(exist_ok=True)
        if self.kubernetes == "embedded":
            self.embedded = await self._stack.enter_async_context(EmbeddedServer(folder))
            return self.embedded.endpoint
        self.plane = ControlPlane(folder)
        self._stack.push_async_callback(self.plane.stop)
        return await self.plane.start()

    async def _rights(self) -> Path:
        """The copilot's kubeconfig, with the Role of the manifests in the namespace of the workers."""
        if self.plane is not None:
            return await self.plane.kubeconfig(NAMESPACE)
        assert self.embedded is not None
        await self.admin.post(
            resource("v1", "namespaces"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        documents = list(yaml.safe_load_all((TREE / "manifests/base/rbac.yaml").read_text()))
        roles = [document for document in documents if document["kind"] == "Role"]
        token = self.embedded.access.service_account("slurmctld-copilot", NAMESPACE, *roles)
        return write_kubeconfig(self.folder / "copilot.kubeconfig", self.endpoint.url, None, token, NAMESPACE)

    async def _start_controllers(self) -> None:
        """On a real control plane StatefulSets and OpenKruise are real; who scales a SlurmCluster's pods is played on both."""
        kinds = set(self.kinds.values())
        if self.embedded is not None:
            await self._stack.enter_async_context(StatefulSets(self.endpoint))
            if Kind.ADVANCED_STATEFUL_SET in kinds:
                await self._stack.enter_async_context(AdvancedStatefulSets(self.endpoint))
        elif Kind.ADVANCED_STATEFUL_SET in kinds:
            kruise = Kruise(self.endpoint, self.folder / "kruise")
            self._stack.push_async_callback(kruise.stop)
            await kruise.start()
        if Kind.SLURM_CLUSTER in kinds:
            if self.plane is not None:
                await self._define_slurmclusters()
            self.operator = await self._stack.enter_async_context(Operator(self.endpoint, self.reading))

    async def _define_slurmclusters(self) -> None:
        crd = yaml.safe_load((TREE / "tests/lab/crds/slurmcluster.yaml").read_text())
        crds = resource("apiextensions.k8s.io/v1", "customresourcedefinitions")
        await self.admin.post(crds, crd)
        await self.admin.until(f"{crds}/{crd['metadata']['name']}", established)
        # The kind is served a moment after its definition says so.
        await self.admin.until(workloads.collection(Kind.SLURM_CLUSTER, NAMESPACE), lambda seen: "items" in seen)

    def _copilot_settings(self, kubeconfig: Path) -> dict[str, str]:
        return {
            "socket": str(self.folder / "run/copilot.sock"),
            "slurm_user": str(_slurm_uid(self.slurm.root)),
            "kubeconfig": str(kubeconfig),
            "scontrol": self.slurm.command("scontrol")[0],
            "slurm_conf": str(self.slurm.conf_path),
            **self._settings,
        }

    def _lay_out_hooks(self) -> None:
        """What the hooks need beside themselves: the part they share, and where the socket is."""
        hooks = self.slurm.folder / "hooks"
        hooks.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TREE / "scripts/copilot-hook.sh", hooks / "copilot-hook.sh")
        lines = [f"COPILOT_SOCKET={self.copilot.socket}", f"COPILOT_HOOK_LOG={self.slurm.folder}/log/hooks.log"]
        (hooks / "hooks.conf").write_text("\n".join(lines) + "\n")

    # Doing

    async def sbatch(self, *argv: str, wrap: str = "true") -> int:
        """Submits a job that the audit expects to complete at its first start."""
        job = await self.slurm.sbatch(*argv, wrap=wrap)
        self.audit.submitted(job)
        return job

    async def run_job(self, *argv: str, wrap: str = "true", seconds: float = 150) -> dict[str, str]:
        """Submits a job and waits for its end; what Slurm says of it then."""
        return await self.slurm.wait_job(await self.sbatch(*argv, wrap=wrap), "COMPLETED", seconds=seconds)

    async def hook(self, name: str, nodes: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Runs a hook script as slurmctld would, as SlurmUser; exit code, and what it wrote to its log."""
        log = self.folder / f"hook-{uuid.uuid4().hex[:8]}.log"
        log.touch()
        shutil.chown(log, "slurm")
        hooks = self.slurm.folder / "hooks"
        conf = hooks.with_name(f"hooks-{log.stem}")
        shutil.copytree(hooks, conf)
        (conf / "hooks.conf").write_text(f"COPILOT_SOCKET={self.copilot.socket}\nCOPILOT_HOOK_LOG={log}\n")
        argv = ["setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", str(conf / name), nodes]
        process = await asyncio.create_subprocess_exec(*argv, env=dict(environment or {}), stdin=asyncio.subprocess.DEVNULL)
        code = await asyncio.wait_for(process.wait(), 60)
        return code, log.read_text()

    @asynccontextmanager
    async def api_away(self) -> AsyncIterator[None]:
        """The API server is away inside the block: connections are refused, those that were open are cut."""
        if self.embedded is not None:
            async with self.embedded.away():
                yield
            return
        assert self.plane is not None
        await self.plane.kill_component("apiserver")
        try:
            yield
        finally:
            await self.plane.start_component("apiserver")

    # Seeing

    async def target(self, group: str) -> Object:
        return await self.admin.get(workloads.path_of(self.kinds[group], NAMESPACE, group))

    async def patch_target(self, group: str, body: object) -> Object:
        """As the administrator: a list is a JSON patch, a mapping a merge patch."""
        return await self.admin.patch(workloads.path_of(self.kinds[group], NAMESPACE, group), body)

    async def replicas(self, group: str) -> int:
        return workloads.replicas_of(self.kinds[group], await self.target(group), group)

    async def pods(self) -> dict[str, Object]:
        """The namespace's pods by name."""
        return {pod["metadata"]["name"]: pod for pod in await self.admin.list(resource("v1", "pods", NAMESPACE))}

    async def status_of(self, node: str) -> dict[str, Any]:
        """What `status` says of a node, {} when it is simply off."""
        _, said = await self.copilot.status()
        return next((one for one in said.get("nodes", []) if one["name"] == node), {})

    async def settle(self, *, up: Iterable[str] = (), off: Iterable[str] = (), seconds: float = 180) -> None:
        """Waits until Slurm, pods, targets and the copilot's own picture agree, and the given nodes are up or off.

        AssertionError with the differences that were left.
        """
        await until_agreed(self, frozenset(up), frozenset(off), seconds)


def _slurm_uid(root: Path) -> int:
    """SlurmUser's number in the root in which slurmctld runs."""
    lines = (root / "etc/passwd").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith("slurm:"))
