"""The images' entrypoints in real pods: each thing that is missing is one sentence and exit code 78; signals end a role at once."""

from __future__ import annotations

import secrets as random
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.cluster.pods import apply, delete, execute, hardened, outcome, pod, run, service, until
from tests.lab.endpoint import Object
from tests.lab.node import State, kubectl

SLURM = "lab.local/slurm:24.11"
CONF = """ClusterName=entry
SlurmctldHost=entry
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/nowhere
"""
MISSING = 78


def _object(kind: str, name: str, data: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name},
        ("stringData" if kind == "Secret" else "data"): dict(data),
    }


@pytest.fixture(scope="module")
def parts(loaded: State) -> Iterator[State]:
    """The node with Secrets and ConfigMaps, good and bad ones, that the cases mount."""
    objects = [
        _object("Secret", "munge", {"munge.key": random.token_hex(64)}),
        _object("Secret", "short", {"munge.key": "short"}),
        _object("Secret", "password", {"password": random.token_hex(8)}),
        _object("Secret", "poor", {"password": "1234"}),
        _object("ConfigMap", "conf", {"slurm.conf": CONF}),
        _object("ConfigMap", "stranger", {"slurm.conf": CONF.replace("slurm\n", "nobodyknows\n")}),
        _object("ConfigMap", "other", {"slurm.conf": "NodeName=x\n"}),
    ]
    apply(loaded, *objects)
    yield loaded
    delete(loaded, *objects)


