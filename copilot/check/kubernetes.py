"""Kubernetes: reachable, each right there, the targets found, their kinds as the copilot needs them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from copilot import targets
from copilot.check.both import Clock
from copilot.check.finding import Finding, error, ok, warning
from copilot.config import Settings
from copilot.kube import Kube, KubeError, Refused, Selection
from copilot.model import Kind, Target

Object = dict[str, Any]
OLDEST: Final = (1, 27)  # spec.ordinals of a StatefulSet; older servers work, with windows that begin at 0
TESTED: Final = (1, 36)
_SCALE: Final = ("get", "list", "watch", "patch")
_PODS: Final = ("get", "list", "watch", "delete")
_EVENTS: Final = ("create", "list", "watch")
_PULLED: Final = re.compile(r"Successfully pulled image .* in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)(m?)s)?")


@dataclass(slots=True)
class Seen:
    """What was gathered: raw targets by kind, the longest image pull of late (seconds), and what was found on the way."""

    objects: list[tuple[Kind, Object]] = field(default_factory=list)
    pull: float = 0.0
    clock: Clock | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def targets(self) -> list[Target]:
        return [targets.read(kind, obj) for kind, obj in self.objects]


async def look(kube: Kube, settings: Settings) -> Seen:
    """Asks for everything; changes nothing (the one patch is a dry run)."""
    seen = Seen()
    try:
        version = await kube.version()
        asked = time.monotonic()
        wall = await kube.clock()
        seen.clock = None if wall is None else Clock(wall, asked, time.monotonic())
    except KubeError as problem:
        cure = "give the pod its ServiceAccount (or --kubeconfig), and see that the API server can be reached"
        seen.findings.append(error("kube_reachable", str(problem), "nothing can be scaled", cure))
        return seen
    seen.findings += [ok("kube_reachable", f"namespace {kube.namespace}"), kube_version(version)]
    served = []
    for kind in map(Kind, settings.targets):
        labels = "" if kind is Kind.SLURM_CLUSTER else settings.worker_label
        try:
            objects, _ = await kube.list(targets.collection(kind, kube.namespace), Selection(labels=labels))
        except Refused as problem:
            if not problem.kind_missing:
                served.append(kind)
            continue
        except KubeError:
            continue
        served.append(kind)
        seen.objects += [(kind, obj) for obj in objects]
    seen.findings.append(await _rights(kube, served))
    seen.findings += judge_targets(seen.objects, settings, kube.namespace)
    for kind, obj in seen.objects:
        if kind is Kind.ADVANCED_STATEFUL_SET:
            seen.findings.append(await _keeps_ordinals(kube, obj))
    seen.pull = await _longest_pull(kube)
    return seen


def kube_version(version: tuple[int, int]) -> Finding:
    """Tested with one release, works from another on."""
    seen = f"Kubernetes {version[0]}.{version[1]}"
    if OLDEST <= version <= TESTED:
        return ok("kube_version", seen)
    if version > TESTED:
        return warning(
            "kube_version", seen, f"newer than {TESTED[0]}.{TESTED[1]}, the newest that the copilot is tested with", "none needed"
        )
    why = "StatefulSets have no ordinals.start: their windows begin at 0, so that unwanted pods stay"
    return warning("kube_version", seen, why, f"Kubernetes {OLDEST[0]}.{OLDEST[1]} or newer, or OpenKruise's sets")


async def _rights(kube: Kube, served: Sequence[Kind]) -> Finding:
    """One question for each verb; the answer is the server's own, whatever roles it comes from."""
    asked = [(*targets.resource(kind), _SCALE) for kind in served] + [("", "pods", _PODS), ("", "events", _EVENTS)]
    missing: list[tuple[str, str, list[str]]] = []
    for group, resource, verbs in asked:
        lacking = [verb for verb in verbs if not await _may(kube, group, resource, verb)]
        if lacking:
            missing.append((group, resource, lacking))
    if not missing:
        return ok("kube_rights", f"{sum(len(verbs) for _, _, verbs in asked)} verbs allowed")
    seen = "missing: " + ", ".join(
        f"{verb} {resource}{'.' + group if group else ''}" for group, resource, verbs in missing for verb in verbs
    )
    return error(
        "kube_rights", seen, "the copilot cannot see or scale its nodes", "add to its Role:\n" + "\n".join(map(_rule, missing))
    )


def _rule(missing: tuple[str, str, list[str]]) -> str:
    group, resource, verbs = missing
    return f'- apiGroups: ["{group}"]\n  resources: [{resource}]\n  verbs: [{", ".join(verbs)}]'


async def _may(kube: Kube, group: str, resource: str, verb: str) -> bool:
    what = {"namespace": kube.namespace, "group": group, "resource": resource, "verb": verb}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": what}}
    try:
        answer = await kube.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    except KubeError:
        return False
    return bool((answer.get("status") or {}).get("allowed"))


def judge_targets(objects: Sequence[tuple[Kind, Object]], settings: Settings, namespace: str) -> list[Finding]:
    """Found, Parallel, no group twice."""
    if not objects:
        where = f"{', '.join(settings.targets)} in namespace {namespace}; sets need the label {settings.worker_label}"
        cure = f"label the sets: {settings.worker_label.replace('=', ': ')}; or set COPILOT_NAMESPACE"
        return [error("targets", f"none found: looked for {where}", "there is nothing to scale", cure)]
    read = [targets.read(kind, obj) for kind, obj in objects]
    names = [group.name for target in read for group in target.groups]
    found = [ok("targets", f"groups {', '.join(sorted(names))}")]
    for name in sorted({name for name in names if names.count(name) > 1}):
        why = "two targets would run pods of the same names; neither is scaled"
        found.append(error("group_twice", name, why, "rename one of the targets"))
    for target in read:
        found += [
            warning("parallel", f"{target.ref}: podManagementPolicy is not Parallel", words, "podManagementPolicy: Parallel")
            for words in target.warnings
        ]
    return found


async def _keeps_ordinals(kube: Kube, obj: Object) -> Finding:
    """A dry run of what the copilot does, on an ordinal that no pod has."""
    name, spec = "kruise_ordinals", obj["spec"]
    ref = targets.read(Kind.ADVANCED_STATEFUL_SET, obj).ref
    why, cure = (
        "nodes cannot be left out of the set, so suspended ones would stay",
        "OpenKruise with apps.kruise.io/v1beta1 (1.0 or newer)",
    )
    operation = {"op": "add", "path": "/spec/reserveOrdinals", "value": [*(spec.get("reserveOrdinals") or []), targets.MAX_INDEX]}
    try:
        kept = await kube.try_patch(targets.path(ref), [operation])
    except KubeError as problem:
        return error(name, f"{ref}: {problem}", why, cure)
    if targets.MAX_INDEX in (kept["spec"].get("reserveOrdinals") or []):
        return ok(name, f"{ref} keeps reserveOrdinals")
    return error(name, f"{ref}: the server drops reserveOrdinals", why, cure)


async def _longest_pull(kube: Kube) -> float:
    """Seconds, of the Events that the server still has; 0 without any."""
    try:
        events, _ = await kube.list(f"/api/v1/namespaces/{kube.namespace}/events", Selection(fields="reason=Pulled"))
    except KubeError:
        return 0.0
    return max((pull_seconds(event.get("message") or "") for event in events), default=0.0)


def pull_seconds(message: str) -> float:
    """From kubelet's words ("... in 1m2.5s (...)"); 0 for an image that was there already."""
    found = _PULLED.search(message)
    if not found:
        return 0.0
    hours, minutes, rest, milli = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or 0) / (1000 if milli else 1)
