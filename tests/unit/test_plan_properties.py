"""The decision in a simulated world where everything goes wrong at random (design: section 2), and then nothing does any more.

With COPILOT_PROPERTY_EXAMPLES (see conftest) more worlds are tried, new ones each time, and a failing one is shrunk to the fewest events.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from copilot.model import Kind, Phase
from tests.unit.copilot_life import Faults, Life
from tests.unit.slurm_life import Power

Event = Callable[[Life, int], None]


def _name(life: Life, which: int) -> str:
    return sorted(life.members)[which % len(life.members)]


def _submit(life: Life, which: int) -> None:
    life.slurm.submit(1 + which % 3, float(3 + which % 30))


def _cancel(life: Life, which: int) -> None:
    if life.slurm.jobs:
        life.slurm.cancel(life.slurm.jobs[which % len(life.slurm.jobs)], life.now)


def _drain(life: Life, which: int) -> None:
    life.slurm.update("drain", _name(life, which), "broken fan [root@1]", life.now)


def _down(life: Life, which: int) -> None:
    life.slurm.update("down", _name(life, which), "broken fan [root@1]", life.now)


def _undrain(life: Life, which: int) -> None:
    life.slurm.update("resume", _name(life, which), "", life.now)


def _power_down(life: Life, which: int) -> None:
    machine = life.slurm.machines[_name(life, which)]
    machine.power_down = machine.power is Power.ON


def _kill_pod(life: Life, which: int) -> None:
    life.cluster.end(_name(life, which), life.now, grace=float(which % 3))


def _restart_container(life: Life, which: int) -> None:
    life.cluster.restart(_name(life, which), life.now)


def _orphan(life: Life, which: int) -> None:
    """Somebody else scales the target."""
    life.cluster.patch(frozenset(range(which % 4)), frozenset())


def _unlisted(life: Life, which: int) -> None:
    machine = life.slurm.machines[_name(life, which)]
    machine.listed = not machine.listed


def _crash(life: Life, which: int) -> None:
    life.slurm.crash(life.now, float(which % 5))


def _forget(life: Life, which: int) -> None:
    del which
    life.forget()


def _faults(life: Life, which: int) -> None:
    """Each bit of the number is a fault; the others end."""
    bits = [bool(which & 1 << bit) for bit in range(8)]
    life.faults = Faults(
        hooks_lost=0.6 * bits[0],
        hooks_doubled=0.6 * bits[1],
        hooks_late=5.0 * bits[2],
        looks_fail=bits[3],
        looks_late=4.0 * bits[4],
        pods_stale=bits[5],
        patches_fail=bits[6],
        acts_late=4.0 * bits[7],
    )


def _stuck(life: Life, which: int) -> None:
    life.cluster.stuck = bool(which % 2)


# those that stand twice happen twice as often
EVENTS: tuple[Event, ...] = (
    *(_submit, _submit, _cancel, _drain, _down, _undrain, _power_down),
    *(_kill_pod, _restart_container, _orphan, _unlisted, _crash, _forget, _faults, _faults, _stuck),
)

# Long stories: one fault rarely does harm, two or three that meet do. Fewer than `min_size` make dull worlds.
steps = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.integers(0, 255), st.sampled_from([0.5, 1.0, 1.0, 2.0, 5.0, 15.0, 40.0])),
    min_size=12,
    max_size=30,
)
worlds = st.tuples(st.sampled_from(list(Kind)), st.sampled_from(["at once", "late", "never"]), st.integers(0, 2**16))


def calm(life: Life) -> None:
    """All faults end, and an administrator puts right what administrators did. Pods that will never start are somebody's to delete."""
    life.faults = Faults()
    life.cluster.stuck = False
    for run in list(life.cluster.runs.values()):
        if run.starts == float("inf"):
            life.cluster.end(run.name, life.now)
    # A job that had died before the copilot could have known is its user's to cancel.
    for job in [job for job in life.slurm.jobs if not life.detectable(job)]:
        life.slurm.cancel(job, life.now)
    for machine in life.slurm.machines.values():
        machine.listed = True
        machine.drained = False
        if machine.by_admin or machine.reason.startswith("broken fan"):
            machine.down = machine.by_admin = False


def until(life: Life, condition: Callable[[], bool], seconds: float) -> bool:
    """Lets time pass until something is so; False when it is not so in time."""
    deadline = life.now + seconds
    while life.now < deadline and not condition():
        life.run(1.0)
    return condition()


def _story(life: Life) -> str:
    states = {name: node.state for name, node in life.slurm.view(life.now).items()}
    return f"{states}\n{life.cluster.runs}\n{life.cluster.target_object}\n{life.tracks}\n{[(j.nodes, j.started) for j in life.slurm.jobs]}\n{life.said_updates}"


@settings(max_examples=settings().max_examples * 3 // 2)
@given(worlds, steps)
def test_whatever_happens_all_is_well_some_time_after_it_stops(
    world: tuple[Kind, str, int], events: list[tuple[Event, int, float]]
) -> None:
    life = Life(world[0], world[2], world[1])
    life.slurm.submit(2, 40.0)
    life.run(6)
    for event, which, pause in events:
        event(life, which)
        life.run(pause)
    calm(life)
    # Slurm's own waits: ResumeTimeout, then the release, then SuspendTimeout, and the requeue; and the jobs one after the other
    assert until(life, lambda: settled(life), 150 + 50 * len(life.slurm.jobs)), f"not settled\n{_story(life)}"
    life.slurm.submit(len(life.members), 30.0)
    assert until(life, lambda: awake(life), 150), f"not awake\n{_story(life)}"
    assert until(life, lambda: asleep(life), 200), f"not asleep\n{_story(life)}"


def settled(life: Life) -> bool:
    """Every job has run to its end."""
    return not life.slurm.jobs


def awake(life: Life) -> bool:
    """A job runs on all nodes: what is wanted is what the target asks for is what runs is what is registered."""
    alive = life.cluster.alive(life.now)
    return (
        any(job.homes == alive for job in life.slurm.jobs)
        and alive.keys() == life.members.keys()
        and life.made is not None
        and life.made.desired.get(life.group.name) == frozenset(range(len(life.members)))
        and life.cluster.target.states[0].replicas == len(life.members)
        and all(life.tracks[name].phase is Phase.UP for name in life.members)
    )


def asleep(life: Life) -> bool:
    """Slurm has all nodes off and usable, no pod is left, nothing is asked for, and nothing is remembered but why nodes failed."""
    if life.made is None or not life.made.desired.keys():
        return False
    return (
        all(machine.power is Power.OFF and not machine.down for machine in life.slurm.machines.values())
        and not life.cluster.runs
        and not life.cluster.target.states[0].replicas
        and not life.made.desired[life.group.name]
        and all(track.failure is not None for track in life.tracks.values())
    )
