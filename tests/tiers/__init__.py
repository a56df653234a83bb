"""The runner behind `make test`: a table of tiers, what each needs, and one summary that hides nothing.

python -m tests.tiers [--only lint,unit,slurm] [--jobs 2] [-- pytest arguments]
"""
