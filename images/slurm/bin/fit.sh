# shellcheck shell=bash
# Whether the pod is as large as slurm.conf says its node is; the entrypoint sources it for a worker.
#
# POD_CPUS, POD_MEMORY_MIB and POD_GPUS come from the pod (resourceFieldRef; GPUs as a plain value). slurmd itself sees the whole machine's
# processors and memory. So where the pod has less than the NodeName line claims, that is said, and slurmd is told to report what the
# pod has: slurmctld then takes the node for invalid at once, instead of giving it jobs that the kernel would kill.

# claim NODE WORD: a number from slurmctld's record of the node, "" if it does not answer.
claim() { sed -nE "s/.*[[:space:]]$2=([0-9]+).*/\1/p" <<<"$record"; }

# too_small NODE WHAT HAS CLAIMED
too_small() {
    [[ $3 =~ ^[0-9]+$ && $4 =~ ^[0-9]+$ ]] && ((10#$3 < 10#$4)) || return 1
    say "node $1: the pod has $3 $2 and slurm.conf claims $4: raise the pod's resources or lower the NodeName line"
}

# fit NODE: may point SLURM_CONF at a copy in which the nodes are as small as this pod.
fit() {
    local node=$1 record="" small="" words=""
    [ -n "${POD_CPUS:-}${POD_MEMORY_MIB:-}${POD_GPUS:-}" ] || return 0
    record=$(timeout -s KILL 3 scontrol -o show node "$node" 2>/dev/null) || { say "slurmctld does not answer, so the pod's size is not compared with slurm.conf"; return 0; }
    if too_small "$node" CPUs "${POD_CPUS:-}" "$(claim "$node" CPUTot)"; then small=1 words+=" CPUs=$POD_CPUS"; fi
    if too_small "$node" "MiB of memory" "${POD_MEMORY_MIB:-}" "$(claim "$node" RealMemory)"; then small=1 words+=" RealMemory=$POD_MEMORY_MIB"; fi
    # slurmd finds the GPUs by itself: in the pod there are no more than it was given.
    too_small "$node" GPUs "${POD_GPUS:-}" "$(sed -nE 's/.* Gres=[^ ]*gpu:([a-z0-9_]+:)*([0-9]+).*/\2/p' <<<"$record")" || true
    [ -n "$small" ] || return 0
    local folder=/run/slurm/fit parameters
    parameters=$(conf SlurmdParameters)
    mkdir -p "$folder"
    cp -rLT "${SLURM_CONF%/*}" "$folder"
    {
        sed -E '/^[[:space:]]*SlurmdParameters[[:space:]]*=/Id' "$SLURM_CONF" |
            sed -E "/^[[:space:]]*NodeName=/I{$(forget CPUs Procs Boards Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore RealMemory)
s/\$/$words/}"
        printf 'SlurmdParameters=%sconfig_overrides\n' "${parameters:+$parameters,}"
    } >"$folder/slurm.conf"
    export SLURM_CONF=$folder/slurm.conf
}

# forget WORD...: sed commands that take these settings off a line, unless the pod's size leaves them alone.
forget() {
    local word
    for word in "$@"; do
        case $word in
        RealMemory) [[ $words == *RealMemory* ]] || continue ;;
        *) [[ $words == *CPUs* ]] || continue ;;
        esac
        printf 's/[[:space:]]%s=[^[:space:]]+//I;' "$word"
    done
}
