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
"""
# The two functions of entrypoint.sh that fit.sh uses, as they are there.
SCRIPT = r"""
set -euo pipefail
role=slurmd
eval "$(grep -E '^(say|conf)\(\) ' "$3/entrypoint.sh")"
source "$3/fit.sh"
fit "$2" "$1"
echo "$SLURM_CONF"
"""


def _fit(folder: Path, node: str, **pod: str) -> tuple[Path, list[str]]:
    """The slurm.conf that slurmd would use, and what was said."""
    if shutil.which("scontrol") is None:
        pytest.skip("scontrol is not installed (tests/lab/install slurm-22.05)")
    conf = folder / "etc/slurm.conf"
    conf.parent.mkdir()
    conf.write_text(CONF)
    (conf.parent / "gres.conf").write_text("")
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(conf), **{f"POD_{key}": value for key, value in pod.items()}}
    done = subprocess.run(["bash", "-c", SCRIPT, "fit", folder, node, BIN], env=env, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()), done.stderr.splitlines()


@pytest.mark.parametrize(
    ("node", "pod", "claims"),
    [
        ("a-2", {"CPUS": "4", "MEMORY_MIB": "1000"}, ["the pod has 4 CPUs and slurm.conf claims 8"]),
        ("b-03", {"MEMORY_MIB": "999"}, ["the pod has 999 MiB of memory and slurm.conf claims 1000"]),
        ("a-0", {"GPUS": "2"}, ["the pod has 2 GPUs and slurm.conf claims 4"]),
        ("c-1", {"CPUS": "1", "MEMORY_MIB": "300"}, ["the pod has 300 MiB of memory and slurm.conf claims 400"]),
        ("c-1", {"CPUS": "1", "MEMORY_MIB": "400", "GPUS": "0"}, []),
        ("b-3", {"CPUS": "1"}, []),  # slurm.conf has b-03
        ("stranger-0", {"CPUS": "1", "MEMORY_MIB": "1", "GPUS": "0"}, []),
        ("a-2", {}, []),
        ("a-2", {"CPUS": "a few"}, []),
    ],
)
def test_what_is_said(tmp_path: Path, node: str, pod: dict[str, str], claims: list[str]) -> None:
    _, said = _fit(tmp_path, node, **pod)
    advice = ": raise the pod's resources or lower the NodeName line"
    assert said == [f"slurmd: node {node}: {claim}{advice}" for claim in claims]


def test_slurmd_keeps_its_configuration_where_the_pod_is_large_enough(tmp_path: Path) -> None:
    conf, _ = _fit(tmp_path, "a-2", CPUS="8", MEMORY_MIB="2000", GPUS="1")
    assert conf == tmp_path / "etc/slurm.conf", "missing GPUs are found by slurmd itself"


def test_slurmd_reports_what_the_pod_has(tmp_path: Path) -> None:
    conf, _ = _fit(tmp_path, "c-1", CPUS="1", MEMORY_MIB="300")
    assert (conf.parent / "gres.conf").exists(), "the folder's other files come along"
    lines = [" ".join(line.split()) for line in conf.read_text().splitlines() if line.strip()]
    assert "NodeName=c-[0-3] CPUs=1 RealMemory=300" in lines
    assert "NodeName=DEFAULT Sockets=2 CoresPerSocket=4 RealMemory=300" in lines
    assert "SlurmdParameters=l3cache_as_socket,config_overrides" in lines
    assert "PartitionName=all Nodes=ALL" in lines


def test_fewer_cpus_replace_the_sockets_too(tmp_path: Path) -> None:
    conf, _ = _fit(tmp_path, "a-2", CPUS="4")
    assert "NodeName=DEFAULT RealMemory=1000 CPUs=4" in conf.read_text()
    assert "Sockets" not in conf.read_text()
