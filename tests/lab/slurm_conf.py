"""The slurm.conf of the lab: power saving as on Kubernetes, and nothing of cgroups and hardware, which namespaces do not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The versions that the lab can run, and where their Slurm is: "" is this machine's own, else the cached root's folder name.
ROOTS = {"22.05": "", "24.11": "slurm-24.11", "26.05": "slurm-26.05"}
HEAD_ADDRESS = "10.77.0.1"
HEAD_NAME = "lab-head"


@dataclass(frozen=True, slots=True)
class Workers:
    """Nodes `<name>-0` to `<name>-<count - 1>` in a partition of their own. `features` are the node line's other words."""

    name: str
    count: int
    partition: str
    features: str = "CPUs=2 RealMemory=1000"

    @property
    def nodes(self) -> list[str]:
        return [f"{self.name}-{index}" for index in range(self.count)]

    @property
    def hostlist(self) -> str:
        return f"{self.name}-[0-{self.count - 1}]"


DEFAULT_WORKERS = (Workers("cpu", 10, "cpu"), Workers("demo-worker-gpu", 4, "gpu"))


@dataclass(frozen=True, slots=True)
class Network:
    """Where the daemons listen. `ports` gives each node a port of its own on loopback; without it every node has its own address."""

    host: str
    address: str
    controller_port: int = 6817
    ports: Mapping[str, int] | None = None


def slurmctld_parameters(version: str, *words: str) -> str:
    """The option SlurmctldParameters with these words, and what the version needs.

    Before 23.11 the address of a registered node is kept after power-down without cloud_reg_addrs.
    """
    return ",".join((*words, *(("cloud_reg_addrs",) if version == "22.05" else ())))


def _defaults(version: str, folder: Path, network: Network) -> dict[str, str]:
    options = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{network.host}({network.address})",
        "SlurmctldPort": str(network.controller_port),
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket,cred_expire=5",
        "StateSaveLocation": f"{folder}/state",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmctldDebug": "debug",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmdPidFile": f"{folder}/run/%n.pid",
        "SlurmdLogFile": f"{folder}/log/%n.log",
        "SlurmdDebug": "verbose",
        "LogTimeFormat": "iso8601_ms",
        "DebugFlags": "Power,NO_CONF_HASH",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SlurmctldParameters": slurmctld_parameters(version, "idle_on_node_suspend", "power_save_interval=1"),
        "SchedulerParameters": "batch_sched_delay=0",
        "ResumeRate": "0",
        "SuspendRate": "0",
        "SuspendTime": "60",
        "SuspendTimeout": "10",
        "ResumeTimeout": "60",
    }
    if version != "22.05":
        # 22.05 does not know the flag: every command would complain of it.
        options["ReconfigFlags"] = "KeepPowerSaveSettings"
    else:
        # Powered-down CLOUD nodes are invisible without PrivateData=cloud.
        options |= {
            "CommunicationParameters": "NoAddrCache",
            "TreeWidth": "65533",
            "PrivateData": "cloud",
        }
    return options


def _node_lines(workers: Sequence[Workers], network: Network, reports: str) -> list[str]:
    lines = []
    for group in workers:
        features = reports or group.features
        if network.ports is None:
            lines.append(f"NodeName={group.hostlist} {features} State=CLOUD")
        else:
            lines += [
                f"NodeName={name} NodeAddr=127.0.0.1 Port={network.ports[name]} {features} State=CLOUD" for name in group.nodes
            ]
    for number, group in enumerate(workers):
        default = " Default=YES" if number == 0 else ""
        lines.append(f"PartitionName={group.partition} Nodes={group.hostlist} MaxTime=INFINITE State=UP{default}")
    return lines


def render(
    version: str,
    folder: Path,
    network: Network,
    workers: Sequence[Workers],
    lines: Sequence[str],
    options: Mapping[str, str | None],
    *,
    slurmd: bool = False,
    reports: str = "",
) -> str:
    """The text of slurm.conf.

    `options` overrule the defaults, None takes one away; `lines` are appended as they are. With `slurmd` it is the workers' copy:
    they report what their node line says instead of the hardware, or what `reports` ("CPUs=1 RealMemory=10") says for all.
    """
    merged: dict[str, str | None] = {**_defaults(version, folder, network), **options}
    if slurmd:
        merged["SlurmdParameters"] = "config_overrides"
    settings = [f"{key}={value}" for key, value in merged.items() if value is not None]
    return "\n".join([*settings, *_node_lines(workers, network, reports), *lines]) + "\n"
