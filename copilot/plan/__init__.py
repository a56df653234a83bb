"""The pure decision: `plan(world, policy)` takes both views and the clock, and says what should be so."""

from copilot.plan.breaker import Breaker
from copilot.plan.causes import plain
from copilot.plan.decide import plan
from copilot.plan.outlook import outlook
from copilot.plan.policy import Policy
from copilot.plan.wish import Wish, active, wish
from copilot.plan.world import (
    Member,
    NodeUpdate,
    Outcome,
    Pace,
    Plan,
    PodDelete,
    Told,
    Track,
    Unpatched,
    What,
    World,
    window_forced,
)

__all__ = [
    "Breaker",
    "Member",
    "NodeUpdate",
    "Outcome",
    "Pace",
    "Plan",
    "PodDelete",
    "Policy",
    "Told",
    "Track",
    "Unpatched",
    "What",
    "Wish",
    "World",
    "active",
    "outlook",
    "plain",
    "plan",
    "window_forced",
    "wish",
]
