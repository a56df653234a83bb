"""How long a decision waits for what, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The waits that a decision knows, in seconds, and its switches. Fields that are settings too have the settings' names and defaults."""

    missed_hook_grace: float = 5.0
    orphan_grace: float = 90.0
    stale_grace: float = 20.0
    # Once slurmctld has heard a slurmd and ignored it there is nothing to wait for; two views are to agree.
    ignored_grace: float = 2.0
    registration_timeout: float = 120.0
    unschedulable_grace: float = 60.0
    scale_up_grace: float = 900.0
    quota_grace: float = 30.0
    image_pull_grace: float = 30.0
    container_config_grace: float = 20.0
    crash_loop_grace: float = 30.0
    evicted_grace: float = 30.0
    pod_lost_grace: float = 20.0
    rejected_grace: float = 10.0
    api_error_grace: float = 60.0
    all_or_nothing: bool = True
    breaker_failures: int = 5
    breaker_pause: float = 30.0
    breaker_pause_max: float = 600.0
    free_early: bool = True
    # A pod that nobody has seen may still be in the making when its target was shrunk a moment ago.
    settle: float = 2.0
    # An update that Slurm took but that shows no effect is repeated no faster than this.
    repeat_update: float = 10.0
    # How long after a pod's start the registration "can be a matter of moments", so that Slurm is asked as fast as allowed.
    fast_for: float = 5.0
    # A view older than this lets nothing go and tells nobody anything: while slurmctld does not answer, nodes may have come back.
    trust_view: float = 120.0
