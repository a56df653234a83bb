"""Each line of slurm.conf that matters: a good configuration has no finding, and each thing that is wrong is told with its cure."""

from __future__ import annotations

import pytest

from copilot.check.finding import Level
from copilot.check.slurm_conf import CHECKS, Needs, judge

NEW = {
    "SLURM_VERSION": "24.11.5",
    "SuspendTime": "300 sec",
    "SuspendTimeout": "60 sec",
    "ResumeTimeout": "900 sec",
    "ResumeProgram": "/slurm-resume.sh",
    "SuspendProgram": "/slurm-suspend.sh",
    "ResumeFailProgram": "/slurm-resume-fail.sh",
    "PrologSlurmctld[0]": "/slurm-prolog.sh",
    "PrologEpilogTimeout": "65534",
    "ResumeRate": "0 nodes/min",
    "SuspendRate": "0 nodes/min",
    "SlurmctldParameters": "idle_on_node_suspend,power_save_interval=1",
    "CommunicationParameters": "(null)",
    "ReturnToService": "2",
    "ReconfigFlags": "KeepPowerSaveSettings",
    "PrivateData": "none",
    "TreeWidth": "16",
    "JobRequeue": "1",
    "AuthInfo": "(null)",
}
OLD = NEW | {
    "SLURM_VERSION": "22.05.8",
    "SlurmctldParameters": "idle_on_node_suspend,cloud_reg_addrs,power_save_interval=1",
    "CommunicationParameters": "NoAddrCache",
    "TreeWidth": "65533",
    "PrivateData": "cloud",
    "ReconfigFlags": "(null)",
    "PrologSlurmctld[0]": "",
    "PrologSlurmctld": "/slurm-prolog.sh",
}
NEEDS = Needs(grace=30.0, failures=120.0, pull=0.0)
ERROR, WARNING = Level.ERROR, Level.WARNING


@pytest.mark.parametrize("conf", [NEW, OLD], ids=["24.11", "22.05"])
def test_a_good_configuration_has_no_finding(conf: dict[str, str]) -> None:
    assert [finding for finding in judge(conf, NEEDS) if finding.level is not Level.OK] == []


WRONG = [
    (NEW, {"SLURM_VERSION": "25.05.1"}, "slurm_version", WARNING, "none needed"),
    (NEW, {"SuspendTime": "INFINITE"}, "suspend_time", ERROR, "SuspendTime=300"),
    (NEW, {"SuspendTime": "NONE"}, "suspend_time", ERROR, "SuspendTime=300"),
    (NEW, {"ResumeProgram": "(null)"}, "resume_program", ERROR, "ResumeProgram=/slurm-resume.sh"),
    (NEW, {"SuspendProgram": "(null)"}, "suspend_program", ERROR, "SuspendProgram=/slurm-suspend.sh"),
    (NEW, {"ResumeFailProgram": "(null)"}, "resume_fail_program", WARNING, "ResumeFailProgram=/slurm-resume-fail.sh"),
    (
        NEW,
        {"PrologSlurmctld": "(null)", "PrologSlurmctld[0]": ""},
        "prolog_slurmctld",
        WARNING,
        "PrologSlurmctld=/slurm-prolog.sh",
    ),
    (NEW, {"PrologEpilogTimeout": "300"}, "prolog_timeout", WARNING, "PrologEpilogTimeout=960"),
    (NEW, {"ResumeRate": "300 nodes/min"}, "resume_rate", WARNING, "ResumeRate=0"),
    (NEW, {"SuspendRate": "60 nodes/min"}, "suspend_rate", WARNING, "SuspendRate=0"),
    (NEW, {"SuspendTimeout": "30 sec"}, "suspend_timeout", ERROR, "SuspendTimeout=60"),
    (NEW, {"ResumeTimeout": "60 sec"}, "resume_timeout", WARNING, "ResumeTimeout=180"),
    (
        NEW,
        {"SlurmctldParameters": "power_save_interval=1"},
        "idle_on_node_suspend",
        ERROR,
        "power_save_interval=1,idle_on_node_suspend",
    ),
    (
        NEW,
        {"SlurmctldParameters": "idle_on_node_suspend"},
        "power_save_interval",
        WARNING,
        "idle_on_node_suspend,power_save_interval=1",
    ),
    (
        NEW,
        {"SlurmctldParameters": "power_save_interval=30,idle_on_node_suspend"},
        "power_save_interval",
        WARNING,
        "SlurmctldParameters=idle_on_node_suspend,power_save_interval=1",
    ),
    (
        NEW,
        {"SlurmctldParameters": "idle_on_node_suspend,power_save_interval=1,cloud_dns"},
        "addresses",
        WARNING,
        "SlurmctldParameters=idle_on_node_suspend,power_save_interval=1",
    ),
    (
        OLD,
        {"SlurmctldParameters": "idle_on_node_suspend,power_save_interval=1"},
        "addresses",
        ERROR,
        "power_save_interval=1,cloud_reg_addrs",
    ),
    (OLD, {"CommunicationParameters": "(null)"}, "addresses", ERROR, "CommunicationParameters=NoAddrCache"),
    (OLD, {"TreeWidth": "50"}, "addresses", ERROR, "TreeWidth=65533"),
    (OLD, {"PrivateData": "none"}, "private_data", ERROR, "PrivateData=cloud"),
    (NEW, {"SLURM_VERSION": "26.05.5", "PrivateData": "jobs"}, "private_data", WARNING, "remove PrivateData=jobs"),
    (NEW, {"ReturnToService": "1"}, "return_to_service", WARNING, "ReturnToService=2"),
    (NEW, {"ReconfigFlags": "(null)"}, "keep_power_save", WARNING, "ReconfigFlags=KeepPowerSaveSettings"),
    (NEW, {"JobRequeue": "0"}, "job_requeue", WARNING, "JobRequeue=1"),
    (NEW, {"AuthInfo": "cred_expire=600"}, "cred_expire", WARNING, "AuthInfo=cred_expire=60"),
]


@pytest.mark.parametrize(
    ("good", "change", "name", "level", "cure"), WRONG, ids=[f"{each[2]}-{i}" for i, each in enumerate(WRONG)]
)
def test_what_is_wrong_is_told_with_its_cure(
    good: dict[str, str], change: dict[str, str], name: str, level: Level, cure: str
) -> None:
    [finding] = [finding for finding in judge(good | change, NEEDS) if finding.level is not Level.OK]
    assert (finding.name, finding.level) == (name, level)
    assert cure in finding.cure
    assert finding.why


def test_every_check_has_a_wrong_case() -> None:
    names = {check({}, NEEDS).name for check in CHECKS}
    assert names == {each[2] for each in WRONG}


def test_a_long_image_pull_asks_for_a_longer_resume_timeout() -> None:
    [finding] = [each for each in judge(NEW, Needs(30.0, 120.0, pull=700.0)) if each.level is not Level.OK]
    assert (finding.name, finding.cure) == ("resume_timeout", "ResumeTimeout=1110")
