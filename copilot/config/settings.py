"""The settings: the fields of `Settings` are the one table behind flags, environment, defaults, checks and documentation."""
# ruff: noqa: RUF009 - _row is dataclasses.field with our metadata, called once for each row

from __future__ import annotations

import argparse
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from copilot.config.checks import (
    ADDRESS,
    COMMAND,
    LABEL,
    LOOPBACK,
    MODE,
    NAMESPACE,
    READABLE,
    SOCKET_PATH,
    SWITCH,
    USER,
    Address,
    Check,
    matching,
    number,
    one_of,
    whole,
    words_of,
)

PREFIX = "COPILOT_"
TARGETS = ("slurmcluster", "statefulset", "kruise")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "json", "console")


class ConfigError(ValueError):
    """One or more settings are wrong; the text names each, with its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `fallback` is a foreign environment variable, obeyed when neither flag nor COPILOT_* is given."""

    name: str
    check: Check
    default: str
    help: str
    fallback: str

    @property
    def flag(self) -> str:
        """The command line's name of it."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment's name of it."""
        return PREFIX + self.name.upper()


def _row(default: str, check: Check, text: str, fallback: str = "") -> Any:
    """A dataclass field that is a row of the table too. No default means None: nothing is set."""
    row = {"check": check, "default": default, "help": text, "fallback": fallback}
    return field(default=check.parse(default) if default else None, metadata=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings. `Settings()` is the defaults, with nothing checked against this machine; the daemon uses `load`."""

    socket: Path = _row("/run/slurmctld-copilot/copilot.sock", SOCKET_PATH, "unix socket on which the hooks and `status` ask")
    socket_mode: int = _row("0660", MODE, "file mode of the socket")
    slurm_user: str = _row("slurm", USER, "SlurmUser of slurm.conf: besides root the only caller who is obeyed")
    listen: Address | None = _row("0.0.0.0:9817", ADDRESS, "where to serve /metrics, /healthz and /readyz")
    hooks_listen: Address | None = _row("off", LOOPBACK, "also take hooks over TCP there, with a bearer token")
    hooks_token_file: Path | None = _row("", READABLE, "file with the bearer token for hooks_listen")
    namespace: str | None = _row("", NAMESPACE, "namespace of the targets; default: the pod's own, or the kubeconfig's")
    kubeconfig: Path | None = _row(
        "", READABLE, "kubeconfig file; default: the pod's service account in a pod, else KUBECONFIG", fallback="KUBECONFIG"
    )
    targets: tuple[str, ...] = _row(",".join(TARGETS), words_of(TARGETS), "kinds of objects that scale workers")
    worker_label: str = _row(
        "app.kubernetes.io/component=slurmd", LABEL, "label of the StatefulSets and Advanced StatefulSets whose pods are workers"
    )
    scontrol: tuple[str, ...] = _row("scontrol", COMMAND, "scontrol, by name or path")
    slurm_conf: str | None = _row("", matching(r"/.+", "an absolute path"), "SLURM_CONF for scontrol", fallback="SLURM_CONF")
    scontrol_timeout: float = _row("20", number(1, 300, "seconds"), "longest wait for one scontrol call")
    kube_timeout: float = _row("10", number(0.5, 300, "seconds"), "longest wait for one answer of the API server")
    coalesce: float = _row("0.2", number(0, 5, "seconds"), "window in which several hints become one patch")
    poll_quiet: float = _row("30", number(1, 600, "seconds"), "pause between looks at Slurm while nothing is in flight")
    poll_active: float = _row("1.0", number(0.1, 60, "seconds"), "the same while nodes are coming or going")
    poll_fast: float = _row("0.15", number(0.05, 10, "seconds"), "the same while a registration is a matter of moments")
    poll_share: float = _row("0.05", number(0.001, 0.5, "(a fraction)"), "largest part of the time that looks at Slurm may take")
    missed_hook_grace: float = _row(
        "5", number(0, 600, "seconds"), "age at which a POWERING_UP node without a hint is a lost hook"
    )
    orphan_grace: float = _row("90", number(5, 3600, "seconds"), "age at which a pod whose node Slurm has off is removed")
    stale_grace: float = _row("20", number(1, 3600, "seconds"), "time a pod older than the resume gets before it is replaced")
    registration_timeout: float = _row("120", number(5, 3600, "seconds"), "time from container running to registered")
    unschedulable_grace: float = _row(
        "60",
        number(1, 86400, "seconds"),
        "time that a pod may stay unschedulable before its node fails; no more than 10 s once a "
        "cluster autoscaler says that it will not add a machine",
    )
    scale_up_grace: float = _row(
        "900", number(1, 86400, "seconds"), "the same once a cluster autoscaler says that it adds a machine"
    )
    quota_grace: float = _row(
        "30", number(1, 3600, "seconds"), "time that a ResourceQuota may refuse a pod before its node fails"
    )
    image_pull_grace: float = _row("30", number(1, 3600, "seconds"), "the same for an image that cannot be pulled")
    container_config_grace: float = _row(
        "20",
        number(1, 3600, "seconds"),
        "the same for a Secret, ConfigMap or volume that is missing, or a command that cannot run",
    )
    crash_loop_grace: float = _row("30", number(1, 3600, "seconds"), "the same for a container that ends again and again")
    evicted_grace: float = _row("30", number(1, 3600, "seconds"), "the same for a pod that is evicted before it registered")
    pod_lost_grace: float = _row(
        "20",
        number(1, 3600, "seconds"),
        "time that a pod may be silent, or Terminating past its own grace, before it counts as lost",
    )
    rejected_grace: float = _row(
        "10", number(1, 3600, "seconds"), "time that an admission webhook or policy may refuse a pod or patch"
    )
    api_error_grace: float = _row("60", number(1, 3600, "seconds"), "time for which no pod may be made for any other reason")
    all_or_nothing: bool = _row(
        "true", SWITCH, "release all nodes that were started for a job when some of them fail for lack of capacity"
    )
    breaker_failures: int = _row("5", whole(1, 10000, "failures"), "failed starts in a row that stop a group's scaling up")
    breaker_pause: float = _row(
        "30", number(1, 3600, "seconds"), "how long it then stops; doubled each time that one node tries in vain"
    )
    breaker_pause_max: float = _row("600", number(1, 86400, "seconds"), "longest such pause")
    free_early: bool = _row("true", SWITCH, "free powered-down nodes once their pods are seen gone, not after SuspendTimeout")
    retry_max: float = _row("30", number(1, 600, "seconds"), "longest pause between attempts at one target")
    max_nodes: int = _row("65536", whole(1, 1_000_000, "nodes"), "most nodes that one request may name")
    max_body: int = _row("1048576", whole(1024, 64 << 20, "bytes"), "longest body of a request")
    max_waits: int = _row("4096", whole(1, 65536, "requests"), "most prologs that may wait at once")
    wait_max: float = _row("600", number(1, 86400, "seconds"), "longest time that one prolog waits")
    log_level: str = _row("info", one_of(LOG_LEVELS), "least severe lines that are logged")
    log_format: str = _row("auto", one_of(LOG_FORMATS), "auto is console on a terminal and JSON lines elsewhere")

    @property
    def slurm_uid(self) -> int:
        """SlurmUser's number. KeyError if this machine does not know the name, which `load` excludes."""
        return int(self.slurm_user) if self.slurm_user.isdecimal() else pwd.getpwnam(self.slurm_user).pw_uid


TABLE = tuple(Setting(name=row.name, **row.metadata) for row in fields(Settings))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every setting as a flag. Values stay text: `load` reads them, so that all the bad ones are named at once."""
    for row in TABLE:
        default = row.default or (f"${row.fallback}" if row.fallback else "none")
        text = f"{row.help} ({row.check.allowed}) [{row.variable}; default {default}]"
        parser.add_argument(row.flag, dest=row.name, metavar="VALUE", help=text.replace("%", "%%"))


def load(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """Settings from flags (by field name, None if not given) and the environment. ConfigError names every bad value."""
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for row in TABLE:
        source, text = _given(row, flags, environ)
        try:
            values[row.name] = row.check.parse(text) if text else None
        except (ValueError, KeyError, OSError):
            wrong.append(f"{source}={text!r}: must be {row.check.allowed}")
    settings = Settings(**{name: value for name, value in values.items() if value is not None or name in _NULLABLE})
    wrong += _contradictions(settings)
    if wrong:
        raise ConfigError(f"{len(wrong)} bad setting{'s' if len(wrong) > 1 else ''}: " + "; ".join(wrong))
    return settings


_NULLABLE = frozenset({"listen", "hooks_listen"})


def _given(row: Setting, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str, str]:
    """Where the value comes from, and its text."""
    if text := flags.get(row.name):
        return row.flag, text
    if text := environ.get(row.variable):
        return row.variable, text
    in_pod = row.name == "kubeconfig" and "KUBERNETES_SERVICE_HOST" in environ
    if row.fallback and not in_pod and (text := environ.get(row.fallback)):
        return row.fallback, text
    return row.name, row.default


def _contradictions(settings: Settings) -> list[str]:
    """What is wrong although each value for itself is well-formed."""
    wrong = []
    try:
        _ = settings.slurm_uid
    except KeyError:
        wrong.append(f"slurm_user={settings.slurm_user!r}: this machine knows no such user; give SlurmUser's number instead")
    if settings.hooks_listen and not settings.hooks_token_file:
        wrong.append(f"hooks_listen={settings.hooks_listen}: needs hooks_token_file, because any local user can reach a TCP port")
    if settings.breaker_pause > settings.breaker_pause_max:
        wrong.append(
            f"breaker_pause={settings.breaker_pause:g}: must not be above breaker_pause_max={settings.breaker_pause_max:g}"
        )
    if not settings.poll_fast <= settings.poll_active <= settings.poll_quiet:
        wrong.append("poll_fast, poll_active and poll_quiet must not fall in this order")
    return wrong


def misspelt(environ: Mapping[str, str]) -> dict[str, str]:
    """COPILOT_* variables that look misspelt, with the name that was probably meant: worth a warning, never an error.

    A Service called copilot makes Kubernetes set COPILOT_PORT, COPILOT_SERVICE_HOST and more: strange names are normal.
    """
    known = [row.variable for row in TABLE]
    strange = (name for name in sorted(environ) if name.startswith(PREFIX) and name not in known)
    return {name: close[0] for name in strange if (close := get_close_matches(name, known, 1, 0.85))}


def reference() -> str:
    """The table of settings as Markdown, for the README."""
    lines = ["| setting | flag | environment | default | allowed | what it is |", "| --- | --- | --- | --- | --- | --- |"]
    for row in TABLE:
        default = row.default or (f"${row.fallback}" if row.fallback else "")
        shown = f"`{default}`" if default else "none"
        lines.append(f"| {row.name} | `{row.flag}` | `{row.variable}` | {shown} | {row.check.allowed} | {row.help} |")
    return "\n".join(lines) + "\n"
