"""`slurmctld-copilot status`: what a running daemon knows, for people and for machines."""

from copilot.status.run import run

__all__ = ["run"]
