"""Two short runs, one that excuses nothing and one with everything; `make chaos` does as many as there is time for.

Run it inside tests/lab/isolated.
"""

from __future__ import annotations

import os
from typing import Literal

import pytest

from tests.chaos.__main__ import TREE
from tests.chaos.operations import classes, operations
from tests.chaos.run import run
from tests.chaos.telling import summary, trace

SLURM = os.environ.get("COPILOT_SLURM", "22.05")
KUBERNETES: Literal["embedded", "real"] = "real" if os.environ.get("COPILOT_KUBERNETES") == "real" else "embedded"
LENGTH = 60


# In the worst case everything is waited for as long as may be, and then told.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [6, 2], ids=["gentle", "wild"])
async def test_chaos(seed: int) -> None:
    plan = operations(seed, LENGTH, classes(seed, real=KUBERNETES == "real"))
    keep = TREE / "artifacts/chaos" / f"{SLURM}-{KUBERNETES}-{seed}"
    report = await run(plan, SLURM, KUBERNETES, keep)
    print(summary(seed, SLURM, KUBERNETES, report))
    assert not report.lab, f"the lab failed: {report.lab}; logs: {keep}"
    assert not report.failed, trace(seed, LENGTH, SLURM, KUBERNETES, plan, report, keep)
    # A run in which nothing came about would prove nothing.
    assert report.jobs["COMPLETED"] >= 5
    assert report.looks >= 10
    assert sum(not one.outcome for one in report.done) >= LENGTH / 2
