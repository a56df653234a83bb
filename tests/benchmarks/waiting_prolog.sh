#!/bin/bash
# PrologSlurmctld of the floor: asks scontrol again and again until the job's one node is there. What a waiting prolog can win at best.
exec </dev/null >/dev/null 2>&1
export PATH=/usr/bin:/bin SLURM_CONF=${0%/*}/../etc/slurm.conf
until state=$(scontrol -o show node "$SLURM_JOB_NODELIST") &&
    [[ $state =~ \ State=(ALLOCATED|MIXED|IDLE)([+A-Z_]*) && ${BASH_REMATCH[2]} != *POWER* && ${BASH_REMATCH[2]} != *NOT_RESPONDING* ]]; do
    sleep 0.05
done
exit 0
