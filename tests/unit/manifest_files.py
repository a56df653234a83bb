"""The manifests as files, and whether slurm.conf and the worker sets say the same; for machines without kubectl too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from copilot import hostlist

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
Object = dict[str, Any]
_LABEL: Final = "app.kubernetes.io/component"


@dataclass(frozen=True, slots=True)
class Size:
    """What a worker has, or a node is said to have. Memory in MiB."""

    cpus: int
    memory: int
    gpus: int


def documents(folder: Path) -> list[Object]:
    """Every object in the files that a kustomization names, and in those that it builds upon; patches are not applied."""
    names = _kustomization(folder).get("resources", [])
    found: list[Object] = []
    for path in ((folder / name).resolve() for name in names):
        found += documents(path) if path.is_dir() else [one for one in yaml.safe_load_all(path.read_text()) if one]
    return found


def slurm_files(folder: Path) -> dict[str, str]:
    """The keys of the ConfigMap slurm-conf, an overlay's own over those of what it builds upon."""
    kustomization = _kustomization(folder)
    files: dict[str, str] = {}
    for name in [*kustomization.get("resources", []), *kustomization.get("components", [])]:
        if (folder / name).is_dir():
            files |= slurm_files((folder / name).resolve())
    for one in kustomization.get("configMapGenerator", []):
        if one["name"] == "slurm-conf":
            files |= {Path(name).name: (folder / name).read_text() for name in one["files"]}
    return files


def _kustomization(folder: Path) -> Object:
    loaded: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return loaded


def pod_templates(objects: Sequence[Object]) -> dict[str, Object]:
    """The pod template of every worker group, by the group's name in node names. A SlurmCluster runs the workers in the sets' place."""
    clusters = [one for one in objects if one["kind"] == "SlurmCluster"]
    if clusters:
        return {
            f"{one['metadata']['name']}-worker-{group['groupName']}": group["template"]
            for one in clusters
            for group in one["spec"]["workerGroupSpecs"]
        }
    sets = [one for one in objects if one["kind"] == "StatefulSet" and one["metadata"]["labels"].get(_LABEL) == "slurmd"]
    return {one["metadata"]["name"]: one["spec"]["template"] for one in sets}


def disagreements(objects: Sequence[Object], files: Mapping[str, str]) -> list[str]:
    """A sentence for each worker group and each node that the other side does not know, or knows with another size."""
    groups = {name: _size(template) for name, template in pod_templates(objects).items()}
    nodes = dict(_nodes(files))
    wrong = [f"no NodeName line for the worker group {name}" for name in groups if name not in {_group(node) for node in nodes}]
    for node, claimed in nodes.items():
        has = groups.get(_group(node))
        if has is None:
            wrong.append(f"{node}: no worker group has this name")
        elif (claimed.cpus, claimed.gpus) != (has.cpus, has.gpus):
            wrong.append(f"{node}: {claimed} and its pod has {has}")
        # slurmd and what it starts for itself need some; a claim far below the pod is a mistake too.
        elif not 0.5 * has.memory < claimed.memory < has.memory:
            wrong.append(f"{node}: RealMemory={claimed.memory} and its pod has {has.memory} MiB, of which some is slurmd's")
    return wrong


def settings(files: Mapping[str, str]) -> dict[str, str]:
    """slurm.conf and what it includes as keys in lower case and values; lines of nodes and partitions are left out."""
    return {line[0].lower(): line[2] for line in _lines(files) if line[0].lower() not in ("nodename", "partitionname")}


def _lines(files: Mapping[str, str], name: str = "slurm.conf") -> Iterator[tuple[str, str, str]]:
    for line in re.sub(r"#.*|\\\n", "", files[name]).splitlines():
        included = re.fullmatch(r"\s*Include\s+(\S+)\s*", line, re.IGNORECASE)
        if included:
            yield from _lines(files, included[1])
        elif line.strip():
            yield line.strip().partition("=")


def _nodes(files: Mapping[str, str]) -> Iterator[tuple[str, Size]]:
    for key, _, value in _lines(files):
        if key.lower() == "nodename":
            names, _, rest = value.partition(" ")
            words = dict(word.split("=", 1) for word in rest.split())
            gpus = re.fullmatch(r"gpu:(?:\w+:)?(\d+)", words.get("Gres", ""))
            size = Size(int(words["CPUs"]), int(words["RealMemory"]), int(gpus[1]) if gpus else 0)
            yield from ((name, size) for name in hostlist.expand(names))


def _group(node: str) -> str:
    return node.rpartition("-")[0]


def _size(template: Object) -> Size:
    (container,) = (one for one in template["spec"]["containers"] if one["name"] == "slurmd")
    limits = container["resources"]["limits"]
    assert limits["memory"].endswith("Gi"), "the only unit that is read here"
    return Size(int(limits["cpu"]), int(limits["memory"][:-2]) * 1024, int(limits.get("nvidia.com/gpu", 0)))
