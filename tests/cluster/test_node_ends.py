"""A node leaves nothing: not on the machine's lists of mounts, links, network namespaces and control groups, nor in its folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.node import cgroups
from tests.lab.node.layout import State

TREE = Path(__file__).parents[2]


def _command(verb: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.lab.node", verb, str(folder)]


def _traces() -> dict[str, object]:
    """What a node could leave, as this process's namespaces show it. Folders are those that its programs write to by default."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    folders = ("/run", "/run/containerd", "/var/lib", "/var/lib/kubelet", "/var/lib/cni", "/var/log", "/var/log/pods", "/etc/cni")
    return {
        "mounts": Path("/proc/mounts").read_text(),
        "links": [line.split(":")[1] for line in links.splitlines()],
        "routes": routes,
        "rules": rules,
        "network namespaces": spaces,
        "folders": {
            name: sorted(path.name for path in Path(name).iterdir()) if Path(name).is_dir() else None for name in folders
        },
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
    }


def _groups(token: str) -> list[Path]:
    return [group for parent in cgroups.parents().values() for group in parent.glob(f"{cgroups.PREFIX}{token}")]


@pytest.mark.parametrize("how", ["down", "its keeper killed"])
def test_nothing_is_left(node_folder: Path, how: str) -> None:
    """In a network namespace of its own, because the tier's other node may run in this one."""
    folder = node_folder / how.split()[0]
    if "COPILOT_NODE_TRIAL" not in os.environ:
        here = f"{__file__}::{test_nothing_is_left.__name__}[{how}]"
        argv = [str(TREE / "tests/lab/isolated"), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", here]
        trial = subprocess.run(argv, env={**os.environ, "COPILOT_NODE_TRIAL": "1"}, capture_output=True, text=True, cwd=TREE)
        assert trial.returncode == 0, trial.stdout + trial.stderr
        assert "1 passed" in trial.stdout
        return
    before = _traces()
    up = subprocess.run(_command("up", folder), capture_output=True, text=True)
    assert up.returncode == 0, up.stderr
    state = State(folder)
    token, keeper, first = (folder / "token").read_text(), int(state.supervisor.read_text()), state.first.read_text()
    assert len(_groups(token)) == len(cgroups.parents())
    assert _traces() != before, "the comparison sees a node that runs"
    if how != "down":
        os.kill(keeper, signal.SIGKILL)
        _wait_gone(Path(f"/proc/{first}"))
    down = subprocess.run(_command("down", folder), capture_output=True, text=True)
    assert down.returncode == 0, down.stderr
    assert not Path(f"/proc/{first}").exists()
    assert _groups(token) == []
    assert _traces() == before


def _wait_gone(path: Path, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while path.exists():
        assert time.monotonic() < deadline, f"{path} is still there after {within} s"
        time.sleep(0.05)
