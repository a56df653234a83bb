"""What the manifests install has nothing that `slurmctld-copilot check` would tell of."""

from __future__ import annotations

from typing import Final

import pytest
import yaml

from copilot.check import slurm_conf
from copilot.check.finding import Level
from copilot.check.run import longest_grace
from copilot.config import Settings
from tests.unit.manifest_files import MANIFESTS, settings, slurm_files

# slurmctld's names of what slurm.conf sets; what it leaves out is slurmctld's own.
KEYS: Final = (
    "SuspendTime",
    "SuspendTimeout",
    "ResumeTimeout",
    "ResumeProgram",
    "SuspendProgram",
    "ResumeFailProgram",
    "PrologSlurmctld",
    "PrologEpilogTimeout",
    "ResumeRate",
    "SuspendRate",
    "SlurmctldParameters",
    "CommunicationParameters",
    "ReturnToService",
    "ReconfigFlags",
    "PrivateData",
    "TreeWidth",
    "JobRequeue",
    "AuthInfo",
)


def as_shown(files: dict[str, str], version: str) -> dict[str, str]:
    given = settings(files)
    return {key: given[key.lower()] for key in KEYS if key.lower() in given} | {"SLURM_VERSION": version}


def grace() -> float:
    """Of the workers, in seconds."""
    worker = yaml.safe_load((MANIFESTS / "base/worker/worker.yaml").read_text())
    return float(worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


@pytest.mark.parametrize("folder", ["base", "overlays/demo", "overlays/ack"])
@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_no_finding(folder: str, version: str) -> None:
    files = slurm_files(MANIFESTS / folder)
    if version < "23":
        files |= slurm_files(MANIFESTS / "components/slurm-22.05")
    needs = slurm_conf.Needs(grace=grace(), failures=longest_grace(Settings()))
    found = slurm_conf.judge(as_shown(files, version), needs)
    assert [each for each in found if each.level is not Level.OK] == []
