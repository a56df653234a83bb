"""`slurmctld-copilot check` against a real slurmctld and a real API server: nothing to say of a good installation, and each fault told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from copilot.model import Kind
from tests.e2e.conftest import SLURM, make
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.daemon import COMMAND, TREE
from tests.lab.slurm_conf import Workers, slurmctld_parameters

pytestmark = pytest.mark.real
OPTIONS = {
    "SlurmctldParameters": slurmctld_parameters(SLURM, "idle_on_node_suspend", "power_save_interval=1"),
    "SuspendTimeout": "60",
    "ResumeTimeout": "900",
    "SuspendTime": "300",
}
WORKERS = (Workers("cpu", 4, "cpu"),)
CONTAINER = {"command": ["slurmd", "-D", "-b"], "resources": {"limits": {"cpu": "2", "memory": "2Gi"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, kinds={"cpu": Kind.STATEFUL_SET}, workers=WORKERS, options=OPTIONS) as made:
        await give(made, CONTAINER)
        yield made


async def give(lab: Cluster, container: dict[str, Any]) -> None:
    """Changes the pod template as an administrator would."""
    target = await lab.target("cpu")
    [first] = target["spec"]["template"]["spec"]["containers"]
    changed = {key: value for key, value in {**first, **container}.items() if value is not None}
    where = "/spec/template/spec/containers/0"
    await lab.patch_target("cpu", [{"op": "replace", "path": where, "value": changed}])


async def check(lab: Cluster, **settings: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings that are not ok, by name."""
    merged = {**lab.copilot.settings, **settings}
    known = {"socket", "slurm_user", "kubeconfig", "scontrol", "slurm_conf", *settings}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in merged.items() if name in known]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "check", "--json", *flags, cwd=TREE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode in (0, 1), err.decode()
    return process.returncode, {each["name"]: each for each in json.loads(out) if each["level"] != "ok"}


async def test_a_good_installation_has_nothing_to_mend(lab: Cluster) -> None:
    code, found = await check(lab)
    assert (code, found) == (0, {})


async def test_the_daemon_that_is_down_is_told(lab: Cluster) -> None:
    await lab.copilot.stop()
    code, found = await check(lab)
    assert (code, list(found)) == (1, ["hook_socket"])
    await lab.copilot.start()


async def test_a_socket_that_does_not_obey_slurm_s_user_is_told(lab: Cluster) -> None:
    code, found = await check(lab, slurm_user="12345")
    assert code == 1
    assert "hook_socket" in found


async def test_a_hook_that_others_may_write_is_told(lab: Cluster) -> None:
    hook = lab.slurm.folder / "hooks/slurm-resume.sh"
    mode = hook.stat().st_mode
    hook.chmod(0o777)
    code, found = await check(lab)
    hook.chmod(mode)
    assert (code, list(found)) == (1, ["hook_file"])
    assert f"chmod go-w {hook}" in found["hook_file"]["cure"]


async def test_pods_that_do_not_fit_their_nodes_are_told(lab: Cluster) -> None:
    await give(lab, {"command": ["slurmd", "-D"], "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}})
    code, found = await check(lab)
    await give(lab, CONTAINER)
    assert code == 1
    assert found.keys() == {"slurmd_boots", "resources"}
    assert "CPUs up to 2, the pod 1" in found["resources"]["seen"]


async def test_nodes_that_nobody_runs_are_told(lab: Cluster) -> None:
    """The label is all that tells a set of workers: without it its nodes have no group."""
    code, found = await check(lab, worker_label="app=other")
    assert code == 1
    assert "app=other" in found["targets"]["seen"]


async def test_a_missing_right_is_told_as_the_rule_that_gives_it(lab: Cluster) -> None:
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/slurmctld-copilot"
    before = await lab.admin.get(role)
    rules = [rule for rule in before["rules"] if rule["resources"] != ["pods"]]
    await lab.admin.patch(role, {"rules": rules})
    code, found = await check(lab)
    await lab.admin.patch(role, {"rules": before["rules"]})
    assert (code, list(found)) == (1, ["kube_rights"])
    assert '- apiGroups: [""]\n  resources: [pods]\n  verbs: [get, list, watch, delete]' in found["kube_rights"]["cure"]


async def test_slurmctld_that_is_down_is_told(lab: Cluster) -> None:
    await lab.slurm.stop_slurmctld()
    code, found = await check(lab, scontrol_timeout="15")
    await lab.slurm.start_slurmctld()
    assert code == 1
    assert "slurmctld" in found


async def test_wrong_options_of_slurmctld_are_told_with_their_lines(lab: Cluster) -> None:
    """Power saving without an end (scenario 28) and the rest of what breaks it."""
    wrong = {"SuspendTime": "INFINITE", "SuspendTimeout": "10", "ReturnToService": "0", "ResumeRate": "100"}
    lab.slurm.configure(**wrong)
    await lab.slurm.scontrol("reconfigure")
    code, found = await check(lab)
    lab.slurm.configure(**{"ReturnToService": "2", "ResumeRate": "0", **OPTIONS})
    await lab.slurm.scontrol("reconfigure")
    assert code == 1
    assert found.keys() == {"suspend_time", "suspend_timeout", "return_to_service", "resume_rate"}
    assert found["suspend_time"]["cure"] == "SuspendTime=300"
