"""The only part that starts a process: scontrol, asked and told. Two exceptions of our own."""

from copilot.slurm.output import NodeConfig, PartitionConfig, seconds
from copilot.slurm.scontrol import Observer, Slurm, SlurmRefused, SlurmUnavailable

__all__ = ["NodeConfig", "Observer", "PartitionConfig", "Slurm", "SlurmRefused", "SlurmUnavailable", "seconds"]
