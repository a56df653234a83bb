"""The whole cluster as its users and administrators meet it: ssh to the login pod, Slurm's commands, pods."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.pods import until
from tests.lab.endpoint import Object
from tests.lab.node import State, kubectl
from tests.lab.node.layout import need
from tests.lab.whole import overlay
from tests.lab.whole.overlay import NAMESPACE, User

_OPTIONS: Final = (
    "StrictHostKeyChecking=no",
    "UserKnownHostsFile=/dev/null",
    "LogLevel=ERROR",
    "NumberOfPasswordPrompts=1",
    "ConnectTimeout=10",
    "PubkeyAuthentication=no",
)


@dataclass(frozen=True, slots=True)
class Whole:
    """`folder` has the script that gives ssh the password; `user` is one of the directory."""

    node: State
    folder: Path
    user: User

    def ssh(self, command: str, user: User | None = None, port: int = 0) -> subprocess.CompletedProcess[str]:
        """As the user, by his password: to the login Service's address, or to a forwarded port of this machine."""
        who = user or self.user
        where = ["-p", str(port), f"{who.name}@127.0.0.1"] if port else [f"{who.name}@{overlay.address(self.node, 'login')}"]
        argv = ["ssh", *(word for option in _OPTIONS for word in ("-o", option)), *where, command]
        env = {**os.environ, "SSH_ASKPASS": f"{self.folder}/askpass", "SSH_ASKPASS_REQUIRE": "force", "SECRET": who.password}
        return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def shell(self, command: str) -> str:
        """What a command prints in the user's session; AssertionError with its complaint when it fails."""
        done = self.ssh(command)
        assert done.returncode == 0, f"{command!r}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def submit(self, options: str, script: str) -> int:
        """sbatch from the user's home: the job's number."""
        return int(self.shell(f"sbatch --parsable {options} --wrap {json.dumps(script)}"))

    def state(self, job: int) -> str:
        """Slurm's word for the job's state, such as RUNNING."""
        return self.field(job, "JobState")

    def nodes(self, job: int) -> str:
        """The job's nodes in Slurm's short form."""
        return self.field(job, "NodeList")

    def field(self, job: int, name: str) -> str:
        """A field of `scontrol show job`, empty when the job is gone."""
        found = re.search(rf"\b{name}=(\S+)", self.head(f"scontrol show job {job}"))
        return found[1] if found else ""

    def until_state(self, job: int, wanted: str, within: float = 60.0) -> None:
        """AssertionError with the last state after `within` seconds."""
        until(lambda: self.state(job) == wanted or None, f"job {job} to be {wanted} ({self.head('squeue; sinfo')})", within)

    def head(self, script: str) -> str:
        """What a shell script prints beside slurmctld, as SlurmUser."""
        return overlay.execute(self.node, "head-0", "sh", "-c", script, container="slurmctld").strip()

    def node_states(self) -> dict[str, str]:
        """Each node's state as sinfo writes it: `idle~` is powered down."""
        return dict(line.split() for line in self.head("sinfo -h -N -o '%N %t'").splitlines())

    def kubectl(self, *argv: str) -> str:
        """In the cluster's namespace, as the administrator."""
        return kubectl(self.node, "-n", NAMESPACE, *argv)

    def pods(self, component: str = "") -> list[Object]:
        """The pods of one component, of all when none is named."""
        chosen = ["-l", f"app.kubernetes.io/component={component}"] if component else []
        items: list[Object] = json.loads(self.kubectl("get", "pods", *chosen, "-o", "json"))["items"]
        return items

    def workers(self) -> set[str]:
        """The names of the worker pods."""
        return {pod["metadata"]["name"] for pod in self.pods("slurmd")}

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """`kubectl port-forward` to a Service or pod: the port of this machine."""
        argv = [str(need("kubectl")), f"--kubeconfig={self.node.kubeconfig}", "-n", NAMESPACE, "port-forward", target, f":{port}"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline().split(" -> ")[0].rpartition(":")[2])
            finally:
                process.terminate()
