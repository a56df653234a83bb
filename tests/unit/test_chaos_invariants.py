"""Each invariant of chaos is seen to fail on a history that breaks it, and to hold on its neighbour that does not."""

from __future__ import annotations

from dataclasses import replace

from copilot.model import Kind
from tests.chaos.history import Asked, Deleted, History, Hooked, Job, Looked, Span, Stopped
from tests.chaos.invariants import GAP, MEMORY, PATIENCE, violations

KINDS = {"cpu": Kind.STATEFUL_SET, "gpu": Kind.ADVANCED_STATEFUL_SET, "demo-worker-a": Kind.SLURM_CLUSTER}
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
COMING = frozenset({"MIXED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"})
RUNS = frozenset({"MIXED", "CLOUD"})
GOING = frozenset({"IDLE", "CLOUD", "POWERING_DOWN"})


def history(*looks: tuple[float, dict[str, frozenset[str]]]) -> History:
    """Looks at the given times, each of which took a tenth of a second."""
    return History(dict(KINDS), looks=[Looked(at, at + 0.1, states) for at, states in looks], ended=1000.0)


def asked(at: float, group: str, *indexes: int, by_hand: bool = False) -> Asked:
    return Asked(at, group, KINDS[group], len(indexes), frozenset(indexes), by_hand=by_hand)


def listed(at: float, replicas: int, *deletes: int) -> Asked:
    """A SlurmCluster's group, which says only how many."""
    return Asked(at, "demo-worker-a", Kind.SLURM_CLUSTER, replicas, None, frozenset(deletes))


def words(seen: History) -> list[str]:
    return [one.words for one in violations(seen)]


def test_nothing_is_wrong_with_a_good_life() -> None:
    states = (OFF, COMING, RUNS, GOING, OFF)
    seen = history(*((10.0 * number, {"cpu-1": each}) for number, each in enumerate(states)))
    seen.asked = [asked(11, "cpu", 1), asked(31, "cpu")]
    seen.stopped = [Stopped(32, "cpu-1", 0)]
    seen.jobs = [Job("op0", 1, False, "COMPLETED", 0)]
    assert not violations(seen)


# No pod of a node with a running job


def taken(by_hand: bool, after: frozenset[str] = RUNS, then: float = 21.0) -> History:
    seen = history((19, {"gpu-1": RUNS}), (then, {"gpu-1": after}))
    seen.asked = [asked(10, "gpu", 1, by_hand=True), asked(20, "gpu", by_hand=by_hand)]
    return seen


def test_a_target_that_drops_a_node_with_a_job() -> None:
    [found] = violations(taken(by_hand=False))
    assert "took the pod of gpu-1" in found.words
    assert found.nodes == {"gpu-1"}


def test_but_not_an_edit_of_ours_nor_a_node_whose_job_ended() -> None:
    assert not violations(taken(by_hand=True))
    assert not violations(taken(by_hand=False, after=GOING))


def test_what_nobody_saw_is_not_judged() -> None:
    assert not violations(taken(by_hand=False, then=21 + GAP))


def test_a_slurmcluster_that_names_a_node_with_a_job_to_be_deleted() -> None:
    seen = history((19, {"demo-worker-a-1": RUNS}), (21, {"demo-worker-a-1": RUNS}))
    seen.asked = [listed(10, 1), listed(20, 0, 1)]
    assert words(seen) == ["the copilot took the pod of demo-worker-a-1, which ran a job"]


def test_a_pod_that_the_copilot_deletes_under_a_job() -> None:
    seen = history((19, {"cpu-0": RUNS}), (21, {"cpu-0": RUNS}))
    seen.deleted = [Deleted(20, "cpu-0", by_hand=False)]
    assert words(seen) == ["the copilot took the pod of cpu-0, which ran a job"]
    seen.deleted = [Deleted(20, "cpu-0", by_hand=True)]
    assert not violations(seen)


def ended_with_a_step(*causes: Asked, spans: list[Span] | None = None) -> History:
    seen = history((1, {"cpu-1": RUNS}))
    seen.asked, seen.stopped, seen.spans = list(causes), [Stopped(21, "cpu-1", 1)], spans or []
    return seen


def test_a_container_that_the_copilot_ends_with_a_step_in_it() -> None:
    seen = ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu"))
    assert words(seen) == ["the container of cpu-1 was ended by the copilot with 1 job steps in it"]


