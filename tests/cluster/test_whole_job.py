"""A user of the directory: logs in, runs a job on powered-down workers, finds its log in his home and its record in the accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab.whole import overlay
from tests.lab.whole.overlay import BASE


def test_he_logs_in_through_a_forwarded_port(whole: Whole) -> None:
    with whole.forwarded("service/login", 22) as port:
        assert whole.ssh("pwd", port=port).stdout.strip() == f"/home/{whole.user.name}"


def test_a_wrong_password_and_an_unknown_user_are_refused(whole: Whole) -> None:
    for user in (replace(whole.user, password="a wrong one"), replace(whole.user, name="nobody-knows-him")):
        refused = whole.ssh("true", user)
        assert refused.returncode == 255 and "Permission denied" in refused.stderr, refused


def test_a_locked_user_is_refused(whole: Whole) -> None:
    entry = f"dn: uid={whole.user.name},ou=people,{BASE}\nchangetype: modify\n"
    lock = "replace: pwdAccountLockedTime\npwdAccountLockedTime: 000001010000Z\n"
    overlay.directory(whole.node, "ldapmodify", entry + lock)
    try:
        assert whole.ssh("true").returncode == 255
    finally:
        overlay.directory(whole.node, "ldapmodify", f"{entry}delete: pwdAccountLockedTime\n")
    assert whole.ssh("true").returncode == 0


@pytest.fixture(scope="module")
def job(whole: Whole) -> int:
    """One that has run on three workers which were powered down."""
    asked = {f"cpu-{index}" for index in (1, 2, 3)}
    assert {whole.node_states()[name] for name in asked} == {"idle~"} and not asked & whole.workers()
    number = whole.submit("-N3 -w cpu-[1-3]", "srun sh -c 'hostname; id -u'")
    whole.until_state(number, "COMPLETED", 90)
    return number


def test_the_job_ran_on_three_workers_under_his_number(whole: Whole, job: int) -> None:
    said = whole.shell(f"cat slurm-{job}.out").split()
    assert sorted(said) == sorted([*(f"cpu-{index}" for index in (1, 2, 3)), *[str(whole.user.number)] * 3])


def test_its_log_in_the_shared_home_is_his(whole: Whole, job: int) -> None:
    assert whole.shell(f"stat -c %u slurm-{job}.out") == str(whole.user.number)


def test_the_accounts_outlive_slurmdbd_and_its_database(whole: Whole, job: int) -> None:
    def record() -> str:
        return whole.ssh(f"sacct -X -n -P -j {job} -o user,nodelist,state").stdout.strip()

    wanted = f"{whole.user.name}|cpu-[1-3]|COMPLETED"
    until(lambda: record() == wanted, f"the record {wanted}")
    whole.kubectl("delete", "pod", "mariadb-0", "slurmdbd-0", "--wait=true")
    whole.kubectl("rollout", "status", "statefulset/mariadb", "statefulset/slurmdbd", "--timeout=120s")
    until(lambda: record() == wanted, f"the record {wanted} after the restart")
