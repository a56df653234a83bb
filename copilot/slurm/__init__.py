"""The only part that starts a process: scontrol, asked and told. Two exceptions of our own."""

from copilot.slurm.output import NodeConfig, PartitionConfig, seconds
from copilot.slurm.saving import Saving, saving_of
from copilot.slurm.scontrol import Observer, Slurm, SlurmRefused, SlurmUnavailable

__all__ = [
    "NodeConfig",
    "Observer",
    "PartitionConfig",
    "Saving",
    "Slurm",
    "SlurmRefused",
    "SlurmUnavailable",
    "saving_of",
    "seconds",
]
