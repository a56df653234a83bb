"""slurm.conf as slurmctld really uses it (`scontrol show config`), judged: one small function for each line that matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from copilot.check.finding import Finding, error, ok, warning
from copilot.slurm import seconds

Conf = Mapping[str, str]
# Releases that the tests of this project run on.
TESTED: Final = ((22, 5), (24, 11), (26, 5))
_UNSET: Final = frozenset({"", "(null)", "none", "(none)"})
_NO_LIMIT: Final = 65534.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What the rest of the installation asks of slurm.conf, in seconds: the pods' grace to end, the graces of failures, the longest image
    pull that the Events tell of (0 where unknown). `saving` are the partitions with a finite SuspendTime of their own."""

    grace: float = 0.0
    failures: float = 0.0
    pull: float = 0.0
    saving: tuple[str, ...] = ()

    @property
    def start(self) -> float:
        """What a ResumeTimeout has to be above, in seconds."""
        return max(self.failures, self.pull * 1.5)


def judge(conf: Conf, needs: Needs) -> list[Finding]:
    """Every finding about slurm.conf, in the order of docs/check.md."""
    return [check(conf, needs) for check in CHECKS]


def version_of(conf: Conf) -> tuple[int, int]:
    """Major and minor of slurmctld; (0, 0) when it cannot be told."""
    found = re.match(r"(\d+)\.(\d+)", conf.get("SLURM_VERSION", ""))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def value_of(conf: Conf, key: str) -> str:
    """From 24.05 on some programs are lists: `PrologSlurmctld[0]`, and no line at all where none is set."""
    value = conf.get(key) or conf.get(f"{key}[0]") or ""
    return "" if value.lower() in _UNSET else value


def _words(conf: Conf, key: str) -> list[str]:
    return [word.strip() for word in value_of(conf, key).split(",") if word.strip()]


def _joined(conf: Conf, key: str, *more: str) -> str:
    """The option's line with further words."""
    return f"{key}={','.join([*_words(conf, key), *more])}"


def slurm_version(conf: Conf, _: Needs) -> Finding:
    seen = f"slurmctld {conf.get('SLURM_VERSION', 'of an unknown version')}"
    if version_of(conf) in TESTED:
        return ok("slurm_version", seen)
    tested = ", ".join(f"{major}.{minor:02}" for major, minor in TESTED)
    return warning("slurm_version", seen, f"the copilot is tested with {tested}", "none needed; tell us how it went")


def suspend_time(conf: Conf, needs: Needs) -> Finding:
    value = conf.get("SuspendTime", "")
    if seconds(value) is not None:
        return ok("suspend_time", f"SuspendTime={value}")
    if needs.saving:
        seen = f"SuspendTime={value or 'unset'}, of their own have one: {', '.join(needs.saving)}"
        return warning("suspend_time", seen, "nodes of other partitions are never powered down", "SuspendTime=300")
    return error(
        "suspend_time",
        f"SuspendTime={value or 'unset'}",
        "power saving is off: no node is ever resumed or suspended",
        "SuspendTime=300",
    )


def _program(key: str, script: str, why: str, required: bool = True) -> Callable[[Conf, Needs], Finding]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()

    def check(conf: Conf, _: Needs) -> Finding:
        if value := value_of(conf, key):
            return ok(name, f"{key}={value}")
        return (error if required else warning)(name, f"{key} is not set", why, f"{key}=/{script}")

    return check


def _rate(key: str) -> Callable[[Conf, Needs], Finding]:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()

    def check(conf: Conf, _: Needs) -> Finding:
        value = conf.get(key, "")
        if seconds(value) == 0.0:
            return ok(name, f"{key}={value}")
        why = "slurmctld hands its nodes over in slices, seconds apart, instead of all at once"
        return warning(name, f"{key}={value or 'unset'}", why, f"{key}=0")

    return check


