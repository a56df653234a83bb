"""`slurmctld-copilot check`: is everything set as it must be? Judgements are pure; only `run`, `hooks` and `kubernetes` look at things."""

from copilot.check.finding import Finding, Level
from copilot.check.run import as_json, as_text, failed, run

__all__ = ["Finding", "Level", "as_json", "as_text", "failed", "run"]
