"""Which worker groups there are, which target runs each, and which node belongs where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from copilot import targets
from copilot.model import Kind, Target, TargetRef, WorkerGroup
from copilot.plan import Member, Unpatched
from copilot.reconcile.writer import Existing, Writer

_log = structlog.get_logger()


class Groups:
    """The writers by target, the groups by name, the members by node name; all rebuilt from what the targets say."""

    def __init__(self, make_writer: Callable[[TargetRef], Writer]) -> None:
        self.writers: dict[TargetRef, Writer] = {}
        self.groups: dict[str, WorkerGroup] = {}
        self.members: dict[str, Member] = {}
        self.doubly_claimed: dict[str, str] = {}
        self._make_writer = make_writer
        self._slurm_names: Iterable[str] = ()
        self._strangers: set[str] = set()

    def observe(self, kind: Kind, namespace: str, objects: Mapping[str, dict[str, Any]]) -> tuple[set[TargetRef], set[TargetRef]]:
        """Takes in all objects of one kind; returns the targets that are new and those that are gone."""
        refs = {TargetRef(kind, namespace, name): obj for name, obj in objects.items()}
        known = {ref for ref in self.writers if ref.kind is kind}
        for ref in refs.keys() - known:
            self.writers[ref] = self._make_writer(ref)
        for ref in known - refs.keys():
            del self.writers[ref]
        for ref, obj in refs.items():
            self.writers[ref].observe(obj)
        self._regroup()
        return set(refs.keys() - known), known - refs.keys()

    def _regroup(self) -> None:
        """A group that two targets claim is scaled by neither: whichever pod came up would be the wrong one for somebody."""
        claims: dict[str, list[WorkerGroup]] = {}
        for ref in sorted(self.writers):
            target = self.writers[ref].target
            for group in target.groups if target else ():
                claims.setdefault(group.name, []).append(group)
        doubly = {name: " and ".join(str(group.target) for group in claim) for name, claim in claims.items() if len(claim) > 1}
        for name, words in doubly.items():
            if self.doubly_claimed.get(name) != words:
                _log.error(
                    "group_claimed_twice", group=name, targets=words, cure="rename one of them; neither is scaled until then"
                )
        groups = {name: claim[0] for name, claim in claims.items() if len(claim) == 1}
        self.doubly_claimed = doubly
        if groups != self.groups:
            self.groups = groups
            self.place(self._slurm_names, anew=True)

    def place(self, names: Iterable[str], *, anew: bool = False) -> None:
        """Finds the members among Slurm's node names; kept until groups or names change, because 10,000 take some milliseconds."""
        self._slurm_names = names
        if anew:
            self.members, self._strangers = {}, set()
        self.meet(names)

    def meet(self, names: Iterable[str]) -> None:
        """Adds names not seen before, of pods for instance. Names that belong to no group are remembered too."""
        for name in names:
            if name in self.members or name in self._strangers:
                continue
            split = targets.split_node(name)
            group = self.groups.get(split[0]) if split else None
            if split and group:
                self.members[name] = Member(group, split[1])
            else:
                self._strangers.add(name)

    def owned(self, name: str, owner: str) -> bool:
        """Whether a pod with a node's name is the one that the group's target runs. Who owns a SlurmCluster's pods is its operator's affair."""
        member = self.members.get(name)
        if member is None:
            return False
        return member.group.target.kind is Kind.SLURM_CLUSTER or owner in ("", member.group.target.name)

    def target(self, group: str) -> Target | None:
        """The target that runs the group, as last read."""
        found = self.groups.get(group)
        return self.writers[found.target].target if found else None

    def covers(self) -> dict[str, frozenset[int]]:
        """The indexes that each group's target asks for now."""
        return {name: self.writers[group.target].covers(name) for name, group in self.groups.items()}

    def held(self) -> frozenset[str]:
        """Groups that an operator holds by an annotation on their targets."""
        return frozenset(group for writer in self.writers.values() if writer.target for group in writer.target.held)

    def unpatched(self) -> dict[str, Unpatched]:
        """By group, why the API server refuses to have its target patched."""
        refused = {ref: writer.refused for ref, writer in self.writers.items() if writer.refused}
        return {name: refused[group.target] for name, group in self.groups.items() if group.target in refused} if refused else {}

    def want(self, desired: Mapping[str, frozenset[int]], pods: Iterable[str]) -> None:
        """Hands every writer its share of a decision."""
        existing: dict[str, set[int]] = {name: set() for name in self.groups}
        for name in pods:
            if member := self.members.get(name):
                existing[member.group.name].add(member.index)
        mine: dict[TargetRef, list[str]] = {ref: [] for ref in self.writers}
        for name, group in self.groups.items():
            if name in desired:
                mine[group.target].append(name)
        for ref, names in mine.items():
            share: Existing = {name: existing[name] for name in names}
            self.writers[ref].want({name: desired[name] for name in names}, share)
