"""From zero: any three of an OpenKruise set, two partitions, a cancelled job, the head lost in the middle. And back: test_whole_timers.py."""

from __future__ import annotations

from tests.cluster.pods import until
from tests.cluster.whole import Whole


def test_any_three_of_an_openkruise_set(whole: Whole) -> None:
    asked = {"sparse-2", "sparse-5", "sparse-7"}
    assert not asked & whole.workers()
    job = whole.submit("-p sparse -N3 -w sparse-[2,5,7]", "srun hostname")
    whole.until_state(job, "COMPLETED", 90)
    assert set(whole.shell(f"cat slurm-{job}.out").split()) == asked
    assert whole.workers() & {f"sparse-{index}" for index in (1, 3, 4, 6)} == set(), "none between them was started"


def test_two_partitions_at_once_each_with_its_own_set(whole: Whole) -> None:
    jobs = {part: whole.submit(f"-p {part} -N2 -w {part}-[0,3]", "srun hostname") for part in ("cpu", "sparse")}
    for part, job in jobs.items():
        whole.until_state(job, "COMPLETED", 90)
        assert set(whole.shell(f"cat slurm-{job}.out").split()) == {f"{part}-0", f"{part}-3"}


def test_a_job_that_is_cancelled_while_its_nodes_come_up_leaves_nothing_wrong(whole: Whole) -> None:
    # Not `true`: where ssh is slow, the nodes are up before the job is cancelled.
    job = whole.submit("-p sparse -N2 -w sparse-[8-9]", "sleep 600")
    until(lambda: whole.workers() >= {"sparse-8", "sparse-9"}, "the pods to be made")
    whole.shell(f"scancel {job}")
    until(lambda: whole.state(job) == "CANCELLED", "the job to be cancelled")
    until(
        lambda: {whole.node_states()[name].rstrip("~") for name in ("sparse-8", "sparse-9")} == {"idle"}, "its nodes to be idle"
    )


def test_the_head_lost_in_the_middle_of_a_resume(whole: Whole) -> None:
    running = whole.submit("-N1 -w cpu-5", "until test -e end; do sleep 0.5; done; echo survived")
    whole.until_state(running, "RUNNING", 90)
    coming = whole.submit("-N2 -w cpu-[6-7]", "srun hostname")
    until(lambda: whole.workers() & {"cpu-6", "cpu-7"}, "the first of its pods to be made")
    whole.kubectl("delete", "pod", "head-0", "--wait=true")
    whole.kubectl("rollout", "status", "statefulset/head", "--timeout=120s")
    whole.until_state(coming, "COMPLETED", 120)
    assert whole.state(running) == "RUNNING"
    whole.shell("touch end")
    whole.until_state(running, "COMPLETED", 120)
    assert whole.shell(f"cat slurm-{running}.out") == "survived"
    assert set(whole.shell(f"cat slurm-{coming}.out").split()) == {"cpu-6", "cpu-7"}
