"""README.md against the code: tables, commands, manifests, slurm.conf; and the links of every document."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from copilot import __version__, config, targets
from copilot.config import Settings
from copilot.model import Kind
from copilot.plan import What
from tests.lab.slurm_conf import DEFAULT_WORKERS, Network, render
from tests.unit.documents import TREE, anchors, blocks, links, read, table, words

README = read("README.md")
DOCUMENTS = ["README.md", "CHANGELOG.md", *sorted(f"docs/{path.name}" for path in (TREE / "docs").glob("*.md"))]
MANIFESTS = [yaml.safe_load(block) for block in blocks(README, "yaml")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for link in links(read(document)):
        path, _, fragment = link.partition("#")
        if "://" in path:
            continue
        target = (TREE / document).parent / path if path else TREE / document
        assert target.exists(), link
        assert not fragment or fragment in anchors(target.read_text()), link


def test_every_setting_is_told() -> None:
    assert config.reference() in README


def test_every_kind_of_target_is_told() -> None:
    assert [words(row[0])[0] for row in table(README, "kind (`targets`)")] == list(config.TARGETS)


def test_the_settings_of_the_hooks_are_those_that_the_scripts_read() -> None:
    scripts = "".join(path.read_text() for path in sorted((TREE / "scripts").iterdir()))
    told = {words(row[0])[0]: row[1] for row in table(README[README.index("### Settings of the hooks") :], "setting")}
    assert told.keys() == set(re.findall(r"COPILOT_[A-Z_]+", scripts))
    for name, default in re.findall(r"\$\{(COPILOT_[A-Z_]+):-([^}]+)\}", scripts):
        assert told[name] in (f"`{default}`", "none"), name


def logged() -> set[str]:
    """Every event name that the code logs: the first argument of a logger's call, and what the decision says."""
    names = {what.value for what in What}
    for source in sorted((TREE / "copilot").rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("debug", "info", "warning", "error", "exception")
            ):
                names |= {
                    first.value for first in node.args[:1] if isinstance(first, ast.Constant) and isinstance(first.value, str)
                }
    return names


def test_the_events_of_the_troubleshooting_are_logged_by_the_code() -> None:
    told = {words(row[0])[0] for row in table(README, "event")}
    assert told <= logged()


def test_make_targets_that_are_named_exist() -> None:
    named = set(re.findall(r"`make ([a-z0-9-]+)", README))
    there = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    assert {"demo", "test"} < named
    assert named <= there


@pytest.mark.parametrize(("kind", "group"), [(Kind.SLURM_CLUSTER, "demo-worker-gpu"), (Kind.STATEFUL_SET, "cpu")])
def test_the_targets_of_the_installation_are_read_without_complaint(kind: Kind, group: str) -> None:
    (manifest,) = [each for each in MANIFESTS if each.get("kind", "").lower() == kind]
    assert targets.collection(kind, "slurm").startswith(f"/apis/{manifest['apiVersion']}/")
    manifest["metadata"] |= {"uid": "uid", "generation": 1}
    target = targets.read(kind, manifest)
    assert [each.name for each in target.groups] == [group]
    assert target.warnings == ()
    if kind is Kind.STATEFUL_SET:
        label, _, value = Settings().worker_label.partition("=")
        assert manifest["metadata"]["labels"] == {label: value}


def test_the_sidecar_fits_the_defaults() -> None:
    (pod,) = [each for each in MANIFESTS if "containers" in each]
    account = next(yaml.safe_load_all(read("manifests/base/rbac.yaml")))
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    copilot = _named(pod["containers"], "copilot")
    mounts = {each["name"]: each["mountPath"] for container in pod["containers"] for each in container["volumeMounts"]}
    assert mounts["copilot-socket"] == str(Settings().socket.parent)
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    assert (listen := Settings().listen) is not None
    assert copilot["ports"][0] == {"name": copilot["livenessProbe"]["httpGet"]["port"], "containerPort": listen.port}
    assert {each["name"] for each in copilot["env"]} <= {row.variable for row in config.TABLE}
    assert f"{mounts['slurm-hooks']}/hooks.conf" in read("scripts/copilot-hook.sh")
    assert f"ResumeProgram={mounts['slurm-hooks']}/slurm-resume.sh" in README


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def test_slurm_conf_is_what_the_tests_run_with() -> None:
    """The lab's slurm.conf, with which real slurmctlds of each version run, has every line but paths and times."""
    later, old = (block.splitlines() for block in blocks(README, "conf"))
    programs = [line.partition("=")[2] for line in later if "Program=" in line or line.startswith("Prolog")]
    assert {Path(name).name for name in programs} == {path.name for path in (TREE / "scripts").glob("slurm-*.sh")}
    own = [line for line in later if not re.match(r"\w+Program=|Prolog|\w+Time(out)?=|AuthInfo=", line)]
    network = Network("head", "127.0.0.1")
    for version in ("24.11", "26.05"):
        assert set(own) <= set(_lines(version, network)), version
    replaced = {line.partition("=")[0] for line in old} | {"ReconfigFlags"}
    assert {*old, *(line for line in own if line.partition("=")[0] not in replaced)} <= set(_lines("22.05", network))
    assert not any(line.startswith("ReconfigFlags") for line in _lines("22.05", network))


def _lines(version: str, network: Network) -> list[str]:
    return render(version, Path("/lab"), network, DEFAULT_WORKERS, (), {}).splitlines()


def test_the_changelog_tells_of_this_version() -> None:
    assert f"## [{__version__}]" in read("CHANGELOG.md")
