"""`slurmctld-copilot status`: what a running daemon knows, for people and for machines."""

from copilot.status.run import CANNOT, TROUBLE, WELL, run

__all__ = ["CANNOT", "TROUBLE", "WELL", "run"]
