"""What a worker's entrypoint makes of its pod's size and slurm.conf, with the real scontrol to read hostlists."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BIN = Path(__file__).parents[2] / "images/slurm/bin"
CONF = """ClusterName=x
SlurmctldHost=head
SlurmdParameters=l3cache_as_socket # kept
NodeName=DEFAULT Sockets=2 CoresPerSocket=4 RealMemory=1000
NodeName=a-[0-3],b-[01-04] Gres=gpu:a100:4,shard:8 State=CLOUD
NodeName=c-[0-3] CPUs=1 \\
  RealMemory=400 # RealMemory=9
PartitionName=all Nodes=ALL
Include more.conf # beside this file
"""
MORE = "NodeName=i-[0-1] CPUs=2 RealMemory=500\n"
# With what fit.sh uses of entrypoint.sh.
SCRIPT = r"""
set -euo pipefail
missing() { echo "$*"; exit 78; }
source "$2/fit.sh"
fit "$1"
"""


def _fit(folder: Path, node: str, **pod: str) -> tuple[int, str]:
    """The exit code and what was said."""
    if shutil.which("scontrol") is None:
        pytest.skip("scontrol is not installed (tests/lab/install slurm-22.05)")
    conf = folder / "slurm.conf"
    conf.write_text(CONF)
    (folder / "more.conf").write_text(MORE)
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(conf), **{f"POD_{key}": value for key, value in pod.items()}}
    done = subprocess.run(["bash", "-c", SCRIPT, "fit", node, BIN], env=env, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize(
    ("node", "pod", "claims"),
    [
        ("a-2", {"CPUS": "4", "MEMORY_MIB": "1000"}, "4 CPUs where slurm.conf claims 8"),
        ("b-03", {"MEMORY_MIB": "999"}, "999 MiB of memory where slurm.conf claims 1000"),
        ("a-0", {"GPUS": "2"}, "2 GPUs where slurm.conf claims 4"),
        ("c-1", {"CPUS": "1", "MEMORY_MIB": "300"}, "300 MiB of memory where slurm.conf claims 400"),
        ("i-1", {"CPUS": "1", "MEMORY_MIB": "500"}, "1 CPUs where slurm.conf claims 2"),
        ("c-1", {"CPUS": "1", "MEMORY_MIB": "400", "GPUS": "0"}, ""),
        ("b-3", {"CPUS": "1"}, ""),  # slurm.conf has b-03
        ("stranger-0", {"CPUS": "1", "MEMORY_MIB": "1", "GPUS": "0"}, ""),
        ("a-2", {}, ""),
        ("a-2", {"CPUS": "a few"}, ""),
    ],
)
def test_what_is_said(tmp_path: Path, node: str, pod: dict[str, str], claims: str) -> None:
    code, said = _fit(tmp_path, node, **pod)
    cure = "raise the pod's resources or lower the NodeName line"
    expected = (78, f"node {node} is smaller than promised: the pod has {claims}; {cure}") if claims else (0, "")
    assert (code, said) == expected


def test_all_that_is_short_is_in_one_sentence(tmp_path: Path) -> None:
    _, said = _fit(tmp_path, "a-2", CPUS="4", MEMORY_MIB="900", GPUS="4")
    assert "the pod has 4 CPUs where slurm.conf claims 8, 900 MiB of memory where slurm.conf claims 1000;" in said
