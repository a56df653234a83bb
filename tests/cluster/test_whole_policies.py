"""The NetworkPolicies in effect: who reaches whom, and that neither users nor their jobs notice any of it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.cluster import pods
from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.node import kubectl
from tests.lab.whole import overlay
from tests.lab.whole.policies import enforced

# By component. 60500 is one of SrunPortRange, and somebody listens there in the login pod and in the workers.
PORTS: Final = {
    "slurmctld": (6817, 9817),
    "slurmd": (6818, 60500),
    "slurmdbd": (6819,),
    "login": (22, 60500),
    "openldap": (1389, 1636),
    "phpldapadmin": (8080,),
    "mariadb": (3306,),
}
EVERYWHERE: Final = {f"{component}:{port}" for component, ports in PORTS.items() for port in ports}
LDAP: Final = {"openldap:1389", "openldap:1636"}
SSH: Final = "login:22"
MAY: Final = {
    "slurmctld": {SSH, *LDAP, "slurmdbd:6819", "slurmd:6818", "slurmd:60500", "login:60500"},
    "slurmd": {SSH, *LDAP, "slurmctld:6817", "slurmdbd:6819", "slurmd:6818", "slurmd:60500", "login:60500"},
    "slurmdbd": {SSH, *LDAP, "slurmctld:6817", "mariadb:3306"},
    "login": {*LDAP, "slurmctld:6817", "slurmdbd:6819", "slurmd:6818"},
    "stranger": {SSH},
}
LISTENER: Final = "timeout 300 python3 -m http.server 60500"
FIRST, SECOND = "cpu-8", "cpu-9"


@pytest.fixture(scope="module")
def addresses(whole: Whole) -> Iterator[dict[str, str]]:
    """Of a pod of each component, and of those that ask; workers and the login pod listen as srun does."""
    job = whole.submit(f"-N2 -w {FIRST},{SECOND}", f"srun {LISTENER}")
    stranger = pods.pod("stranger", "slurm:24.11", command=["sleep", "600"])
    pods.apply(whole.node, stranger)
    try:
        whole.until_state(job, "RUNNING", 90)
        whole.shell(f"{LISTENER} >/dev/null 2>&1 & echo")
        kubectl(whole.node, "wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s")
        seen = {one["metadata"]["labels"]["app.kubernetes.io/component"]: one["status"]["podIP"] for one in whole.pods()}
        named = {one["metadata"]["name"]: one["status"]["podIP"] for one in whole.pods("slurmd")}
        yield {**seen, "slurmd": named[SECOND]}
    finally:
        whole.head(f"scancel {job}")
        whole.shell("pkill -u $(id -u) python3 || true")
        pods.delete(whole.node, stranger)


def reached(whole: Whole, addresses: dict[str, str], who: str) -> set[str]:
    """Where a pod of that kind gets a connection."""
    tries = [
        f'(timeout 10 bash -c "</dev/tcp/{addresses[component]}/{port}" 2>/dev/null && echo {component}:{port}) &'
        for component, ports in PORTS.items()
        for port in ports
        if component != who or who == "slurmd"
    ]
    script = " ".join([*tries, "wait"])
    if who == "stranger":
        return set(pods.execute(whole.node, "stranger", script).split())
    names = {"slurmctld": "head-0", "slurmd": FIRST, "slurmdbd": "slurmdbd-0", "login": "deployment/login"}
    container = "slurmctld" if who == "slurmctld" else ""
    return set(overlay.execute(whole.node, names[who], "bash", "-c", script, container=container).split())


def all_reached(whole: Whole, addresses: dict[str, str]) -> dict[str, set[str]]:
    with ThreadPoolExecutor() as pool:
        asked = {who: pool.submit(reached, whole, addresses, who) for who in MAY}
        return {who: one.result() for who, one in asked.items()}


def test_each_reaches_what_it_needs_and_nothing_else(whole: Whole, addresses: dict[str, str]) -> None:
    until(lambda: "slurmd:60500" in reached(whole, addresses, "slurmd"), "the job to listen")
    before = all_reached(whole, addresses)
    for who, places in before.items():
        own = {place for place in EVERYWHERE if place.startswith(f"{who}:") and who != "slurmd"}
        assert places == EVERYWHERE - own, f"without the policies {who} reaches everything"
    with enforced(whole.node):
        assert all_reached(whole, addresses) == MAY


def test_users_and_jobs_notice_nothing(whole: Whole) -> None:
    """Names, accounts, workers that come up, steps from the login pod and between workers."""
    with enforced(whole.node):
        assert set(whole.shell("srun -N2 -w cpu-[1,4] hostname").split()) == {"cpu-1", "cpu-4"}
        assert whole.shell("salloc -Q -N1 -w sparse-0 -p sparse srun hostname") == "sparse-0"
        job = whole.submit("-N2 -w cpu-[1,4]", "srun sh -c 'hostname; id -un'")
        whole.until_state(job, "COMPLETED", 90)
        said = whole.shell(f"cat slurm-{job}.out").split()
        assert sorted(said) == sorted(["cpu-1", "cpu-4", whole.user.name, whole.user.name])
        until(lambda: whole.ssh(f"sacct -X -n -P -j {job} -o state").stdout.strip() == "COMPLETED", "the account of the job")
        waiting = whole.submit("-N1 -w cpu-4", "srun sleep 600")
        whole.until_state(waiting, "RUNNING", 90)
        whole.shell(f"scancel {waiting}")
        whole.until_state(waiting, "CANCELLED")
