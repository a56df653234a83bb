"""`slurmctld-copilot check`: gathers from both sides, judges, prints."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from copilot.check import both, hooks, kubernetes, partitions, slurm_conf
from copilot.check.finding import Finding, Level, error, ok
from copilot.config import Settings
from copilot.kube import Kube, NotConfigured
from copilot.slurm import NodeConfig, PartitionConfig, Slurm, SlurmUnavailable, seconds

_GRACES = ("registration_timeout", "unschedulable_grace", "image_pull_grace", "quota_grace", "crash_loop_grace")


async def run(settings: Settings) -> list[Finding]:
    """Everything, in the order in which an operator would mend it: Slurm, hooks, Kubernetes, both together."""
    told = await _ask_slurm(settings)
    conf, nodes, found = told.conf, told.nodes, told.findings
    seen = await _ask_kube(settings)
    pods = both.templates(seen.objects)
    if conf:
        needs = slurm_conf.Needs(
            grace=max((pod.grace for pod in pods), default=30.0),
            failures=longest_grace(settings),
            pull=seen.pull,
            saving=partitions.saving(told.partitions),
        )
        found += [*slurm_conf.judge(conf, needs), *partitions.judge(told.partitions, nodes, needs), *hooks.judge(conf, settings)]
    found += seen.findings
    if conf and seen.objects:
        groups = sorted({group.name for target in seen.targets for group in target.groups})
        found += both.judge(nodes, groups, pods)
    if conf and seen.clock is not None:
        found.append(both.skew(told.clock, seen.clock))
    return found


def longest_grace(settings: Settings) -> float:
    """Seconds until the copilot knows, and says, why a node does not come."""
    return float(max(getattr(settings, name) for name in _GRACES))


@dataclass(slots=True)
class _Told:
    """What slurmctld said; empty where it did not answer."""

    conf: dict[str, str] = field(default_factory=dict)
    nodes: list[NodeConfig] = field(default_factory=list)
    partitions: list[PartitionConfig] = field(default_factory=list)
    clock: both.Clock | None = None
    findings: list[Finding] = field(default_factory=list)


async def _ask_slurm(settings: Settings) -> _Told:
    slurm = Slurm(settings.scontrol, settings.slurm_conf, timeout=settings.scontrol_timeout)
    try:
        asked = time.monotonic()
        conf = await slurm.config()
        wall = seconds(conf.get("as_of", ""))
        clock = None if wall is None else both.Clock(wall, asked, time.monotonic())
        return _Told(conf, await slurm.configured(), await slurm.partitions(), clock, [ok("slurmctld", "answers")])
    except SlurmUnavailable as problem:
        why = "nothing is known of the nodes"
        cure = "start slurmctld; set SLURM_CONF where slurm.conf is not in its usual place"
        return _Told(findings=[error("slurmctld", str(problem), why, cure)])


async def _ask_kube(settings: Settings) -> kubernetes.Seen:
    try:
        kube = await Kube.connect(settings.kubeconfig, settings.namespace, settings.kube_timeout)
    except NotConfigured as problem:
        cure = "run it in a pod with a ServiceAccount, or give --kubeconfig"
        return kubernetes.Seen(findings=[error("kube_reachable", str(problem), "nothing can be scaled", cure)])
    try:
        return await kubernetes.look(kube, settings)
    finally:
        await kube.close()


def failed(findings: Sequence[Finding]) -> bool:
    """Only errors count: a warning is worth a look, not a broken installation."""
    return any(finding.level is Level.ERROR for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    """For machines."""
    return json.dumps([asdict(finding) for finding in findings], indent=2)


def as_text(findings: Sequence[Finding]) -> str:
    """A line for each finding; below it, where something is amiss, why it matters and what to change."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<7}  {finding.name:<{width}}  {finding.seen}")
        if finding.level is not Level.OK:
            lines.append(f"{'':9}{'':{width}}  why: {finding.why}")
            first, *rest = finding.cure.splitlines()
            lines += [f"{'':9}{'':{width}}  change: {first}", *(f"{'':9}{'':{width}}          {line}" for line in rest)]
    counts = Counter(finding.level for finding in findings)
    lines += ["", ", ".join(f"{counts[level]} {level}" for level in Level)]
    return "\n".join(lines)
