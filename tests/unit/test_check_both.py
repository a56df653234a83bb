"""Names, resources and clocks of both sides; quantities; what is printed."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copilot import check
from copilot.check import both, hooks, kubernetes
from copilot.check.finding import Finding, Level, error, ok, warning
from copilot.config import Settings
from copilot.model import Kind
from copilot.slurm import NodeConfig
from copilot.slurm.output import node_config
from tests.unit.documents import TREE, read, table, words

POD = both.Template("cpu", cpus=4, memory=8000, gpus=0, grace=30, boots_anew=True)

SOMEBODY = hooks.Who(12345, 12345, frozenset({12345}))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where anybody may go: pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def nodes(*names: str, cpus: int = 4, memory: int = 8000, gpus: int = 0, cloud: bool = True) -> list[NodeConfig]:
    return [NodeConfig(name, cpus, memory, gpus, cloud) for name in names]


def told(findings: list[Finding]) -> list[tuple[str, Level]]:
    return [(finding.name, finding.level) for finding in findings if finding.level is not Level.OK]


def test_all_fits() -> None:
    assert told(both.judge(nodes("cpu-0", "cpu-1"), ["cpu"], [POD])) == []


@pytest.mark.parametrize(
    ("there", "pod", "name", "level", "seen"),
    [
        (nodes("cpu-0", "cpu-05", "gpu-1"), POD, "nodes_without_group", Level.ERROR, "cpu-05,gpu-1"),
        (nodes("cpu-0", cloud=False), POD, "nodes_not_cloud", Level.WARNING, "cpu-0"),
        ([], POD, "group_without_nodes", Level.WARNING, "cpu"),
        (nodes("cpu-0", "cpu-1", cpus=8), POD, "resources", Level.ERROR, "cpu-[0-1] have CPUs up to 8, the pod 4"),
        (nodes("cpu-0", memory=9000), POD, "resources", Level.ERROR, "RealMemory up to 9000"),
        (nodes("cpu-0", gpus=1), POD, "resources", Level.ERROR, "Gres=gpu up to 1, the pod 0"),
        (nodes("cpu-0"), both.Template("cpu", 4, 8000, 0, 30, False), "slurmd_boots", Level.ERROR, "without"),
    ],
)
def test_what_does_not_fit(there: list[NodeConfig], pod: both.Template, name: str, level: Level, seen: str) -> None:
    found = both.judge(there, ["cpu"], [pod])
    assert told(found) == [(name, level)]
    [finding] = [finding for finding in found if finding.name == name]
    assert seen in finding.seen or seen == "without"


def test_a_pod_without_limits_may_use_its_machine() -> None:
    pod = both.template("cpu", {"containers": [{"name": "x", "command": ["slurmd", "-D", "-b"]}]})
    assert (pod.cpus, pod.memory, pod.gpus, pod.grace, pod.boots_anew) == (None, None, 0, 30.0, True)
    assert told(both.judge(nodes("cpu-0", cpus=64), ["cpu"], [pod])) == []


def test_the_container_called_slurmd_counts() -> None:
    limits = {"cpu": "2500m", "memory": "4Gi", "nvidia.com/gpu": 2}
    spec = {
        "terminationGracePeriodSeconds": 90,
        "containers": [{"name": "log"}, {"name": "slurmd", "args": ["slurmd"], "resources": {"limits": limits}}],
    }
    assert both.template("g", spec) == both.Template("g", 2.5, 4096.0, 2, 90.0, True)


@pytest.mark.parametrize(
    ("start", "boots"),
    [
        (["slurmd"], True),
        (["sh", "-c", "exec slurmd -D -b"], True),
        (["slurmd", "-Db"], True),
        (["slurmd", "-D"], False),
        (["slurmd", "-D", "--build"], False),
    ],
)
def test_whether_slurmd_boots_anew(start: list[str], boots: bool) -> None:
    assert both.template("g", {"containers": [{"args": start}]}).boots_anew is boots


@pytest.mark.parametrize(
    ("text", "number"), [("500m", 0.5), (2, 2.0), ("4Gi", 2.0**32), ("1e3", 1000.0), ("3k", 3000.0), ("x", 0.0)]
)
def test_quantities(text: object, number: float) -> None:
    assert both.quantity(text) == pytest.approx(number)


@pytest.mark.parametrize(
    ("off", "level"), [(1.0, Level.OK), (-4.0, Level.OK), (30.0, Level.WARNING), (-30.0, Level.WARNING), (-600.0, Level.ERROR)]
)
def test_clocks(off: float, level: Level) -> None:
    slurm = both.Clock(1000.0, asked=5.0, answered=5.2)
    assert both.skew(slurm, both.Clock(1000.0 + off, asked=5.2, answered=5.3)).level is level
    assert both.skew(None, slurm).level is Level.WARNING


def test_questions_that_took_long_are_no_difference_of_clocks() -> None:
    slurm = both.Clock(1000.0, asked=5.0, answered=5.2)
    assert both.skew(slurm, both.Clock(1060.0, asked=65.0, answered=65.1)).level is Level.OK, "a minute passed between them"
    assert both.skew(slurm, both.Clock(1002.0, asked=5.2, answered=65.0)).level is Level.OK, "the answer took a minute"
    assert both.skew(slurm, both.Clock(1000.0, asked=65.0, answered=65.1)).level is Level.WARNING, (
        "a minute passed, and its clock stood"
    )


@pytest.mark.parametrize(
    ("gres", "gpus"), [("(null)", 0), ("gpu:2", 2), ("gpu", 1), ("gpu:a100:4(S:0-1)", 4), ("gpu:a:1,gpu:b:2,shard:8", 3)]
)
def test_a_node_line(gres: str, gpus: int) -> None:
    line = f"NodeName=cpu-0 CPUAlloc=0 CPUTot=8 Gres={gres} NodeAddr=cpu-0 RealMemory=1000 State=IDLE+CLOUD+POWERED_DOWN Reason=CPUTot=9"
    assert node_config(line) == NodeConfig("cpu-0", 8, 1000, gpus, True)
    assert node_config("Node nope not found") is None


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ('Successfully pulled image "x" in 1m2.5s (1m2.5s including waiting). Image size: 5 bytes.', 62.5),
        ('Successfully pulled image "x" in 340ms (340ms including waiting)', 0.34),
        ('Successfully pulled image "x" in 1h0m3s', 3603.0),
        ('Container image "x" already present on machine', 0.0),
    ],
)
def test_how_long_a_pull_took(message: str, seconds: float) -> None:
    assert kubernetes.pull_seconds(message) == pytest.approx(seconds)


def test_no_target_and_a_group_twice() -> None:
    assert told(kubernetes.judge_targets([], Settings(), "ns")) == [("targets", Level.ERROR)]
    obj: dict[str, Any] = {"metadata": {"namespace": "ns", "name": "cpu", "uid": "u"}, "spec": {"replicas": 0}}
    both_kinds = [(Kind.STATEFUL_SET, obj), (Kind.ADVANCED_STATEFUL_SET, obj)]
    names = [name for name, _ in told(kubernetes.judge_targets(both_kinds, Settings(), "ns"))]
    assert names == ["group_twice", "parallel", "parallel"]


@pytest.mark.parametrize(("mode", "level"), [(0o755, Level.OK), (0o775, Level.ERROR), (0o700, Level.ERROR), (0o777, Level.ERROR)])
def test_a_hook_file(open_folder: Path, mode: int, level: Level) -> None:
    hook = open_folder / "slurm-resume.sh"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(mode)
    assert hooks.file(hook, SOMEBODY).level is level
    assert hooks.file(open_folder / "none", hooks.Who(0, 0, frozenset())).level is Level.WARNING


def test_a_hook_in_a_closed_folder(open_folder: Path) -> None:
    hook = open_folder / "slurm-resume.sh"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    open_folder.chmod(0o700)
    found = hooks.file(hook, SOMEBODY)
    assert (found.level, found.cure) == (Level.ERROR, f"chmod a+x {open_folder}")
    assert hooks.file(hook, hooks.Who(0, 0, frozenset())).level is Level.OK


def test_what_is_printed_and_what_fails() -> None:
    findings = [ok("a", "fine"), warning("long_name", "seen", "why", "line"), error("c", "bad", "why", "one\ntwo")]
    lines = check.as_text(findings).splitlines()
    assert lines[0] == "ok       a          fine"
    assert "  why: why" in lines[2]
    assert lines[3].endswith("change: line")
    assert lines[-1] == "1 ok, 1 warning, 1 error"
    assert [each["level"] for each in json.loads(check.as_json(findings))] == ["ok", "warning", "error"]
    assert check.failed(findings)
    assert not check.failed(findings[:2])


def test_every_check_is_documented() -> None:
    text = "".join(path.read_text() for path in (TREE / "copilot/check").glob("*.py"))
    names = set(re.findall(r'(?:ok|warning|error|judge_by)\(\s*"([a-z_]+)"', text)) | set(
        re.findall(r'^    name(?:, \w+)? = "([a-z_]+)"', text, re.MULTILINE)
    )
    names |= {
        "resume_program",
        "suspend_program",
        "resume_fail_program",
        "prolog_slurmctld",
        "resume_rate",
        "suspend_rate",
        "clocks",
    }
    assert names == {words(row[0])[0] for row in table(read("docs/check.md"), "check")}
