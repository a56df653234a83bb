"""slurmctld-copilot: the bridge between Slurm's power saving and Kubernetes."""

__version__ = "0.1.0"
