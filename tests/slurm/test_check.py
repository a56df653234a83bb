"""`slurmctld-copilot check` reads what a real slurmctld uses: a good slurm.conf has no finding, and each line that is wrong is told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from copilot.check import partitions, slurm_conf
from copilot.check.finding import Finding, Level
from copilot.check.slurm_conf import Needs
from tests.lab.slurm_conf import slurmctld_parameters
from tests.slurm.power import VERSION, PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Names of the findings by what is changed in slurm.conf; several at once, because each change is a start of slurmctld.
WRONG: list[tuple[dict[str, str | None], set[str]]] = [
    (
        {"SuspendTime": "-1", "SuspendTimeout": "30", "ResumeTimeout": "60", "ReturnToService": "1", "JobRequeue": "0"},
        {"suspend_time", "suspend_timeout", "resume_timeout", "return_to_service", "job_requeue"},
    ),
    (
        {
            "ResumeRate": "100",
            "SuspendRate": "60",
            "PrologEpilogTimeout": "300",
            "SlurmctldParameters": slurmctld_parameters(VERSION) or None,
        },
        {"resume_rate", "suspend_rate", "prolog_timeout", "idle_on_node_suspend", "power_save_interval"},
    ),
]
OF_RELEASE: dict[str, tuple[dict[str, str | None], set[str]]] = {
    "22.05": (
        {"PrivateData": None, "TreeWidth": None, "CommunicationParameters": None, "SlurmctldParameters": "idle_on_node_suspend"},
        {"private_data", "addresses", "power_save_interval"},
    ),
    "24.11": ({"ReconfigFlags": None}, {"keep_power_save"}),
    "26.05": ({"ReconfigFlags": None, "PrivateData": "jobs"}, {"keep_power_save", "private_data"}),
}
OWN = "PartitionName=own Nodes=cpu-[0-1]"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="300", SuspendTimeout="60", ResumeTimeout="900") as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def lab(shared: PowerLab) -> AsyncIterator[PowerLab]:
    """Every test finds, and leaves behind, the good configuration."""
    options, lines = dict(shared.options), shared.lines
    yield shared
    shared.options, shared.lines = options, lines
    await start_with(shared)


async def start_with(lab: PowerLab, **options: str | None) -> None:
    """slurmctld begins anew with these options: a reconfigure does not take all of them."""
    await lab.stop_slurmctld()
    lab.configure(**options)
    await lab.start_slurmctld()


async def found_in(lab: PowerLab) -> dict[str, Finding]:
    """By name, without those that are ok."""
    parts = await lab.slurm.partitions()
    needs = Needs(grace=30.0, failures=120.0, saving=partitions.saving(parts))
    found = slurm_conf.judge(await lab.slurm.config(), needs) + partitions.judge(parts, await lab.slurm.configured(), needs)
    return {each.name: each for each in found if each.level is not Level.OK}


async def test_a_good_configuration_has_no_finding(lab: PowerLab) -> None:
    assert await found_in(lab) == {}


@pytest.mark.parametrize(("wrong", "names"), [*WRONG, OF_RELEASE[VERSION]], ids=["times", "rates", "release"])
async def test_what_is_wrong_is_told_and_what_is_printed_mends_it(
    lab: PowerLab, wrong: dict[str, str | None], names: set[str]
) -> None:
    """The cures are put into slurm.conf as they are printed, until nothing is found: a cure may show what was hidden by its fault."""
    await start_with(lab, **wrong)
    found = await found_in(lab)
    assert found.keys() == names
    for _ in range(3):
        for finding in found.values():
            lab.options |= lines_of(finding.cure)
        await start_with(lab)
        found = await found_in(lab)
        if not found:
            return
    raise AssertionError(f"still there: {found}")


def lines_of(cure: str) -> dict[str, str | None]:
    """Options by the lines that are printed; one that is to be removed is None."""
    options: dict[str, str | None] = {}
    for line in cure.splitlines():
        gone = re.fullmatch(r"remove (\w+)=\w+(, or .*)?", line)
        key, _, value = line.partition("=")
        options |= {gone[1]: None} if gone else {key: value}
    return options


async def test_programs_that_are_not_set_are_told(lab: PowerLab) -> None:
    """Without ResumeProgram, power saving is off, and 24.11 looks up the address of every node for ten seconds: that one is a unit test's."""
    hooks = lab.hooks
    lab.hooks = {key: path for key, path in hooks.items() if key in ("ResumeProgram", "SuspendProgram")}
    await start_with(lab, ResumeFailProgram=None, PrologSlurmctld=None)
    found = await found_in(lab)
    lab.hooks = hooks
    assert {name: each.level for name, each in found.items()} == {
        "resume_fail_program": Level.WARNING,
        "prolog_slurmctld": Level.WARNING,
    }


async def test_times_of_a_partition_are_told(lab: PowerLab) -> None:
    lab.lines = (f"{OWN} SuspendTime=INFINITE SuspendTimeout=20 ResumeTimeout=60",)
    await start_with(lab)
    assert (await found_in(lab)).keys() == {"partition_suspend_time", "partition_suspend_timeout", "partition_resume_timeout"}


async def test_a_partition_alone_may_save_power(lab: PowerLab) -> None:
    """The finding is a warning and no error because slurmctld does start this partition's nodes.

    It starts without its memory: where power saving was off before, it goes on to hold nodes for running that are not.
    """
    await lab.stop_slurmctld()
    for kept in (lab.folder / "state").iterdir():
        kept.unlink()
    lab.lines = (f"{OWN} SuspendTime=600",)
    await start_with(lab, SuspendTime="INFINITE")
    found = await found_in(lab)
    assert {name: each.level for name, each in found.items()} == {"suspend_time": Level.WARNING}
    await lab.sbatch("--nodelist=cpu-0", "--partition=own")
    await lab.called("resume", "cpu-0", seconds=90)
