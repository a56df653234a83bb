# shellcheck shell=bash
# Whether the pod is as large as slurm.conf says its node is; the entrypoint sources it for a worker.
# Uses the entrypoint's functions say and conf.
#
# POD_CPUS, POD_MEMORY_MIB and POD_GPUS come from the pod (resourceFieldRef; GPUs as a plain value). slurmd itself sees the whole machine, so
# slurmctld would believe in the size that slurm.conf claims and give the node jobs that the kernel kills. (SlurmdParameters=config_overrides
# is no way to report less: it does not reach the memory, seen on 24.11.5.)

# lines: slurm.conf and the files it includes (not what those include), without comments, a setting a line.
lines() {
    local name files=("$SLURM_CONF")
    while read -r name; do
        [[ $name == /* ]] || name=${SLURM_CONF%/*}/$name
        files+=("$name")
    done < <(sed -nE 's/^[[:space:]]*Include[[:space:]]+([^#[:space:]]+).*/\1/Ip' "$SLURM_CONF")
    sed -E ':a;/\\$/{N;s/\\\n/ /;ba};s/#.*//' "${files[@]}"
}

# node_line NODE: its line of slurm.conf, after those of NodeName=DEFAULT; nothing if the files do not name it.
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

# too_small WHAT HAS CLAIMED: says so in a few words, nothing otherwise.
too_small() {
    if [[ $2 =~ ^[0-9]+$ && $3 =~ ^[0-9]+$ ]] && ((10#$2 < 10#$3)); then
        printf '%s' "${said:+, }$2 $1 where slurm.conf claims $3"
    fi
}

# fit NODE: ends the start with one sentence if the pod is too small for it.
fit() {
    local node=$1 line said=""
    [ -n "${POD_CPUS:-}${POD_MEMORY_MIB:-}${POD_GPUS:-}" ] || return 0
    line=$(node_line "$node")
    said+=$(too_small CPUs "${POD_CPUS:-}" "$(cpus "$line")")
    said+=$(too_small "MiB of memory" "${POD_MEMORY_MIB:-}" "$(claim "$line" RealMemory)")
    said+=$(too_small GPUs "${POD_GPUS:-}" "$(grep -oiP '[[:space:]]Gres=\S*?gpu:([a-z][^:,\s]*:)?\K[0-9]+' <<<"$line" | tail -n 1 || true)")
    [ -z "$said" ] || missing "node $node is smaller than promised: the pod has $said; raise the pod's resources or lower the NodeName line"
}
