"""Random operations under random faults on the whole cluster: in the end all jobs have ended well, every node is off, and no pod is left.

`make chaos KUBERNETES=node` does it with any seed and length.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.operations import WILD, Class, Operation, operations
from tests.cluster.pods import until
from tests.cluster.trouble import ACTS, SkippedError, Stage, ended_badly
from tests.cluster.whole import Whole

SEED = int(os.environ.get("COPILOT_CHAOS_SEED", "4"))
LENGTH = int(os.environ.get("COPILOT_CHAOS_OPERATIONS", "40"))
# How much slower than in the plan all goes: real pods on two cores take their time.
PACE = 2.5
# A failed job waits for its old credential to expire, a container that was killed often for kubelet's back-off.
JOBS_END, REST = 400.0, 240.0


def plan(seed: int, length: int) -> list[Operation]:
    """Those of a longer plan that can be done to real pods."""
    possible = [one for one in operations(seed, 3 * length, WILD | {Class.REAL}) if one.sort in ACTS]
    return possible[:length]


def play(stage: Stage, operations: Sequence[Operation], told: list[str]) -> None:
    """Does them in their time, side by side; what became of each is added to `told`."""
    began = time.monotonic()

    def do(op: Operation) -> None:
        at = time.monotonic() - began
        try:
            ACTS[op.sort](stage, op)
        except SkippedError as why:
            told.append(f"{at:6.1f} s  {op}  (skipped: {why})")
        except (AssertionError, subprocess.SubprocessError) as error:
            # It met one of the faults, as an administrator's command would.
            words = " ".join(str(getattr(error, "stderr", "") or error).split())
            told.append(f"{at:6.1f} s  {op}  (refused: {words[:120]})")
        else:
            told.append(f"{at:6.1f} s  {op}")

    with ThreadPoolExecutor(8) as pool:
        for op in operations:
            time.sleep(max(0.0, began + (op.at - operations[0].at) * PACE - time.monotonic()))
            pool.submit(do, op)


@pytest.mark.timeout(3600)
def test_all_comes_right_in_the_end(whole: Whole) -> None:
    stage, told = Stage(whole), list[str]()
    began = whole.head("date +%FT%T")
    play(stage, plan(SEED, LENGTH), told)
    # GROUPS of trouble.py
    trace = f"seed {SEED}, {LENGTH} operations; gpu-0 is sparse-0 here, demo-worker-a-0 is cpu-8:\n" + "\n".join(told)
    print(trace)
    try:
        whole.kubectl("rollout", "status", "statefulset/head", "--timeout=300s")
        until(lambda: _jobs_ended(stage), f"all jobs to end: {whole.head('squeue -a')}", JOBS_END)
        until(lambda: not _left(whole), "all to be off", REST)
        _judge(stage, began)
    except AssertionError as error:
        state = whole.head(
            "squeue -a; sinfo -N -o '%N %T %E'; sacct -a -X -D -n -P -S " + began + " -o jobid,jobname,state,nodelist"
        )
        log = whole.kubectl("logs", "head-0", "-c", "copilot", "--tail=60")
        raise AssertionError(f"{error}\n{trace}\nleft: {_left(whole)}\n{state}\n{log}") from error
    assert sum("(" not in line for line in told) >= LENGTH / 2, trace


def _jobs_ended(stage: Stage) -> bool:
    """Lifts drains meanwhile, as the administrators would who set them."""
    for node, state in stage.whole.node_states().items():
        if node in stage.drained and state.startswith("dr"):
            stage.whole.head(f"scontrol update nodename={node} state=undrain")
    return not stage.whole.head("squeue -a -h")


def _left(whole: Whole) -> list[str]:
    """What is not as before the first job."""
    states = whole.node_states()
    found = [f"{node} is {state}" for node, state in states.items() if state != "idle~"]
    found += [f"pod {name}" for name in sorted(whole.workers())]
    for resource in ("statefulset.apps/cpu", "statefulsets.apps.kruise.io/sparse"):
        replicas = whole.kubectl("get", resource, "-o", "jsonpath={.spec.replicas}")
        found += [f"{resource} asks for {replicas}"] if replicas != "0" else []
    return found


def _judge(stage: Stage, began: str) -> None:
    """Every job that sbatch took has come to its end, and none was ended but by scancel."""
    last = until(lambda: _accounts(stage, began), "the accounts to have every job that was taken")
    wrong = ended_badly(last, stage.cancelled)
    assert not wrong, f"jobs that ended otherwise: {wrong}"
    assert Counter(last.values())["COMPLETED"] >= 3, f"too few jobs to prove anything: {last}"


def _accounts(stage: Stage, began: str) -> dict[str, str]:
    """The state of each job that was taken, by its name; empty while slurmdbd has not heard of all."""
    lines = stage.whole.head(f"sacct -a -X -n -P -S {began} -o jobname,state").splitlines()
    last = {name: state.split()[0] for name, _, state in (line.partition("|") for line in lines) if name in stage.submitted}
    return last if last.keys() == stage.submitted else {}
