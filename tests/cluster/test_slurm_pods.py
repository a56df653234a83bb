"""Slurm in pods of the image, without the copilot: a job of a user from LDAP, and a pod that is smaller than slurm.conf claims."""

from __future__ import annotations

import os
import secrets as random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.pods import apply, delete, execute, hardened, outcome, pod, service, until
from tests.lab.endpoint import Object
from tests.lab.node import State, kubectl

BASE = "dc=example,dc=org"
PASSWORD = "a good password"
CONF = """ClusterName=pods
SlurmctldHost=head(head.default.svc.cluster.local)
SlurmUser=slurm
AuthType=auth/munge
SlurmctldPidFile=/run/slurm/slurmctld.pid
StateSaveLocation=/state/slurmctld
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName=worker,small CPUs=1 RealMemory=400
PartitionName=all Nodes=ALL Default=YES State=UP
"""
USER = f"""dn: uid=ada,ou=people,{BASE}
objectClass: inetOrgPerson
objectClass: posixAccount
cn: Ada
sn: Lovelace
uid: ada
uidNumber: 20001
gidNumber: 20001
homeDirectory: /home/ada
loginShell: /bin/bash
userPassword: {PASSWORD}

dn: cn=ada,ou=groups,{BASE}
objectClass: posixGroup
cn: ada
gidNumber: 20001
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    """The pods of one version, and how to log in: `key` is Ada's, `folder` has the askpass script."""

    node: State
    version: str
    folder: Path

    def within(self, name: str, script: str) -> str:
        return execute(self.node, name, script)

    def ssh(self, user: str, command: str, password: str = "") -> subprocess.CompletedProcess[str]:
        """With Ada's key, or with a password if one is given."""
        options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "NumberOfPasswordPrompts=1",
            "ConnectTimeout=10",
        ]
        options += (
            ["PreferredAuthentications=password", "PubkeyAuthentication=no"]
            if password
            else ["BatchMode=yes", f"IdentityFile={self.folder}/ada"]
        )
        address = kubectl(self.node, "get", "service", "login", "-o", "jsonpath={.spec.clusterIP}")
        argv = ["ssh", *(word for option in options for word in ("-o", option)), f"{user}@{address}", command]
        env = {**os.environ, "SSH_ASKPASS": f"{self.folder}/askpass", "SSH_ASKPASS_REQUIRE": "force", "SECRET": password}
        return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def directory(self, tool: str, ldif: str) -> None:
        """ldapadd or ldapmodify as the administrator."""
        argv = [
            "exec",
            "-i",
            "directory",
            "--",
            tool,
            "-x",
            "-H",
            "ldap://127.0.0.1:1389",
            "-D",
            f"cn=admin,{BASE}",
            "-y",
            "/run/secrets/ldap/password",
        ]
        kubectl(self.node, *argv, text=ldif)


@pytest.fixture(scope="module", params=["24.11", "22.05"])
def slurm(loaded: State, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A head, a worker, one that is too small, a login and a directory with one user."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "ada"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "askpass").write_text('#!/bin/sh\necho "$SECRET"\n')
    (folder / "askpass").chmod(0o755)
    objects = [*_files(request.param, folder), *_services(), *_pods(f"lab.local/slurm:{request.param}")]
    apply(loaded, *objects)
    try:
        kubectl(loaded, "wait", "--for=condition=Ready", *(f"pod/{name}" for name in PODS), "--timeout=60s")
        one = Slurm(loaded, request.param, folder)
        until(lambda: _adds_user(one), "the directory to answer")
        yield one
    finally:
        delete(loaded, *objects)


PODS = ("directory", "head", "worker", "login")


def _files(version: str, folder: Path) -> list[Object]:
    conf = {"slurm.conf": CONF, **({} if version == "22.05" else {"cgroup.conf": "CgroupPlugin=disabled\n"})}
    secrets = {
        "munge": {"munge.key": random.token_hex(64)},
        "ldap": {"password": random.token_hex(12)},
        "host-keys": {"ssh_host_ed25519_key": (folder / "host").read_text()},
        "keys": {"ada": (folder / "ada.pub").read_text()},
    }
    objects: list[Object] = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slurm"}, "data": conf}]
    objects += [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data} for name, data in secrets.items()
    ]
    return objects


def _services() -> list[Object]:
    headless = [
        service(name, clusterIP="None", publishNotReadyAddresses=True) for name in ("head", "worker", "small", "directory")
    ]
    return [*headless, service("login", ports=[{"port": 22}])]


