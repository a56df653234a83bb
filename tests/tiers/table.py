"""The tiers: what each runs, what must be installed before, and how the next one to start is chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TREE: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Tier:
    """One line of the table.

    `target` is a folder of tests, or a module (`tests.demo`) that is one test by its exit code. `needs` are parts of tests/lab/install
    without which it cannot run; `wants` are waited for as well, but its tests know what to do without them. `heavy` ones keep a core
    busy, the others mostly wait for Slurm. `limit` is in seconds. With `modules_at_once` each module of the folder is a run of its own, and
    so many of them go on at the same time: for tests that wait most of the time.
    """

    name: str
    target: str
    needs: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    isolated: bool = True
    heavy: bool = False
    limit: float = 1200.0
    by_default: bool = True
    modules_at_once: int = 0

    @property
    def family(self) -> str:
        """The name without versions: `slurm` of `slurm-22.05`."""
        return self.name.partition("-")[0]

    @property
    def folder(self) -> bool:
        """Whether the target is a folder for pytest."""
        return "/" in self.target

    def there(self, tree: Path = TREE) -> bool:
        """Whether the target exists in the tree."""
        if self.folder:
            return (tree / self.target).is_dir()
        path = tree / self.target.replace(".", "/")
        return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def _slurm(version: str, *, by_default: bool = True) -> Tier:
    parts = ("isolated", f"slurm-{version}")
    return Tier(f"slurm-{version}", "tests/slurm", parts, env={"COPILOT_SLURM": version}, by_default=by_default)


def _e2e(version: str, kubernetes: str, *, by_default: bool = True) -> Tier:
    real = kubernetes == "real"
    parts = ("isolated", f"slurm-{version}", *(("kubernetes", "kruise") if real else ()))
    env = {"COPILOT_SLURM": version, "COPILOT_KUBERNETES": kubernetes}
    name = f"e2e-{version}-{kubernetes}"
    return Tier(name, "tests/e2e", parts, env=env, heavy=real, limit=1500.0, by_default=by_default, modules_at_once=2)


# The quick ones first. The order is also the order of preference, see `choose`.
TIERS: Final[tuple[Tier, ...]] = (
    # Lint installs the product as a user would, so it keeps the machine's network.
    Tier("lint", "tests/lint", isolated=False, heavy=True, limit=900.0),
    # Unit tests run on any machine; those that meet the real scontrol find it installed.
    Tier("unit", "tests/unit", wants=("slurm-22.05",), isolated=False, heavy=True, limit=900.0),
    _slurm("22.05"),
    # It enters the namespaces by itself, and has a form for machines that give none.
    Tier("demo", "tests.demo", ("isolated", "slurm-22.05"), isolated=False, limit=300.0),
    _e2e("22.05", "embedded"),
    _slurm("24.11"),
    _e2e("24.11", "embedded"),
    # Two short runs with seeds of their own; `make chaos` does more.
    Tier("chaos", "tests/chaos", ("isolated", "slurm-22.05"), limit=900.0),
    # Half of it is about the embedded server, which needs no build.
    Tier("contract", "tests/contract", ("isolated",), wants=("kubernetes", "kruise"), heavy=True, limit=900.0),
    # Alerts and dashboard on a real Prometheus, which waits for alerts most of the time.
    Tier("monitoring", "tests/monitoring", ("isolated", "slurm-22.05", "prometheus"), wants=("dashboard",), limit=600.0),
    # What is installed on a user's cluster, checked by a real API server; no pod runs.
    Tier(
        "manifests",
        "tests/manifests",
        ("isolated", "kubernetes", "kruise"),
        wants=("prometheus-operator",),
        heavy=True,
        limit=600.0,
    ),
    _e2e("22.05", "real"),
    _e2e("24.11", "real"),
    # A real node with real pods of the images.
    Tier("cluster", "tests/cluster", ("isolated", "node", "images"), heavy=True, limit=1800.0),
    # All of overlays/demo on such a node.
    Tier(
        "whole",
        "tests/cluster",
        ("isolated", "node", "images", "kruise"),
        wants=("browser", "prometheus"),
        env={"COPILOT_WHOLE": "1"},
        heavy=True,
        limit=1800.0,
    ),
    _slurm("26.05", by_default=False),
    _e2e("26.05", "embedded", by_default=False),
    _e2e("26.05", "real", by_default=False),
)


def select(only: str | None, table: Sequence[Tier] = TIERS) -> list[Tier]:
    """The tiers named in a comma-separated list, by name or by family; those of `make test` when None.

    Raises ValueError for a name that is in no line of the table.
    """
    if only is None:
        return [tier for tier in table if tier.by_default]
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {tier.name for tier in table} | {tier.family for tier in table}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"no tier {', '.join(unknown) or 'is named'}; there are: {', '.join(tier.name for tier in table)}")
    return [tier for tier in table if tier.name in names or (tier.family in names and tier.by_default)]


def parts_of(tiers: Sequence[Tier]) -> list[str]:
    """What tests/lab/install has to provide, each part once, in the order in which it is first asked for."""
    return list(dict.fromkeys(part for tier in tiers for part in (*tier.needs, *tier.wants)))


def choose(ready: Sequence[Tier], running: Collection[Tier]) -> Tier | None:
    """The tier to start next: the first that mixes with those that run (a light one beside a heavy one), else the first."""
    heavy_runs = any(tier.heavy for tier in running)
    mixing = [tier for tier in ready if tier.heavy != heavy_runs] if running else []
    return next(iter([*mixing, *ready]), None)
