"""copilot.slurm against programs that misbehave as scontrol can; the real scontrol is asked in tests/slurm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from copilot.model import Node
from copilot.slurm import Slurm, SlurmRefused, SlurmUnavailable, seconds
from copilot.slurm.output import NodeLines

Script = Callable[[str], str]
LINE = (
    "NodeName={name} Arch=x86_64 CPULoad=0.62 AvailableFeatures=(null) NodeAddr=10.77.1.3 NodeHostName={name} Version=22.05.8 "
    "OS=Linux 6.1 #1 SMP State={state} ThreadsPerCore=1 BootTime=1796078081 SlurmdStartTime=1796078082 LastBusyTime=Unknown AllocTRES={tail}"
)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(text: str) -> str:
        path = tmp_path / "scontrol"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


async def until(happens: Callable[[], bool]) -> None:
    while not happens():  # noqa: ASYNC110 - a file and a process give no event
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("", ""),
        ("  Reason=copilot: image_pull: no such image [root@1796078081]", "copilot: image_pull: no such image"),
        (" Reason=has State=DOWN a=b [x@y] end [root@1796078081] Comment=say Reason=no State=no", "has State=DOWN a=b [x@y] end"),
        (" Reason=Not responding [slurm@Unknown]", "Not responding"),
        (" Reason=cut off [root@", "cut off [root@"),
        (" Comment=Version=1 BootTime=3", ""),
    ],
)
def test_free_text_at_the_end_of_a_line_spoils_nothing(tail: str, reason: str) -> None:
    node = NodeLines().node(LINE.format(name="cpu-0", state="MIXED+CLOUD+PLANNED", tail=tail))
    flags = frozenset({"CLOUD", "PLANNED"})
    assert node == Node("cpu-0", "MIXED", flags, reason, "10.77.1.3", "22.05.8", 1796078081, 1796078082)
    assert node is not None and node.up and node.busy


def test_a_node_that_never_registered() -> None:
    line = "NodeName=n NodeAddr=n NodeHostName=n State=IDLE+CLOUD+POWERED_DOWN Partitions=p  BootTime=None SlurmdStartTime=None Comment=Version=7"
    assert NodeLines().node(line) == Node("n", "IDLE", frozenset({"CLOUD", "POWERED_DOWN"}), "", "n")


@pytest.mark.parametrize("line", ["", "Node nope not found", "second line State=IDLE of a reason", "NodeName=x"])
def test_other_lines_are_no_nodes(line: str) -> None:
    assert NodeLines().node(line) is None


def test_what_repeats_is_shared() -> None:
    lines = NodeLines()
    one, two = (lines.node(LINE.format(name=name, state="IDLE+CLOUD", tail="")) for name in "ab")
    assert one is not None and two is not None
    assert one.flags is two.flags and one.base is two.base and one.version is two.version


@pytest.mark.parametrize(("text", "value"), [("10 sec", 10.0), ("INFINITE", None), ("NONE", None), ("", None), ("(null)", None)])
def test_seconds(text: str, value: float | None) -> None:
    assert seconds(text) == value


async def test_lines_that_arrive_in_pieces_are_whole(script: Script) -> None:
    line = LINE.format(name="cpu-0", state="IDLE+CLOUD", tail=" Reason=ä" + "x" * 70_000)
    (Path(script("")).parent / "text").write_text(f"{line}\n{line.replace('cpu-0', 'cpu-1')}")
    program = script('d=${0%/*}; head -c 35001 "$d/text"; sleep 0.05; tail -c +35002 "$d/text"')
    view = await Slurm((program,), clock=lambda: 5.0).nodes()
    assert view.taken_at == 5.0
    assert [(name, len(node.reason)) for name, node in view.nodes.items()] == [("cpu-0", 70_001), ("cpu-1", 70_001)]


async def test_the_environment_is_clean(script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("SQUEUE_FORMAT", "x")
    await Slurm((script(f"env >{tmp_path}/seen; exit 0"),), "/etc/x.conf").ping()
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert {key: seen[key] for key in seen.keys() - {"PATH", "PWD", "_", "SHLVL", "OLDPWD"}} == {
        "SLURM_CONF": "/etc/x.conf",
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
    }


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_hanging_scontrol_is_killed_with_its_children(script: Script, tmp_path: Path, how: str) -> None:
    pids = tmp_path / "pids"
    program = script(f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait")
    seen: list[tuple[str, bool]] = []
    slurm = Slurm((program,), timeout=1.0 if how == "timeout" else 600, observe=lambda command, _, ok: seen.append((command, ok)))
    task = asyncio.create_task(slurm.nodes())
    async with asyncio.timeout(20):
        await until(pids.exists)
        if how == "timeout":
            with pytest.raises(SlurmUnavailable, match=r"no answer within 1 s: see whether slurmctld runs"):
                await task
        else:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        family = [int(pid) for pid in pids.read_text().split()]
        await until(lambda: not any(alive(pid) for pid in family))
    assert not Path(f"/proc/{family[0]}").exists(), "a zombie is left"
    assert seen == [("show_nodes", False)]


async def test_a_scontrol_cancelled_at_its_start_is_killed_with_its_children(script: Script, tmp_path: Path) -> None:
    """The process runs already, but the event loop has not been told yet: the cancellation comes in between."""
    pids = tmp_path / "pids"
    program = script(f"sleep 600 & echo $! >{pids}.new; mv {pids}.new {pids}; wait")
    for steps in range(1, 5):
        pids.unlink(missing_ok=True)
        task = asyncio.create_task(Slurm((program,)).nodes())
        for _ in range(steps):
            await asyncio.sleep(0)
        deadline = time.monotonic() + 10
        while not pids.exists() and time.monotonic() < deadline and steps > 1:
            time.sleep(0.01)  # noqa: ASYNC251 - on purpose: the loop must not take the next step
        task.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait([task])
            assert task.cancelled()
            family = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
            await until(lambda family=family: not any(alive(pid) for pid in family))  # type: ignore[misc]
        assert steps == 1 or family


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "see whether slurmctld runs",
        ),
        ("echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1", "check that slurm.conf is there"),
        ("echo 'scontrol: error: If munged is up, restart with --num-threads=10' >&2; exit 1", "check that munged runs"),
        ('echo "NodeName=a State=IDLE"; exit 1', "failed with 1: no message"),
        ("exit 0", "lists no node"),
        ("kill -9 $$", "failed with -9"),
    ],
)
async def test_no_whole_table_is_no_view(script: Script, text: str, message: str) -> None:
    with pytest.raises(SlurmUnavailable, match=message):
        await Slurm((script(text),)).nodes()


async def test_harmless_complaints_are_no_failure(script: Script) -> None:
    program = script(
        "echo 'scontrol: error: Invalid ReconfigFlag' >&2; head -c 300000 /dev/zero >&2; echo 'NodeName=a State=IDLE'"
    )
    assert (await Slurm((program,)).nodes()).nodes["a"].up


@pytest.mark.parametrize("program", ["/nonexistent/scontrol", "/etc/passwd"])
async def test_no_scontrol(program: str) -> None:
    with pytest.raises(SlurmUnavailable, match=f"cannot run {program}: .*; install slurm-client or correct the path"):
        await Slurm((program,)).nodes()
    assert not await Slurm((program,)).ping()


# A slurmctld that knows n0 to n999 but not those that end in 7: it applies a list up to the first unknown name.
PICKY = """
d=${0%/*}; echo "$2" >>$d/calls
case "$2" in *99999*) echo 'slurm_update error: Unable to contact slurm controller (connect failure)' >&2; exit 1;; esac
for n in $(/usr/bin/python3 -c 'import sys
for each in sys.argv[1].split("=", 1)[1].split(","): print(each)' "$2"); do
    case $n in *7) echo 'slurm_update error: Invalid node name specified' >&2; exit 1;; *) echo "$n $3 $4" >>$d/done;; esac
done
"""


async def test_one_bad_name_spoils_no_other(script: Script, tmp_path: Path) -> None:
    names = [f"n{letter}" for letter in "abcd7efgh"] + ["nx7", "ny"]
    with pytest.raises(SlurmRefused, match="Invalid node name specified") as caught:
        await Slurm((script(PICKY),)).update("down", names, "copilot: a=b")
    assert sorted(caught.value.names) == ["n7", "nx7"]
    assert {line.split()[0] for line in (tmp_path / "done").read_text().splitlines()} == set(names) - {"n7", "nx7"}
    assert 'state=down reason="copilot: a=b"' in (tmp_path / "done").read_text()


async def test_halving_is_bounded(script: Script, tmp_path: Path) -> None:
    names = [f"x{number}y7" for number in range(400)]
    with pytest.raises(SlurmRefused) as caught:
        await Slurm(
            (script("echo x >>${0%/*}/calls; echo 'slurm_update error: Invalid node name specified' >&2; exit 1"),)
        ).update("down", names)
    assert set(caught.value.names) == set(names)
    assert len((tmp_path / "calls").read_text().splitlines()) < 200


async def test_an_update_that_reaches_nobody_is_not_tried_again_and_again(script: Script, tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailable, match="see whether slurmctld runs"):
        await Slurm((script(PICKY),)).update("down", ["a", "n99999", "b"])
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


async def test_long_lists_are_split(script: Script, tmp_path: Path) -> None:
    names = [f"node-with-a-long-name-{number}-of-this-kind" for number in range(5000)]
    await Slurm((script('echo "${#2}" >>${0%/*}/calls'),)).update("resume", names)
    sizes = [int(size) for size in (tmp_path / "calls").read_text().split()]
    assert len(sizes) >= 2 and max(sizes) < 101_000 and sum(sizes) > 150_000


async def test_nothing_to_update_starts_nothing() -> None:
    await Slurm(("/nonexistent",)).update("down", [])