MUNGE = {"munge": "/run/secrets/munge"}
PASSWORD = {"password": "/run/secrets/ldap"}
ETC = {"conf": "/etc/slurm"}
BASE = {"LDAP_BASE": "dc=example,dc=org"}


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start an image, and words of the sentence in which it says why it does not."""

    args: tuple[str, ...]
    says: str
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    image: str = SLURM


CASES = {
    "no role": Case((), "say which role"),
    "strange role": Case(("controller",), "no such role: slurmctld, slurmd"),
    "no munge key": Case(("slurmctld",), "munge key is missing: mount the cluster's Secret"),
    "no munge key for a worker": Case(("slurmd",), "slurmd: the munge key is missing"),
    "short munge key": Case(("slurmd",), "shorter than 32 bytes", secrets={"short": "/run/secrets/munge"}),
    "no slurm.conf": Case(("slurmd",), "slurm.conf is missing: mount it as /etc/slurm/slurm.conf", secrets=MUNGE),
    "not a slurm.conf": Case(("copilot",), "has no ClusterName", secrets=MUNGE, config={"other": "/etc/slurm"}),
    "no base for LDAP": Case(("slurmd",), "LDAP_BASE is not", {"LDAP_URI": "ldap://ldap"}, MUNGE, ETC),
    "no LDAP password": Case(
        ("slurmd",), "/x cannot be read", {"LDAP_URI": "ldap://l", **BASE, "LDAP_PASSWORD_FILE": "/x"}, MUNGE, ETC
    ),
    "no state": Case(("slurmctld",), "StateSaveLocation /nowhere is not here", secrets=MUNGE, config=ETC),
    "strange SlurmUser": Case(("slurmctld",), "nobodyknows", secrets=MUNGE, config={"stranger": "/etc/slurm"}),
    "no slurmdbd.conf": Case(("slurmdbd",), "slurmdbd.conf is missing", secrets=MUNGE),
    "no host keys": Case(("login",), "host keys are missing: mount a Secret", secrets=MUNGE, config=ETC),
    "no suffix": Case((), "LDAP_BASE must be the directory's suffix", image="lab.local/openldap:2.5"),
    "no password": Case((), "administrator's password is missing", BASE, image="lab.local/openldap:2.5"),
    "poor password": Case((), "fewer than 8", BASE, {"poor": "/run/secrets/ldap"}, image="lab.local/openldap:2.5"),
    "no server": Case((), "LDAP_URI must name", BASE, image="lab.local/phpldapadmin:1.2"),
}


@pytest.fixture(scope="module")
def outcomes(parts: State) -> dict[str, tuple[int, str]]:
    """Exit code and words of each case; they all run at once."""
    pods = {
        name: pod(f"entry-{number}", case.image, case.args, env=case.env, secrets=case.secrets, config=case.config)
        for number, (name, case) in enumerate(CASES.items())
    }
    apply(parts, *pods.values())
    try:
        return {name: outcome(parts, one) for name, one in pods.items()}
    finally:
        delete(parts, *pods.values())


@pytest.mark.parametrize("name", CASES)
def test_what_is_missing_is_one_sentence(outcomes: dict[str, tuple[int, str]], name: str) -> None:
    case = CASES[name]
    code, text = outcomes[name]
    assert code == MISSING, text
    lines = text.strip().splitlines()
    assert case.says in lines[-1]
    assert [line for line in lines if "no LDAP_URI" not in line] == lines[-1:], "one sentence, and no more"


def test_slurmdbd_gets_a_configuration_that_only_it_can_read(parts: State) -> None:
    """Without a database it says so and asks again; a configuration that others can read it would refuse."""
    conf = "AuthType=auth/munge\nDbdHost=localhost\nSlurmUser=slurm\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStorageUser=slurm\n"
    given = _object("ConfigMap", "dbd", {"slurmdbd.conf": conf})
    mounted = {**MUNGE, "password": "/run/secrets/database"}
    env = {"SLURMDBD_CONF": "/run/given/slurmdbd.conf", "SLURMDBD_PASSWORD_FILE": "/run/secrets/database/password"}
    one = hardened(
        pod("dbd", SLURM, ["slurmdbd"], env=env, secrets=mounted, config={"dbd": "/run/given"}),
        "/run/munge",
        "/run/slurm",
        "/var/log/slurm",
        "/tmp",
        user=64030,
    )
    apply(parts, given, one)
    try:
        log = until(lambda: _when_said(parts, "dbd", "Can't connect"), "slurmdbd to miss its database")
        assert "fatal" not in log, log
        assert execute(
            parts, "dbd", "stat -c %a /run/slurm/slurmdbd.conf; grep -c ^StoragePass= /run/slurm/slurmdbd.conf"
        ).split() == ["600", "1"]
    finally:
        delete(parts, given, one)


def test_the_page_is_served_without_root(parts: State) -> None:
    env = {"LDAP_URI": "ldap://nobody", **BASE}
    page = hardened(pod("page", "lab.local/phpldapadmin:1.2", env=env), "/run/phpldapadmin", "/tmp", user=33)
    front = service("page", ports=[{"port": 80, "targetPort": 8080}])
    apply(parts, page, front)
    try:
        address = kubectl(parts, "get", "service", "page", "-o", "jsonpath={.spec.clusterIP}")
        text = until(lambda: _fetch(address), "the page to be served")
        assert "phpLDAPadmin" in text and "Slurm users" in text, text[:3000]
    finally:
        delete(parts, page, front)


def _fetch(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=10) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def _when_said(node: State, name: str, words: str) -> str:
    try:
        log = kubectl(node, "logs", name)
    except subprocess.CalledProcessError:
        return ""
    return log if words in log else ""


def test_the_copilot_tells_its_version(parts: State) -> None:
    code, text = run(parts, pod("version", SLURM, command=["/slurmctld-copilot", "--version"]))
    assert (code, text.startswith("slurmctld-copilot ")) == (0, True), text


def test_a_role_ends_at_once_when_told(parts: State) -> None:
    """kubelet's SIGTERM reaches the program; else the pod would last its whole grace period, here far longer than the deadline."""
    one = pod("told", SLURM, ["copilot"], secrets=MUNGE, config=ETC, terminationGracePeriodSeconds=600)
    apply(parts, one)
    try:
        until(lambda: "slurmctld-copilot serve" in _processes(parts, "told"), "the copilot to run")
        processes = _processes(parts, "told")
        assert processes.startswith("/usr/bin/tini -- /entrypoint.sh copilot"), processes
        begin = time.monotonic()
        kubectl(parts, "delete", "pod", "told", "--wait=true", "--timeout=60s")
        assert time.monotonic() - begin < 60
    finally:
        delete(parts, one)


def _processes(node: State, name: str) -> str:
    try:
        return execute(node, name, "ps -ww -eo args= --sort=pid")
    except AssertionError:  # the container does not run yet
        return ""
