"""Things that are missing or wrong when the copilot begins. One line names the cure, and where waiting helps it waits, says so at /readyz,
and goes on when the cure has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from copilot.model import Kind
from tests.e2e.begun import begun_with, ready, second_daemon
from tests.e2e.conftest import make
from tests.e2e.pace import OPTIONS, SETTINGS, looked
from tests.lab import workloads
from tests.lab.access import write_kubeconfig
from tests.lab.cluster import NAMESPACE, Cluster
from tests.lab.controlplane import TREE
from tests.lab.daemon import Line

pytestmark = pytest.mark.any_api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with make(folder, options=OPTIONS, settings=SETTINGS) as made:
        yield made


async def slurm_is_unavailable(lab: Cluster, so_far: list[Line]) -> str:
    """What is said of it: once in the log although it is asked again and again, and at /readyz as long as it lasts."""
    await looked(lab, 2)
    told = [line for line in lab.copilot.log()[len(so_far) :] if line.get("event") == "slurm_unavailable"]
    assert len(told) == 1
    words: str = told[0]["error"]
    status, text = await lab.copilot.get("/readyz")
    assert (status, words in text) == (503, True)
    assert (await lab.copilot.get("/healthz"))[0] == 200
    code, said = await lab.copilot.status()
    assert (code, said["problems"]["slurm"]) == (1, words)
    return words


async def test_slurmctld_is_down_at_the_start(lab: Cluster) -> None:
    await lab.slurm.stop_slurmctld()
    async with begun_with(lab, scontrol_timeout="1") as so_far:
        assert "see whether slurmctld runs" in await slurm_is_unavailable(lab, so_far)
        await lab.slurm.start_slurmctld()
        await lab.copilot.until("it to be ready", lambda: ready(lab))


async def test_slurm_conf_is_missing(lab: Cluster) -> None:
    conf = lab.folder / "later.conf"
    async with begun_with(lab, slurm_conf=str(conf), scontrol_timeout="1") as so_far:
        assert "slurm.conf is there" in await slurm_is_unavailable(lab, so_far)
        conf.symlink_to(lab.slurm.conf_path)
        await lab.copilot.until("it to be ready", lambda: ready(lab))


async def test_scontrol_is_missing(lab: Cluster) -> None:
    scontrol = lab.folder / "scontrol-later"
    async with begun_with(lab, scontrol=str(scontrol)) as so_far:
        words = await slurm_is_unavailable(lab, so_far)
        assert words == f"cannot run {scontrol}: No such file or directory; install slurm-client or correct the path"
        scontrol.symlink_to(lab.slurm.command("scontrol")[0])
        await lab.copilot.until("it to be ready", lambda: ready(lab))


async def test_the_target_is_missing(lab: Cluster) -> None:
    """The daemon is ready, since there is nothing to wait for; it says what it looked for."""
    await lab.settle(off=["cpu-0"])
    await lab.admin.delete(workloads.path_of(Kind.STATEFUL_SET, NAMESPACE, "cpu"))
    async with begun_with(lab) as so_far:
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        text = (await lab.copilot.get("/readyz"))[1]
        assert "no worker group found" in text
        assert "namespace slurm, sets with the label app.kubernetes.io/component=slurmd" in text
        told = [line for line in lab.copilot.log()[len(so_far) :] if line.get("what") == "targets"]
        assert len(told) == 1
        code, said = await lab.hook("slurm-resume.sh", "cpu-0")
        assert (code, "no worker group cpu in this namespace" in said) == (1, True)
        await lab.admin.post(workloads.collection(Kind.STATEFUL_SET, NAMESPACE), workloads.manifest(Kind.STATEFUL_SET, "cpu"))
        await lab.run_job("--nodelist=cpu-0")
        assert (await lab.copilot.status())[0] == 0


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 2, "--kubeconfig="),
        ("no: kubeconfig", 1, "cannot be used"),
        ("{", 1, "cannot be used"),
    ],
    ids=["missing", "no kubeconfig", "no YAML"],
)
async def test_a_kubeconfig_that_no_waiting_mends(lab: Cluster, content: str | None, code: int, words: str) -> None:
    file = lab.folder / "bad.kubeconfig"
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_text(content)
    second = second_daemon(lab, kubeconfig=str(file))
    await second.start(ready=False)
    assert await second.ended() == code
    [line] = second.log()
    assert words in (line.get("raw") or line["error"])
    assert str(file) in (line.get("raw") or line["error"])


async def pods_are_a_problem(lab: Cluster, so_far: list[Line], words: str) -> None:
    """Told once with these words, and at /readyz as long as it lasts."""

    def told() -> list[str]:
        return [line["problem"] for line in lab.copilot.log()[len(so_far) :] if line.get("what") == "pods"]

    await lab.copilot.until(words, told)
    [problem] = told()
    status, text = await lab.copilot.get("/readyz")
    assert (status, problem in text, words in problem) == (503, True, True)


async def test_a_token_that_is_not_accepted_until_it_is_replaced(lab: Cluster) -> None:
    good = Path(lab.copilot.settings["kubeconfig"]).read_text()
    file = write_kubeconfig(lab.folder / "token.kubeconfig", lab.endpoint.url, None, "wrong", NAMESPACE)
    async with begun_with(lab, kubeconfig=str(file)) as so_far:
        await pods_are_a_problem(lab, so_far, "the token is not accepted: check the kubeconfig")
        file.write_text(good)
        await lab.copilot.until("it to be ready", lambda: ready(lab))


def _role() -> dict[str, Any]:
    documents = yaml.safe_load_all((TREE / "manifests/base/rbac.yaml").read_text())
    return next(document for document in documents if document["kind"] == "Role")


def _account(lab: Cluster, resources: list[str], verb: str) -> tuple[str, str]:
    """A ServiceAccount with the Role of the manifests but for one verb on these resources: its token, and a kubeconfig."""
    role = _role()
    for rule in role["rules"]:
        if rule["resources"] == resources:
            rule["verbs"] = [each for each in rule["verbs"] if each != verb]
    assert lab.embedded is not None
    token = lab.embedded.access.service_account("small", NAMESPACE, role)
    return token, str(write_kubeconfig(lab.folder / f"no-{verb}.kubeconfig", lab.endpoint.url, None, token, NAMESPACE))


async def test_a_role_that_may_not_list_pods(lab: Cluster) -> None:
    token, kubeconfig = _account(lab, ["pods"], "list")
    async with begun_with(lab, kubeconfig=kubeconfig) as so_far:
        await pods_are_a_problem(lab, so_far, 'add the rule {apiGroups: [""], resources: [pods], verbs: [list]}')
        assert lab.embedded is not None
        lab.embedded.access.grant(token, _role(), NAMESPACE)
        await lab.copilot.until("it to be ready", lambda: ready(lab))


async def test_a_role_that_may_not_patch(lab: Cluster) -> None:
    token, kubeconfig = _account(lab, ["statefulsets"], "patch")
    async with begun_with(lab, kubeconfig=kubeconfig):
        await lab.copilot.until("it to be ready", lambda: ready(lab))
        job = await lab.sbatch("--nodelist=cpu-1")
        [told] = await lab.copilot.until_logged("target_patch_failed", outcome="rejected")
        assert "add the rule {apiGroups: [apps], resources: [statefulsets], verbs: [patch]}" in told["error"]
        code, said = await lab.copilot.status()
        assert (code, said["groups"][0]["problem"]) == (1, told["error"])
        assert lab.embedded is not None
        lab.embedded.access.grant(token, _role(), NAMESPACE)
        await lab.slurm.wait_job(job, "COMPLETED")
        assert (await lab.copilot.status())[0] == 0
