"""`make demo`: one job's way from a powered-down cluster to registered nodes and back, on real Slurm."""