def suspend_timeout(conf: Conf, needs: Needs) -> Finding:
    value = seconds(conf.get("SuspendTimeout", ""))
    seen = f"SuspendTimeout={conf.get('SuspendTimeout', 'unset')}, pods have {needs.grace:g} s to end"
    if value is not None and value > needs.grace:
        return ok("suspend_timeout", seen)
    why = "slurmctld would use a node again whose old pod is still ending"
    return error("suspend_timeout", seen, why, f"SuspendTimeout={needs.grace + 30:.0f}")


def resume_timeout(conf: Conf, needs: Needs) -> Finding:
    value = seconds(conf.get("ResumeTimeout", ""))
    least = needs.start
    seen = f"ResumeTimeout={conf.get('ResumeTimeout', 'unset')}, longest grace {needs.failures:g} s, longest image pull seen {needs.pull:g} s"
    if value is not None and value > least:
        return ok("resume_timeout", seen)
    why = "slurmctld would give up nodes that are still on their way, before the copilot can tell why they do not come"
    return warning("resume_timeout", seen, why, f"ResumeTimeout={least + 60:.0f}")


def idle_on_node_suspend(conf: Conf, _: Needs) -> Finding:
    if "idle_on_node_suspend" in _words(conf, "SlurmctldParameters"):
        return ok("idle_on_node_suspend", "SlurmctldParameters has idle_on_node_suspend")
    why = "a node that failed or was down stays down after it was powered down"
    cure = _joined(conf, "SlurmctldParameters", "idle_on_node_suspend")
    return error("idle_on_node_suspend", f"SlurmctldParameters={value_of(conf, 'SlurmctldParameters') or 'unset'}", why, cure)


def power_save_interval(conf: Conf, _: Needs) -> Finding:
    """slurmctld looks at once when nodes have changed, but not always: of jobs on 24.11 one in four had its hook 10 s late."""
    found = re.search(r"power_save_interval=(\d+)", value_of(conf, "SlurmctldParameters"))
    interval = int(found[1]) if found else 10
    if interval <= 1:
        return ok("power_save_interval", f"SlurmctldParameters has power_save_interval={interval}")
    why = f"now and then slurmctld calls the hook {interval} s after it has given the nodes to a job"
    words = [word for word in _words(conf, "SlurmctldParameters") if not word.startswith("power_save_interval=")]
    cure = f"SlurmctldParameters={','.join([*words, 'power_save_interval=1'])}"
    return warning("power_save_interval", f"power_save_interval={interval} s", why, cure)


def addresses(conf: Conf, _: Needs) -> Finding:
    """A pod has another address each time: before 23.11 slurmctld and slurmd keep old ones unless told not to."""
    parameters, missing = _words(conf, "SlurmctldParameters"), []
    if "cloud_dns" in parameters:
        why = "names that do not resolve hold up slurmctld for seconds each"
        cure = f"SlurmctldParameters={','.join(word for word in parameters if word != 'cloud_dns')}"
        return warning("addresses", "SlurmctldParameters has cloud_dns", why, cure)
    if version_of(conf) >= (23, 11):
        return ok("addresses", "kept up to date by this release")
    if "cloud_reg_addrs" not in parameters:
        missing.append(_joined(conf, "SlurmctldParameters", "cloud_reg_addrs"))
    if "NoAddrCache" not in _words(conf, "CommunicationParameters"):
        missing.append(_joined(conf, "CommunicationParameters", "NoAddrCache"))
    if seconds(conf.get("TreeWidth", "")) != 65533.0:
        missing.append("TreeWidth=65533")
    if not missing:
        return ok("addresses", "cloud_reg_addrs, NoAddrCache and TreeWidth=65533 are set")
    why = "jobs are sent to the address of an earlier pod of the node"
    return error("addresses", f"missing before 23.11: {'; '.join(missing)}", why, "\n".join(missing))


def private_data(conf: Conf, _: Needs) -> Finding:
    version, has = version_of(conf), "cloud" in _words(conf, "PrivateData")
    seen = f"PrivateData={value_of(conf, 'PrivateData') or 'unset'}"
    if version <= (22, 5) and not has:
        why = "powered-down nodes are invisible, also to the copilot, which then takes them for unknown"
        return error("private_data", seen, why, _joined(conf, "PrivateData", "cloud"))
    if version >= (25, 11) and value_of(conf, "PrivateData"):
        # `cloud` is not known any more, and not shown even where slurm.conf has it
        why = "slurmctld's own metrics are off while PrivateData is set"
        return warning(
            "private_data", seen, why, f"remove PrivateData={value_of(conf, 'PrivateData')}, or do without those metrics"
        )
    return ok("private_data", seen)


