"""What the server needs of the rest of the daemon: the loop implements `Core`, tests put a stand-in in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from copilot.model import Verb
from copilot.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """Which of a hook's nodes were accepted, and which ignored for what reason."""

    accepted: Sequence[str]
    ignored: Sequence[tuple[Sequence[str], str]] = ()


class WaitState(StrEnum):
    """How a wait for nodes ended. GONE: none of the nodes is allocated any more, so nobody needs the answer."""

    UP = "up"
    FAILED = "failed"
    GONE = "gone"
    TIMEOUT = "timeout"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    """`failed` gives the reason by node; `missing` are the nodes that were not up when the wait ended."""

    state: WaitState
    failed: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()


class Health(NamedTuple):
    """`alive`: the loop ticked lately. `ready`: one look at both sides has been done. `why`: one line that tells what is amiss, or ok."""

    alive: bool
    ready: bool
    why: str


class Core(Protocol):
    """The part of the daemon that decides and knows."""

    @property
    def metrics(self) -> Metrics:
        """The daemon's metrics; the server counts requests in them and serves their registry."""

    def hook(self, verb: Verb, nodes: Sequence[str], request_id: str, jobs: Mapping[str, tuple[int, ...]]) -> HookAnswer:
        """Takes in what a hook said. Returns at once; acting on it comes later. `nodes` are distinct; `jobs` holds ids by node."""

    async def wait(self, nodes: Sequence[str], deadline: float) -> WaitAnswer:
        """Returns once all nodes are up or one cannot come, none is allocated, or `deadline` (event loop's clock) has passed.

        May be cancelled at any time: the caller has gone away, or the daemon stops.
        """

    def snapshot(self) -> dict[str, Any]:
        """What is known, ready for JSON, in a dictionary that the caller may change.

        `groups`: name, target, replicas, pods, nodes (counts), phases (count by phase), problem ("" if none). `nodes`, all that are
        not simply off: name, group, phase, age (seconds in the phase), state (Slurm's), reason, jobs. `problems`: text by subject.
        `view_age`: seconds since Slurm was last seen, None if never. More keys may come; `status` prints these.
        """

    def node(self, name: str) -> dict[str, Any] | None:
        """All that is known of one node, ready for JSON; None for a name that no worker group has."""

    def health(self) -> Health:
        """Cheap enough for a probe every second."""
