"""Back to zero, after all that the other modules have done."""

from __future__ import annotations

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole

# times.conf of overlays/demo: SuspendTime and SuspendTimeout, and the kubelet's grace.
_ALL_DOWN_WITHIN = 240.0


@pytest.mark.timeout(600)
def test_without_jobs_all_is_powered_down_by_slurm_s_own_timers(whole: Whole) -> None:
    # The pod of a node that slurm.conf no longer has is nobody's to power down.
    until(lambda: not whole.workers() & whole.node_states().keys(), "the last worker to go", _ALL_DOWN_WITHIN)
    until(
        lambda: {name: state for name, state in whole.node_states().items() if state != "idle~"} == {},
        f"every node to be powered down and well ({whole.head('sinfo -R')})",
        _ALL_DOWN_WITHIN,
    )
