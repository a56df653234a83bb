"""Property tests: the same examples at every run, so that `make test` is repeatable and quick; more and new ones on demand.

COPILOT_PROPERTY_EXAMPLES=N tries N examples a test, chosen anew at every run; a failing one is printed with how to repeat it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_wanted = os.environ.get("COPILOT_PROPERTY_EXAMPLES")
# no deadlines: they judge by the machine's load; no database: nothing is written into the tree
settings.register_profile(
    "copilot",
    max_examples=int(_wanted or 100),
    derandomize=_wanted is None,
    print_blob=True,
    deadline=None,
    database=None,
    # to make a failing world small takes minutes, longer than a test may: it is done on demand
    phases=[phase for phase in Phase if _wanted is not None or phase is not Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("copilot")
