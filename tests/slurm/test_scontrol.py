"""copilot.slurm and copilot.hostlist against the real scontrol."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from copilot.hostlist import LIMIT, HostlistError, expand, fold
from copilot.slurm import Slurm, SlurmRefused, SlurmUnavailable, seconds
from tests.slurm.power import VERSION, PowerLab, power_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")
REASON = '"maintenance" State=DOWN a=b \'quoted\' "twice" [x@y] NodeName="z"'


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PowerLab]:
    async with power_lab(SuspendTime="600") as lab:
        yield lab


async def test_the_table_of_nodes(lab: PowerLab) -> None:
    view = await lab.slurm.nodes()
    assert set(view.nodes) == {f"cpu-{index}" for index in range(10)} | {f"demo-worker-gpu-{index}" for index in range(4)}
    assert {node.state for node in view.nodes.values()} == {"IDLE+CLOUD+POWERED_DOWN"}
    assert {(node.boot_epoch, node.slurmd_start_epoch, node.version, node.reason) for node in view.nodes.values()} == {
        (None, None, "", "")
    }


async def test_a_reason_is_free_text(lab: PowerLab) -> None:
    await lab.slurm.update("down", ["cpu-0"], REASON)
    await lab.scontrol("update", "nodename=cpu-0", "comment=Reason=other State=IDLE")
    node = await lab.look("cpu-0")
    assert (node.base, node.reason) == ("DOWN", REASON)
    await lab.slurm.update("resume", ["cpu-0"])
    node = await lab.look("cpu-0")
    assert node.base == "IDLE"
    assert node.reason in ("", REASON)  # 24.11 keeps it, 22.05 and 26.05 do not: a Reason alone says nothing


async def test_the_reason_alone_of_a_busy_node_is_emptied(lab: PowerLab) -> None:
    """22.05 does not show the reason of a healthy node; a drain or resume in its place would mark the node as not responding."""
    job = await lab.running("cpu-9")
    await lab.slurm.update("", ["cpu-9"], "copilot: old")
    assert (await lab.look("cpu-9")).reason in ("copilot: old", *([""] if VERSION != "24.11" else []))
    await lab.slurm.update("", ["cpu-9"], "")
    node = await lab.look("cpu-9")
    assert (node.reason, node.up, (await lab.job(job))["JobState"]) == ("", True, "RUNNING")
    await lab.run("scancel", str(job))


async def test_an_update_of_a_list_is_not_atomic(lab: PowerLab) -> None:
    done = await lab.run("scontrol", "update", "nodename=cpu-1,cpu-zz,demo-worker-gpu-0", "state=down", "reason=x")
    assert done.rc == 1
    assert "Invalid node name specified" in done.err
    view = await lab.slurm.nodes()
    assert (view.nodes["cpu-1"].base, view.nodes["demo-worker-gpu-0"].base) == ("DOWN", "IDLE")
    await lab.slurm.update("resume", ["cpu-1"])


async def test_one_bad_name_spoils_no_other(lab: PowerLab) -> None:
    with pytest.raises(SlurmRefused, match="Invalid node name specified") as caught:
        await lab.slurm.update("down", ["cpu-3", "aaa", "cpu-4", "nope-7", "cpu-5", "zzz"], "copilot: test")
    assert sorted(caught.value.names) == ["aaa", "nope-7", "zzz"]
    view = await lab.slurm.nodes()
    assert [view.nodes[f"cpu-{index}"].base for index in (3, 4, 5, 6)] == ["DOWN", "DOWN", "DOWN", "IDLE"]
    await lab.slurm.update("resume", ["cpu-3", "cpu-4", "cpu-5"])


async def test_a_state_that_cannot_be_is_refused_by_name(lab: PowerLab) -> None:
    await lab.slurm.update("down", ["cpu-6"], "copilot: test")
    with pytest.raises(SlurmRefused, match=r"Invalid node state") as caught:
        await lab.slurm.update("resume", ["cpu-6", "cpu-7"])
    assert "cpu-7" in caught.value.names
    node = await lab.look("cpu-6")  # it may be NOT_RESPONDING too, for ever: no sign of trouble on a node that is off
    assert node.base == "IDLE" and "POWERED_DOWN" in node.flags


async def test_unknown_nodes_are_told_on_stdout(lab: PowerLab) -> None:
    done = await lab.run("scontrol", "-o", "show", "nodes", "cpu-0,nope,cpu-1")
    assert done.rc == 1
    assert "Node nope not found" in done.out
    assert "NodeName=cpu-0 " in done.out and "NodeName=cpu-1 " in done.out


async def test_config_and_version(lab: PowerLab) -> None:
    config = await lab.slurm.config()
    assert (seconds(config["SuspendTimeout"]), seconds(config["ResumeTimeout"]), seconds(config["SuspendTime"])) == (10, 60, 600)
    assert config["SLURM_VERSION"].startswith(f"{VERSION}.")
    assert (await lab.slurm.version()).startswith(f"{VERSION}.")
    assert await lab.slurm.ping()


async def test_a_frozen_slurmctld_is_unavailable(lab: PowerLab) -> None:
    slurm = Slurm(lab.command("scontrol"), str(lab.conf_path), timeout=1)
    lab.freeze()
    try:
        with pytest.raises(SlurmUnavailable, match="no answer within 1 s"):
            await slurm.nodes()
        with pytest.raises(SlurmUnavailable, match="no answer within 1 s"):
            await slurm.update("down", ["cpu-8"], "copilot: test")
        assert not await slurm.ping()
    finally:
        lab.thaw()
    await lab.wait_for("slurmctld to answer again", lab.slurm.ping, bool)


async def test_a_slurmctld_that_is_down_is_unavailable(lab: PowerLab) -> None:
    await lab.stop_slurmctld()
    try:
        assert not await lab.slurm.ping()
        with pytest.raises(SlurmUnavailable, match=r"Unable to contact slurm controller.*; see whether slurmctld runs"):
            await lab.slurm.nodes()
    finally:
        await lab.start_slurmctld()


async def test_a_missing_slurm_conf_is_unavailable(lab: PowerLab) -> None:
    missing = str(Path(lab.conf_path).with_name("missing.conf"))
    with pytest.raises(
        SlurmUnavailable, match=r"check that slurm.conf is there|no answer within 5 s: .* whether slurm.conf is there"
    ):
        await Slurm(lab.command("scontrol"), missing, timeout=5).nodes()


def some_hostlist(random_: random.Random) -> str:
    """What Slurm prints: elements with up to two brackets, padded or not."""

    def bracket() -> str:
        width, ranges = random_.choice([1, 1, 2, 4]), []
        for _ in range(random_.randint(1, 3)):
            first = random_.choice([0, 1, 8, 9, 10, 98, random_.randint(0, 999)])
            last = first + random_.choice([0, 0, 1, 2, 12])
            ranges.append(f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else ""))
        return f"[{','.join(ranges)}]"

    elements = []
    for _ in range(random_.randint(1, 4)):
        name = random_.choice(["n", "gpu-", "a-1-b", "r1n", "x.y-", "demo-worker-cpu-"])
        tail = random_.choice([str(random_.randint(0, 20)), bracket(), bracket(), f"{bracket()}r{bracket()}"])
        elements.append(name + tail)
    return ",".join(elements)


async def test_hostlists_are_read_as_slurm_reads_them(lab: PowerLab) -> None:
    """3,000 lists, in batches of one scontrol call each."""
    random_ = random.Random(20240601)
    for _ in range(30):
        lists = [some_hostlist(random_) for _ in range(100)]
        done = await lab.run("scontrol", "show", "hostnames", ",".join(lists))
        assert done.rc == 0
        assert done.out.split() == [name for each in lists for name in expand(each)]


async def test_folded_names_are_read_back_by_slurm(lab: PowerLab) -> None:
    random_ = random.Random(20240602)
    for _ in range(30):
        names = list({name for _ in range(20) for name in expand(some_hostlist(random_))})
        random_.shuffle(names)
        done = await lab.run("scontrol", "show", "hostnames", fold(names))
        assert sorted(done.out.split()) == sorted(names)
        ours, theirs = fold(names), (await lab.run("scontrol", "show", "hostlistsorted", ",".join(names))).out.strip()
        assert sorted(expand(theirs)) == sorted(names)
        assert len(ours) <= len(theirs) * 1.05 + 8


async def test_names_of_one_width_are_folded_as_slurm_folds_them(lab: PowerLab) -> None:
    random_ = random.Random(20240603)
    for _ in range(50):
        width = random_.choice([1, 3])
        names = [f"gpu-{number:0{width}d}" for number in random_.sample(range(200), 60)]
        done = await lab.run("scontrol", "show", "hostlistsorted", ",".join(names))
        assert done.out.strip() == fold(names)


async def test_where_slurm_gives_up_silently_this_one_says_so(lab: PowerLab) -> None:
    done = await lab.run("scontrol", "show", "hostnames", "n[3-1]")
    assert done.rc == 0 and "Invalid" in done.out + done.err
    with pytest.raises(HostlistError, match="runs backwards"):
        expand("n[3-1]")
    with pytest.raises(HostlistError, match=f"more than {LIMIT} names"):
        expand("n[0-65536]")
