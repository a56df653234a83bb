"""slurm.conf and the worker sets agree: in every overlay, and a difference would be seen."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import yaml

from tests.unit.manifest_files import MANIFESTS, Object, disagreements, documents, pod_templates, settings, slurm_files

FOLDERS = ["base", *(f"overlays/{one.name}" for one in sorted((MANIFESTS / "overlays").iterdir()))]
DEMO = MANIFESTS / "overlays/demo"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_node_has_a_worker_group_of_its_size_and_the_reverse(folder: str) -> None:
    objects = documents(MANIFESTS / folder)
    assert pod_templates(objects)
    assert disagreements(objects, slurm_files(MANIFESTS / folder)) == []


def test_the_overlays_have_the_groups_that_they_name() -> None:
    groups = {folder: set(pod_templates(documents(MANIFESTS / folder))) for folder in FOLDERS}
    assert groups == {
        "base": {"cpu"},
        "overlays/demo": {"cpu", "sparse"},
        "overlays/ack": {"slurm-worker-cpu", "slurm-worker-gpu"},
    }


def _limits(objects: list[Object]) -> dict[str, str]:
    found: dict[str, str] = pod_templates(objects)["sparse"]["spec"]["containers"][0]["resources"]["limits"]
    return found


def _rename(objects: list[Object]) -> None:
    next(one for one in objects if one["metadata"]["name"] == "sparse")["metadata"]["name"] = "spare"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda objects: _limits(objects).update(cpu="2"),
            "sparse-0: Size(cpus=1, memory=900, gpus=0) and its pod has Size(cpus=2",
        ),
        (lambda objects: _limits(objects).update(memory="4Gi"), "sparse-0: RealMemory=900 and its pod has 4096 MiB"),
        (
            lambda objects: _limits(objects).update({"nvidia.com/gpu": "1"}),
            "sparse-0: Size(cpus=1, memory=900, gpus=0) and its pod",
        ),
        (_rename, "no NodeName line for the worker group spare"),
    ],
    ids=["cpu", "memory", "gpu", "name"],
)
def test_a_worker_set_that_differs_is_seen(change: Callable[[list[Object]], None], said: str) -> None:
    objects = copy.deepcopy(documents(DEMO))
    change(objects)
    assert disagreements(objects, slurm_files(DEMO))[0].startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sparse-[0-9]", "spare-[0-9]", "no NodeName line for the worker group sparse"),
        ("sparse-[0-9] CPUs=1", "sparse-[0-9] CPUs=3", "sparse-0: Size(cpus=3"),
        ("sparse-[0-9] CPUs=1 RealMemory=900", "sparse-[0-9] CPUs=1 RealMemory=1024", "sparse-0: RealMemory=1024"),
        ("sparse-[0-9] CPUs=1", "sparse-[0-9] Gres=gpu:a100:2 CPUs=1", "sparse-0: Size(cpus=1, memory=900, gpus=2)"),
        ("NodeName=cpu", "NodeName=x-7 CPUs=1 RealMemory=1\nNodeName=cpu", "x-7: no worker group has this name"),
    ],
)
def test_a_node_line_that_differs_is_seen(old: str, new: str, said: str) -> None:
    files = slurm_files(DEMO)
    assert old in files["nodes.conf"]
    files["nodes.conf"] = files["nodes.conf"].replace(old, new)
    assert disagreements(documents(DEMO), files)[0].startswith(said)


@pytest.mark.parametrize("folder", FOLDERS)
def test_power_saving_is_on_and_leaves_a_pod_time_to_go(folder: str) -> None:
    conf = settings(slurm_files(MANIFESTS / folder))
    assert {conf[key] for key in ("resumerate", "suspendrate")} == {"0"}
    assert {conf[f"{key}program"] for key in ("resume", "suspend", "resumefail")} == {
        "/slurm-resume.sh",
        "/slurm-suspend.sh",
        "/slurm-resume-fail.sh",
    }
    grace = _grace()
    assert int(conf["suspendtime"]) > 0
    assert grace + 10 <= int(conf["suspendtimeout"]), "else slurmctld takes a pod for gone that still runs"


def _grace() -> int:
    """Seconds that Kubernetes gives a worker to end."""
    worker = yaml.safe_load((MANIFESTS / "base/worker/worker.yaml").read_text())
    return int(worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def test_older_slurm_gets_the_lines_that_it_needs() -> None:
    newer, older = (settings({"slurm.conf": text}) for text in _power())
    assert older["slurmctldparameters"] == newer["slurmctldparameters"] + ",cloud_reg_addrs"
    assert older.keys() - newer.keys() == {"communicationparameters", "treewidth", "privatedata"}
    assert newer.keys() - older.keys() == {"reconfigflags"}


def _power() -> list[str]:
    return [(MANIFESTS / name / "power.conf").read_text() for name in ("base/slurm", "components/slurm-22.05")]
