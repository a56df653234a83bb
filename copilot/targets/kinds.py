"""The three kinds behind one set of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from copilot.model import GroupState, Kind, Target, TargetRef, WorkerGroup
from copilot.targets import kruise, slurmcluster, statefulset
from copilot.targets.guarded import Object, Operation, set_warnings, whole

Indexes = Mapping[str, AbstractSet[int]]
# An operator's annotation on a target: nothing of its groups is started, stopped or told while it is there.
HOLD = "slurmctld-copilot/hold"


def read(kind: Kind, obj: Object) -> Target:
    """The target that an object as returned by the API describes. Fields that are missing have the API's defaults."""
    meta = obj["metadata"]
    ref = TargetRef(kind, meta["namespace"], meta["name"])
    states: tuple[GroupState, ...]
    warnings: tuple[str, ...] = ()
    if kind is Kind.SLURM_CLUSTER:
        states = tuple(
            GroupState(WorkerGroup(name, ref), whole(entry.get("replicas"))) for name, entry in slurmcluster.groups(obj)
        )
    else:
        of_kind = statefulset if kind is Kind.STATEFUL_SET else kruise
        warnings = set_warnings(obj)
        covers = of_kind.covers(obj)
        states = (GroupState(WorkerGroup(ref.name, ref), len(covers), covers),)
    held = _held(meta.get("annotations") or {}, [state.group.name for state in states])
    return Target(ref, meta["uid"], whole(meta.get("generation")), states, "deletionTimestamp" in meta, held, warnings)


def _held(annotations: Mapping[str, str], groups: Sequence[str]) -> frozenset[str]:
    """The groups that the annotation names (a SlurmCluster's in full or as in its spec); all of them when it names none, `true` for instance."""
    text = annotations.get(HOLD, "").strip()
    if not text or text.lower() == "false":
        return frozenset()
    words = {word.strip() for word in text.split(",")}
    named = {name for name in groups if name in words or name.partition("-worker-")[2] in words - {""}}
    return frozenset(named or groups)


def patch(kind: Kind, obj: Object, wanted: Indexes, existing: Indexes, ordinals: bool) -> list[Operation]:
    """The JSON Patch after which `obj` asks for exactly the wanted indexes of each group, or [] when it does already.

    Groups that are not in `wanted` are left alone: not to know is not to want nothing. `existing` are the indexes that have a pod,
    and may hold those ordered a moment ago, so that they are not ordered again; only a SlurmCluster needs it. `ordinals`: the server
    has spec.ordinals for StatefulSets (1.27 or newer). A patch that comes too late fails its `test` operations (422) and changes
    nothing: read and compute again.
    """
    if kind is Kind.SLURM_CLUSTER:
        return slurmcluster.patch(obj, wanted, existing)
    name = obj["metadata"]["name"]
    if name not in wanted:
        return []
    if kind is Kind.STATEFUL_SET:
        return statefulset.patch(obj, wanted[name], ordinals)
    return kruise.patch(obj, wanted[name])


def says(kind: Kind, obj: Object, wanted: Indexes) -> bool:
    """Whether an object, read back after a patch, asks for what was wanted; False when the server dropped a field."""
    if kind is Kind.SLURM_CLUSTER:
        entries = slurmcluster.groups(obj)
        known = {name for name, _ in entries}
        return wanted.keys() <= known and all(
            slurmcluster.says(entry, name, wanted[name]) for name, entry in entries if name in wanted
        )
    name = obj["metadata"]["name"]
    of_kind = statefulset if kind is Kind.STATEFUL_SET else kruise
    return all(group == name and of_kind.says(obj, indexes) for group, indexes in wanted.items())


def ordered(kind: Kind, obj: Object) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    """By group, the indexes that the object orders to be created and to be deleted; only a SlurmCluster gives orders."""
    return slurmcluster.ordered(obj) if kind is Kind.SLURM_CLUSTER else {}