def return_to_service(conf: Conf, _: Needs) -> Finding:
    value = conf.get("ReturnToService", "")
    if value == "2":
        return ok("return_to_service", "ReturnToService=2")
    why = "a node that was down stays so although it registers again"
    return warning("return_to_service", f"ReturnToService={value or 'unset'}", why, "ReturnToService=2")


def keep_power_save(conf: Conf, _: Needs) -> Finding:
    """22.05 does not know the flag."""
    if version_of(conf) < (23, 2) or "KeepPowerSaveSettings" in _words(conf, "ReconfigFlags"):
        return ok("keep_power_save", f"ReconfigFlags={value_of(conf, 'ReconfigFlags') or 'unset'}")
    why = "`scontrol reconfigure` forgets what was set by `scontrol update` about power saving"
    return warning(
        "keep_power_save",
        "ReconfigFlags lacks KeepPowerSaveSettings",
        why,
        _joined(conf, "ReconfigFlags", "KeepPowerSaveSettings"),
    )


def prolog_timeout(conf: Conf, _: Needs) -> Finding:
    limit = seconds(conf.get("PrologEpilogTimeout", ""))
    resume = seconds(conf.get("ResumeTimeout", "")) or 0.0
    if not value_of(conf, "PrologSlurmctld") or limit is None or limit >= _NO_LIMIT or limit > resume:
        return ok("prolog_timeout", f"PrologEpilogTimeout={conf.get('PrologEpilogTimeout', 'unset')}")
    why = "a prolog that waits for its nodes is ended before they may have come, and its job is requeued"
    return warning(
        "prolog_timeout",
        f"PrologEpilogTimeout={limit:g}, ResumeTimeout={resume:g}",
        why,
        f"PrologEpilogTimeout={resume + 60:.0f}",
    )


def job_requeue(conf: Conf, _: Needs) -> Finding:
    if conf.get("JobRequeue", "1") == "1":
        return ok("job_requeue", "JobRequeue=1")
    why = "a job whose node cannot come is ended instead of started again"
    return warning("job_requeue", f"JobRequeue={conf['JobRequeue']}", why, "JobRequeue=1")


def cred_expire(conf: Conf, _: Needs) -> Finding:
    """Slurm starts a requeued job only when its old credential cannot be used any more."""
    found = re.search(r"cred_expire=(\d+)", conf.get("AuthInfo", ""))
    wait = int(found[1]) if found else 120
    if wait <= 120:
        return ok("cred_expire", f"a requeued job waits {wait + 1} s (AuthInfo=cred_expire, at least 5)")
    why = f"a job that is requeued because its node failed waits {wait + 1} s"
    return warning("cred_expire", f"AuthInfo={conf['AuthInfo']}", why, "AuthInfo=cred_expire=60")


CHECKS: Final[tuple[Callable[[Conf, Needs], Finding], ...]] = (
    slurm_version,
    suspend_time,
    _program("ResumeProgram", "slurm-resume.sh", "power saving is off"),
    _program("SuspendProgram", "slurm-suspend.sh", "power saving is off"),
    _program(
        "ResumeFailProgram", "slurm-resume-fail.sh", "the copilot learns of ResumeTimeout only at its next look", required=False
    ),
    _program(
        "PrologSlurmctld",
        "slurm-prolog.sh",
        "a job starts at slurmctld's next 30 s pass, not when its nodes are there",
        required=False,
    ),
    prolog_timeout,
    _rate("ResumeRate"),
    _rate("SuspendRate"),
    suspend_timeout,
    resume_timeout,
    idle_on_node_suspend,
    power_save_interval,
    addresses,
    private_data,
    return_to_service,
    keep_power_save,
    job_requeue,
    cred_expire,
)
