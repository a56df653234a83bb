"""Which node names can be pods, and where the API keeps what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot import targets
from copilot.model import Kind, TargetRef, WorkerGroup

REF = TargetRef(Kind.STATEFUL_SET, "hpc", "gpu")


@given(group=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True), index=st.integers(0, 2**31 - 1))
def test_every_node_of_a_group_is_split_again(group: str, index: int) -> None:
    assert targets.split_node(WorkerGroup(group, REF).node(index)) == (group, index)


@pytest.mark.parametrize(
    "name",
    [
        "gpu-01",
        "gpu-00",
        "gpu",
        "gpu-",
        "-1",
        "gpu1",
        "gpu-1a",
        "gpu-1-",
        "GPU-1",
        "gpu-2147483648",
        "gpu-99999999999",
        "gpu_a-1",
        "gpu-1\n",
        "gpu-١",
        "gpu--",
        "",
        "x" * 252 + "-1",
        "gpu-1.x",
        "gpu-[1-3]",
        "-gpu-1",
        "g%2f-1",
        "g/../x-1",
    ],
)
def test_names_that_no_pod_can_have(name: str) -> None:
    assert targets.split_node(name) is None


def test_the_last_number_is_the_index() -> None:
    assert targets.split_node("rack-3-gpu-a-12") == ("rack-3-gpu-a", 12)
    assert targets.split_node("demo-worker-cpu-0") == ("demo-worker-cpu", 0)


def test_paths() -> None:
    assert targets.path(REF) == "/apis/apps/v1/namespaces/hpc/statefulsets/gpu"
    assert targets.collection(Kind.SLURM_CLUSTER, "hpc") == "/apis/kai.alibabacloud.com/v1/namespaces/hpc/slurmclusters"
    assert targets.collection(Kind.ADVANCED_STATEFUL_SET, "hpc") == "/apis/apps.kruise.io/v1beta1/namespaces/hpc/statefulsets"
