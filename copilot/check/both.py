"""Where Slurm and Kubernetes must say the same: which nodes there are, what they have, how slurmd starts, what time it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from copilot import targets
from copilot.check.finding import Finding, error, ok, warning
from copilot.hostlist import fold
from copilot.model import Kind
from copilot.slurm import NodeConfig
from copilot.targets import slurmcluster

Object = Mapping[str, Any]
_MIB: Final = 1 << 20
_UNITS: Final = {
    "m": 0.001,
    "": 1.0,
    **{unit: 1000.0**power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: 1024.0**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}
_WHOLE: Final = 1.0  # both sides tell whole seconds
_SKEW: Final = 5.0
_LONG_SKEW: Final = 120.0  # munge refuses credentials that are 5 minutes off; certificates and tokens suffer before


@dataclass(frozen=True, slots=True)
class Template:
    """What a group's pods have: CPUs, MiB and GPUs (None where the template sets no limit), their grace to end in seconds, `slurmd -b` or not."""

    group: str
    cpus: float | None
    memory: float | None
    gpus: int
    grace: float
    boots_anew: bool


def templates(objects: Iterable[tuple[Kind, Object]]) -> list[Template]:
    """Of every group of every target; groups without a template (an operator may have its own) are left out."""
    found = []
    for kind, obj in objects:
        if kind is Kind.SLURM_CLUSTER:
            pairs = [(name, entry.get("template") or {}) for name, entry in slurmcluster.groups(obj)]
        else:
            pairs = [(obj["metadata"]["name"], obj["spec"].get("template") or {})]
        found += [template(name, raw["spec"]) for name, raw in pairs if (raw.get("spec") or {}).get("containers")]
    return found


def template(group: str, spec: Object) -> Template:
    """The container called slurmd, or else the first."""
    containers: Sequence[Object] = spec["containers"]
    container = next((each for each in containers if each.get("name") == "slurmd"), containers[0])
    resources = container.get("resources") or {}
    # without a limit a pod may use the machine; the request is what it can count on
    given = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    gpus = sum(int(quantity(count)) for name, count in given.items() if name.endswith(("/gpu", "/gpus")))
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return Template(
        group=group,
        cpus=quantity(given["cpu"]) if "cpu" in given else None,
        memory=quantity(given["memory"]) / _MIB if "memory" in given else None,
        gpus=gpus,
        grace=float(spec.get("terminationGracePeriodSeconds") or 30),
        boots_anew=_boots_anew(words),
    )


def quantity(text: object) -> float:
    """A quantity of the API ("1500m", "4Gi", "1e3", 2) as a number; 0 for what is none."""
    words = str(text)
    number = words.rstrip("mkKMGTPi")
    try:
        return float(number) * _UNITS.get(words[len(number) :], 0.0)
    except ValueError:
        return 0.0


def _boots_anew(words: Sequence[str]) -> bool:
    """`slurmd -b`, alone or within a shell's line. This project's image starts slurmd with -b when its only argument is the role."""
    joined = " ".join(words).split()
    return joined == ["slurmd"] or any(word.startswith("-") and not word.startswith("--") and "b" in word for word in joined)


def judge(nodes: Sequence[NodeConfig], groups: Sequence[str], of_groups: Sequence[Template]) -> list[Finding]:
    """Names, resources, -b."""
    members: dict[str, list[NodeConfig]] = {name: [] for name in groups}
    strangers, fixed = [], []
    for node in nodes:
        split = targets.split_node(node.name)
        if split is None or split[0] not in members:
            if node.cloud:
                strangers.append(node.name)
            continue
        members[split[0]].append(node)
        if not node.cloud:
            fixed.append(node.name)
    found = _names(members, strangers, fixed)
    for each in of_groups:
        found += _template(each, members.get(each.group, []))
    return found


def _names(members: Mapping[str, list[NodeConfig]], strangers: list[str], fixed: list[str]) -> list[Finding]:
    found = []
    if strangers:
        why = "slurmctld would wait for nodes that nobody can start"
        cure = "name them <group>-<index> after a target, without leading zeros, or remove them"
        found.append(error("nodes_without_group", fold(strangers), why, cure))
    if fixed:
        why = "slurmctld never powers them down, so their pods run for ever"
        found.append(warning("nodes_not_cloud", fold(fixed), why, f"NodeName={fold(fixed)} ... State=CLOUD"))
    for group, of_group in members.items():
        if not of_group:
            why = "its pods would be unknown to slurmctld"
            found.append(
                warning("group_without_nodes", group, why, f"NodeName={group}-[0-9] CPUs=... RealMemory=... State=CLOUD")
            )
    if not found:
        found.append(ok("nodes", f"{sum(map(len, members.values()))} nodes in {len(members)} groups"))
    return found


def _template(pod: Template, nodes: Sequence[NodeConfig]) -> list[Finding]:
    found = []
    if not pod.boots_anew:
        why = "slurmctld ignores a slurmd that booted before the resume request, and a container reports its host's boot"
        found.append(
            error("slurmd_boots", f"{pod.group}: the container does not start slurmd with -b", why, "command: [slurmd, -D, -b]")
        )
    for word, has, field, resource in (
        ("CPUs", pod.cpus, "cpus", "cpu"),
        ("RealMemory", pod.memory, "memory", "memory"),
        ("Gres=gpu", pod.gpus, "gpus", "nvidia.com/gpu"),
    ):
        over = {node.name: claimed for node in nodes if has is not None and (claimed := getattr(node, field)) > has}
        if over:
            most, unit = max(over.values()), "Mi" if resource == "memory" else ""
            why = "slurmd would register with less than that, and slurmctld would drain it (INVALID_REG)"
            cure = f"{word}{':' if '=' in word else '='}{has:g} for {pod.group}, or {resource}: {most:g}{unit} in its template"
            found.append(error("resources", f"{fold(over)} have {word} up to {most:g}, the pod {has:g}", why, cure))
    if not found:
        found.append(ok("template", f"{pod.group}: slurmd -b, no node claims more than its pod has"))
    return found


@dataclass(frozen=True, slots=True)
class Clock:
    """What a side told of its time (Unix time, whole seconds), and between which moments here (seconds, monotonic) it told it."""

    told: float
    asked: float
    answered: float


def skew(slurm: Clock | None, kube: Clock | None) -> Finding:
    """The difference of the two clocks that is beyond what the questions' own durations explain."""
    cure = "use NTP on all machines"
    if slurm is None or kube is None:
        return warning("clocks", "not compared: one side did not tell its time", "munge and tokens need clocks that agree", cure)
    # Each clock is ahead of ours by something between these two.
    (slurm_least, slurm_most), (kube_least, kube_most) = (
        (clock.told - clock.answered, clock.told + _WHOLE - clock.asked) for clock in (slurm, kube)
    )
    off = max(slurm_least - kube_most, kube_least - slurm_most, 0.0)
    if off <= _SKEW:
        return ok("clocks", f"slurmctld and API server agree to {off + _WHOLE:.0f} s")
    why = "munge refuses credentials, and times in logs mislead"
    return (error if off > _LONG_SKEW else warning)("clocks", f"slurmctld and API server are {off:.0f} s apart", why, cure)
