# shellcheck shell=bash
# Whether the pod is as large as slurm.conf says its node is; the entrypoint sources it for a worker.
# Uses the entrypoint's functions say and conf.
#
# POD_CPUS, POD_MEMORY_MIB and POD_GPUS come from the pod (resourceFieldRef; GPUs as a plain value). slurmd itself sees the whole machine's
# processors and memory. So where the pod has less than the NodeName line claims, that is said, and slurmd is told to report what the
# pod has: slurmctld then takes the node for invalid at once, instead of giving it jobs that the kernel would kill.

# lines: slurm.conf without comments, a setting a line.
lines() { sed -E ':a;/\\$/{N;s/\\\n/ /;ba};s/#.*//' "$SLURM_CONF"; }

# node_line NODE: its line of slurm.conf, after those of NodeName=DEFAULT; nothing if the file does not name it (included ones are not read).
node_line() {
    local line names defaults=""
    while read -r line; do
        names=${line#*=} names=${names%%[[:space:]]*}
        if [[ ${names^^} == DEFAULT ]]; then
            defaults+=" $line"
        elif scontrol show hostnames "$names" 2>/dev/null | grep -qx -- "$1"; then
            printf '%s %s' "$defaults" "$line"
            return
        fi
    done < <(lines | grep -iE '^[[:space:]]*NodeName[[:space:]]*=')
}

# claim LINE WORD: the last number given to a word there, "" if none is.
claim() { grep -oiP "[[:space:]]$2=\K[0-9]+" <<<"$1" | tail -n 1 || true; }

# cpus LINE: CPUs as the line says, or as they follow from sockets, cores and threads.
cpus() {
    local given total=1 word # nothing is claimed if the line says nothing
    [ -n "$1" ] || return 0
    given=$(claim "$1" '(CPUs|Procs)')
    if [ -z "$given" ]; then
        for word in '(Sockets|SocketsPerBoard)' CoresPerSocket ThreadsPerCore; do
            given=$(claim "$1" "$word")
            total=$((total * ${given:-1}))
        done
        given=$total
    fi
    echo "$given"
}

# too_small NODE WHAT HAS CLAIMED
too_small() {
    [[ $3 =~ ^[0-9]+$ && $4 =~ ^[0-9]+$ ]] && ((10#$3 < 10#$4)) || return 1
    say "node $1: the pod has $3 $2 and slurm.conf claims $4: raise the pod's resources or lower the NodeName line"
}

# fit NODE FOLDER: may point SLURM_CONF at a copy, made below FOLDER, in which the nodes are as small as this pod.
fit() {
    local node=$1 line words="" drop=""
    [ -n "${POD_CPUS:-}${POD_MEMORY_MIB:-}${POD_GPUS:-}" ] || return 0
    line=$(node_line "$node")
    if too_small "$node" CPUs "${POD_CPUS:-}" "$(cpus "$line")"; then
        words+=" CPUs=$POD_CPUS" drop+="|CPUs|Procs|Boards|Sockets|SocketsPerBoard|CoresPerSocket|ThreadsPerCore"
    fi
    if too_small "$node" "MiB of memory" "${POD_MEMORY_MIB:-}" "$(claim "$line" RealMemory)"; then
        words+=" RealMemory=$POD_MEMORY_MIB" drop+="|RealMemory"
    fi
    # slurmd finds the GPUs by itself: in the pod there are no more than it was given.
    too_small "$node" GPUs "${POD_GPUS:-}" "$(grep -oiP '[[:space:]]Gres=\S*?gpu:([a-z][^:,\s]*:)?\K[0-9]+' <<<"$line" | tail -n 1 || true)" || true
    [ -z "$words" ] || report "$2/fit" "$words" "${drop#|}"
}

# report FOLDER WORDS DROP: a copy of slurm.conf whose nodes have these words instead of those, and which slurmd believes more than the machine.
report() {
    local folder=$1 parameters
    parameters=$(conf SlurmdParameters)
    mkdir -p "$folder"
    cp -rLT "${SLURM_CONF%/*}" "$folder"
    {
        lines | sed -E "/^[[:space:]]*SlurmdParameters[[:space:]]*=/Id;/^[[:space:]]*NodeName[[:space:]]*=/I{s/[[:space:]]($3)=[^[:space:]]+//Ig;s/\$/$2/}"
        printf 'SlurmdParameters=%sconfig_overrides\n' "${parameters:+$parameters,}"
    } >"$folder/slurm.conf"
    export SLURM_CONF=$folder/slurm.conf
}