def _pods(image: str) -> list[Object]:
    users = {"LDAP_URI": "ldap://directory:1389", "LDAP_BASE": BASE}
    munge, conf = {"munge": "/run/secrets/munge"}, {"slurm": "/etc/slurm"}
    keys = {**munge, "host-keys": "/run/secrets/ssh-host-keys", "keys": "/run/secrets/authorized-keys"}
    head = pod("head", image, ["slurmctld"], env=users, secrets=munge, config=conf)
    directory = pod("directory", "lab.local/openldap:2.5", env={"LDAP_BASE": BASE}, secrets={"ldap": "/run/secrets/ldap"})
    # slurmctld runs as SlurmUser from the start.
    return [
        hardened(directory, "/var/lib/ldap", "/run/slapd", user=911),
        hardened(head, "/state", "/run/munge", "/run/nslcd", "/run/slurm", "/tmp", user=64030),
        pod("worker", image, ["slurmd"], env={**users, "POD_CPUS": "1", "POD_MEMORY_MIB": "400"}, secrets=munge, config=conf),
        pod("small", image, ["slurmd"], env={"POD_CPUS": "1", "POD_MEMORY_MIB": "300"}, secrets=munge, config=conf),
        pod("login", image, ["login"], env=users, secrets=keys, config=conf),
    ]


def _adds_user(slurm: Slurm) -> bool:
    try:
        slurm.directory("ldapadd", USER)
    except subprocess.CalledProcessError as error:
        if "Already exists" not in error.stderr:
            return False
    return True


@pytest.mark.parametrize("where", ["head", "worker", "login"])
def test_every_role_knows_the_directory_s_users(slurm: Slurm, where: str) -> None:
    known = until(lambda: slurm.within(where, "getent passwd ada || true"), "the user to be known")
    assert known.split(":")[2] == "20001"


def test_slurmctld_finds_its_state_s_folder_safe(slurm: Slurm) -> None:
    # 2: the volume's setgid bit (fsGroup) is inherited
    assert slurm.within("head", "stat -c '%U %a' /state/slurmctld") == "slurm 2700"
    assert "SECURITY" not in kubectl(slurm.node, "logs", "head")


def test_login_by_key_makes_the_home(slurm: Slurm) -> None:
    done = slurm.ssh("ada", "id -un; pwd")
    assert done.stdout.split() == ["ada", "/home/ada"], done.stderr


def test_login_by_password(slurm: Slurm) -> None:
    assert slurm.ssh("ada", "id -u", PASSWORD).stdout.strip() == "20001"


def test_wrong_password_unknown_user_and_root_are_refused(slurm: Slurm) -> None:
    for user, password in (("ada", "a wrong password"), ("bob", PASSWORD), ("root", PASSWORD)):
        refused = slurm.ssh(user, "id", password)
        assert refused.returncode == 255 and "Permission denied" in refused.stderr, (user, refused)


def test_a_locked_user_is_refused(slurm: Slurm) -> None:
    entry = f"dn: uid=ada,ou=people,{BASE}\nchangetype: modify\n"
    slurm.directory("ldapmodify", f"{entry}replace: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n")
    try:
        assert slurm.ssh("ada", "id", PASSWORD).returncode == 255
    finally:
        slurm.directory("ldapmodify", f"{entry}delete: pwdAccountLockedTime\n")
    assert slurm.ssh("ada", "id -un", PASSWORD).stdout.strip() == "ada"


def test_a_job_runs_as_the_user_who_logged_in(slurm: Slurm) -> None:
    until(lambda: slurm.within("head", "sinfo -h -n worker -o %T") == "idle", "the worker to register")
    done = slurm.ssh("ada", "srun -w worker sh -c 'id -un; hostname'", PASSWORD)
    assert done.stdout.split() == ["ada", "worker"], done.stderr


def test_a_worker_smaller_than_its_node_line_does_not_start(slurm: Slurm) -> None:
    code, log = outcome(slurm.node, {"metadata": {"name": "small"}})
    said = "node small is smaller than promised: the pod has 300 MiB of memory where slurm.conf claims 400"
    assert code == 78 and said in log
    message = "jsonpath={.status.containerStatuses[0].state.terminated.message}"
    assert kubectl(slurm.node, "get", "pod", "small", "-o", message).startswith(said), "the pod's status names the cause"
