"""What the hooks said, until a Slurm view taken later confirms it. Pure: the clock comes as an argument.

Only a resume is a decision: the node is wanted until a view *asked for after* the hint arrived tells what Slurm thinks. A suspend or
resume-fail asks for a fresh look and no more, so hooks that arrive out of order, twice or not at all do no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from copilot.hostlist import HostlistError, expand
from copilot.model import Hint, SlurmView, Verb


class Hints:
    """Open resume hints, and the last hook of each node. Holds at most one of each per known node: callers add known nodes only."""

    def __init__(self) -> None:
        self._open: dict[str, Hint] = {}
        self._last: dict[str, Hint] = {}

    def add(self, verb: Verb, nodes: Sequence[str], now: float, request_id: str, jobs: Mapping[str, tuple[int, ...]]) -> None:
        """Takes in one hook call. `jobs` by node, as in the resume file; `now` in seconds of the clock that views are stamped with."""
        shared: dict[tuple[int, ...], Hint] = {}  # thousands of nodes of one call have few different job lists
        for node in nodes:
            ids = jobs.get(node, ())
            hint = shared.get(ids) or shared.setdefault(ids, Hint(verb, now, request_id, ids))
            self._last[node] = hint
            if verb is Verb.RESUME:
                self._open[node] = hint

    def wanted(self, view_taken_at: float) -> Mapping[str, Hint]:
        """Nodes whose resume hint the view cannot know of: received when the question had been asked already, or at that very moment."""
        return {node: hint for node, hint in self._open.items() if hint.received_at >= view_taken_at}

    def confirm(self, view: SlurmView) -> Mapping[str, Hint]:
        """Drops the resume hints that the view is younger than, since now the view is the truth; returns them, for timing and logs."""
        seen = {node: hint for node, hint in self._open.items() if hint.received_at < view.taken_at}
        for node in seen:
            del self._open[node]
        return seen

    def last(self, node: str) -> Hint | None:
        """The last hook call that named the node, of any verb, for status."""
        return self._last.get(node)

    def retain(self, known: Collection[str]) -> None:
        """Forgets nodes that no group has any more. For when groups change, not for every look. `known` should be a set."""
        for kept in (self._open, self._last):
            for node in [node for node in kept if node not in known]:
                del kept[node]

    def __len__(self) -> int:
        """How many resume hints are open."""
        return len(self._open)


def jobs_by_node(resume_file: object, limit: int = 65536) -> dict[str, tuple[int, ...]]:
    """Job ids by node from the decoded content of SLURM_RESUME_FILE, for logs and for deciding about whole jobs.

    The keys differ by release (22.05 `nodes`, 23.02 and later `nodes_resume`) and new ones come with each, so anything unexpected
    is passed over: which nodes to resume is told by the hook's argument, never by this file. At most `limit` pairs of a node and a
    job are looked at, in the file's order.
    """
    found: dict[str, list[int]] = {}
    for job, text in _jobs(resume_file):
        try:
            nodes = expand(text, limit)
        except HostlistError:
            continue
        limit -= len(nodes)
        for node in nodes:
            found.setdefault(node, []).append(job)
        if limit <= 0:
            break
    return {node: tuple(dict.fromkeys(jobs)) for node, jobs in found.items()}


def _jobs(resume_file: object) -> Iterator[tuple[int, str]]:
    """Job id and hostlist of every well-formed job entry."""
    jobs = resume_file.get("jobs") if isinstance(resume_file, dict) else None
    for job in jobs if isinstance(jobs, list) else ():
        if not isinstance(job, dict):
            continue
        number = job.get("job_id")
        text = job.get("nodes_resume") or job.get("nodes")
        if isinstance(number, int) and isinstance(text, str):
            yield number, text
