"""The loop: observe, plan, act. `run(settings)` is the daemon."""

from copilot.reconcile.run import run

__all__ = ["run"]