def test_but_not_one_that_we_ended_or_whose_job_slurmctld_forgot() -> None:
    assert not violations(ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu", by_hand=True)))
    forgotten = [Span(10, 12, "kill -9 slurmctld", harm=True, forgets=True)]
    assert not violations(ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu"), spans=forgotten))
    frozen = [Span(10, 12, "5 freeze slurmd cpu-1 for 2.0 s", harm=True)]
    assert not violations(ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu"), spans=frozen))
    lowered = [Span(10, 12, "5 edit replicas cpu count=1", harm=True)]
    assert not violations(ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu"), spans=lowered))
    other = [Span(10, 12, "5 freeze slurmd cpu-11 for 2.0 s", harm=True)]
    assert violations(ended_with_a_step(asked(5, "cpu", 1), asked(20, "cpu"), spans=other))


# No more than was wanted


def grown(*asks: Asked, at: float = 10) -> History:
    seen = history((at, {"cpu-1": COMING, "cpu-3": COMING, "gpu-2": COMING, "demo-worker-a-2": COMING}))
    seen.asked = list(asks)
    return seen


def test_a_target_asks_for_what_nobody_wanted() -> None:
    assert words(grown(asked(11, "gpu", 2, 5))) == ["gpu asked for [5] too, when [2] were wanted"]
    assert words(grown(asked(11, "cpu", 1, 2, 3, 4))) == ["cpu asked for [4] too, when [1, 3] were wanted"]
    assert words(grown(listed(11, 2))) == ["demo-worker-a asked for 2 replicas when [2] were wanted"]


def test_but_it_may_ask_for_the_window_for_what_it_had_and_for_what_we_wrote() -> None:
    assert not violations(grown(asked(11, "cpu", 1, 2, 3)))
    assert not violations(grown(asked(11, "gpu", 5, by_hand=True), asked(12, "gpu", 2, 5)))
    assert not violations(grown(listed(11, 1)))


def test_what_is_there_may_stay_for_a_grace() -> None:
    seen = grown(listed(11, 2), asked(11, "gpu", 2, 5))
    seen.looks[0] = replace(seen.looks[0], running=frozenset({"demo-worker-a-4", "gpu-5"}))
    assert not violations(seen)


def test_and_for_what_it_had_before_somebody_lowered_it() -> None:
    assert not violations(_lowered(by=1))
    assert violations(_lowered(by=1 + MEMORY))


def _lowered(by: float) -> History:
    """Three replicas were lowered by hand to none; so many seconds later the copilot asks for three again."""
    seen = grown(listed(11, 3), Asked(12, "demo-worker-a", Kind.SLURM_CLUSTER, 0, None, by_hand=True), listed(12 + by, 3))
    seen.asked[0] = Asked(11, "demo-worker-a", Kind.SLURM_CLUSTER, 3, None, by_hand=True)
    return seen


def test_a_wish_is_over_some_time() -> None:
    late = history((10, {"gpu-2": COMING}), (20, {"gpu-2": OFF}), (21 + MEMORY, {"gpu-2": OFF}), (22 + MEMORY, {"gpu-2": OFF}))
    late.asked = [asked(21.5 + MEMORY, "gpu", 2)]
    assert words(late) == ["gpu asked for [2] too, when [] were wanted"]


def test_a_hook_is_a_wish() -> None:
    seen = grown(asked(11, "gpu", 5))
    seen.hooks = [Hooked(10.5, "resume", frozenset({"gpu-5"}))]
    assert not violations(seen)
    seen.hooks = [Hooked(10.5, "suspend", frozenset({"gpu-5"}))]
    assert violations(seen)


def test_fewer_than_none() -> None:
    seen = grown(Asked(11, "gpu", Kind.ADVANCED_STATEFUL_SET, -1, frozenset()))
    assert words(seen) == ["gpu asked for -1 replicas"]


# No wish is lost


def waiting(seconds: float, *spans: Span) -> History:
    """gpu-2 is POWERING_UP for so long, looked at every second, and nobody asks for it."""
    seen = history(*((float(at), {"gpu-2": COMING}) for at in range(int(seconds))))
    seen.asked, seen.spans = [asked(-1, "gpu")], list(spans)
    return seen


def test_a_node_that_is_powered_up_in_vain() -> None:
    assert words(waiting(PATIENCE + 5)) == ["gpu-2 is POWERING_UP and was not asked for within 45 calm seconds"]
    assert not violations(waiting(PATIENCE - 5))


def test_time_in_which_something_is_out_of_order_does_not_count() -> None:
    assert not violations(waiting(PATIENCE + 5, Span(10, 20, "API server away")))


# Jobs


def ended(job: Job, *spans: Span) -> list[str]:
    seen = history()
    seen.jobs, seen.spans = [job], list(spans)
    return words(seen)


def test_jobs_that_do_not_end_well() -> None:
    assert ended(Job("op1", 5, False, "NODE_FAIL", 0)) == ["job op1 is NODE_FAIL"]
    assert ended(Job("op1", 5, False, "CANCELLED", 0)) == ["job op1 is CANCELLED"]
    assert ended(Job("op1", 5, True, "PENDING (Resources)", 0)) == ["job op1 is PENDING (Resources)"]
    assert ended(Job("op1", 5, False, "", 0)) == ["job op1 is unknown to Slurm"]
    assert not ended(Job("op1", 5, True, "CANCELLED", 0))


def test_a_second_start_needs_a_fault_that_explains_it() -> None:
    again = Job("op1", 5, False, "COMPLETED", 1)
    assert ended(again) == ["job op1 was started 2 times, and no fault explains it"]
    assert ended(again, Span(6, 7, "API server away"))
    assert ended(again, Span(3, 4, "drain", harm=True))
    assert not ended(again, Span(6, 7, "drain", harm=True))


def test_a_job_may_be_forgotten_with_a_slurmctld_that_was_killed_and_else_never() -> None:
    gone = Job("op1", 50, False, "", 0)
    assert not ended(gone, Span(52, 53, "kill -9 slurmctld", harm=True, forgets=True))
    assert ended(gone, Span(52 + MEMORY, 90, "kill -9 slurmctld", harm=True, forgets=True))
    assert ended(gone, Span(52, 53, "delete pod", harm=True))
    assert ended(gone, Span(52, 53, "restart slurmctld")), "one that ends in order has written all down"


def test_the_copilot_ended_by_itself() -> None:
    seen = history()
    seen.faults = [(5.0, "the copilot ended by itself")]
    assert words(seen) == ["the copilot ended by itself"]
