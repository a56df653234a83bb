# shellcheck shell=bash
# What slurm-resume.sh, slurm-suspend.sh and slurm-resume-fail.sh have in common; they source it and call `hook VERB ARGUMENTS...`.
# Needs bash and curl, no more.
#
# slurmctld 22.05 starts hooks with file descriptors 0 to 2 closed, TERM, ALRM, PIPE and HUP blocked and an empty environment: anything
# that writes before the first exec below would write into a file that got one of these numbers.
#
# Settings, as shell assignments in hooks.conf beside this file or in /etc/slurmctld-copilot/hooks.conf (the former wins):
#   COPILOT_SOCKET      the copilot's unix socket (default /run/slurmctld-copilot/copilot.sock)
#   COPILOT_URL, COPILOT_TOKEN_FILE   instead of the socket: http://127.0.0.1:PORT of --hooks-listen, and a file with its token
#   COPILOT_HOOK_LOG    one line a call goes there (default /var/log/slurm/copilot-hooks.log; if it cannot be written, to stderr)
#   COPILOT_HOOK_LOG_MAX   bytes; a log that is longer becomes COPILOT_HOOK_LOG.1, and the one before that is gone (default 10485760)

exec </dev/null
# Always: with an empty environment bash has a default of its own, which ends in the current folder.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C
for conf in "${BASH_SOURCE[0]%/*}/hooks.conf" /etc/slurmctld-copilot/hooks.conf; do
    if [[ -r $conf ]]; then
        # shellcheck source=/dev/null
        source "$conf"
        break
    fi
done
COPILOT_HOOK_LOG=${COPILOT_HOOK_LOG:-/var/log/slurm/copilot-hooks.log}
if [[ -f $COPILOT_HOOK_LOG && -w $COPILOT_HOOK_LOG || (! -e $COPILOT_HOOK_LOG && -w ${COPILOT_HOOK_LOG%/*}) ]]; then
    exec >>"$COPILOT_HOOK_LOG" 2>&1
    trap keep_short EXIT # when all is done: slurmctld waits for no hook's end
elif [[ -e /proc/self/fd/2 ]]; then
    exec >&2
else
    exec >/dev/null 2>&1
fi

# An attempt may last ATTEMPT seconds, and none is begun after PATIENCE seconds: a dead or hanging copilot holds slurmctld's hook for
# 6 seconds at the most. It finds out by itself from Slurm's node states what it was not told.
ATTEMPT=2
PATIENCE=4
# Longer bodies go to curl by a pipe: the kernel takes no argument over 128 KiB.
ARGUMENT_MAX=100000

# A hook that writes meanwhile goes on in the renamed file. Where only the file may be written and not its folder, it stays.
keep_short() {
    local size
    size=$(stat -c %s -- "$COPILOT_HOOK_LOG") && ((size > ${COPILOT_HOOK_LOG_MAX:-10485760})) && mv -f -- "$COPILOT_HOOK_LOG"{,.1}
} 2>/dev/null

# say WORDS...: one line in the log, whatever newlines there are in the words.
say() {
    local line=${*%$'\n'}
    printf '%(%FT%T%z)T %s[%s]: %s\n' -1 "${0##*/}" $$ "${line//$'\n'/ }"
}

# post VERB BODY: the answer's body and status in $text and $status; 000 if there was none.
post() {
    local request=(curl -sS -m "$ATTEMPT" -H 'Content-Type: application/json' -H 'Expect:' -w '\n%{http_code}') answer
    if [[ ${COPILOT_URL:-} ]]; then
        # The token comes by a file: other users can read a process's arguments.
        request+=(--noproxy '*' -H "@/dev/fd/9" "$COPILOT_URL/v1/$1")
    else
        request+=(--unix-socket "${COPILOT_SOCKET:-/run/slurmctld-copilot/copilot.sock}" "http://copilot/v1/$1")
    fi
    while :; do
        [[ -z ${COPILOT_URL:-} ]] || exec 9< <(printf 'Authorization: Bearer %s\n' "$(<"${COPILOT_TOKEN_FILE:-/dev/null}")")
        if ((${#2} < ARGUMENT_MAX)); then
            answer=$("${request[@]}" --data-raw "$2" 2>&1)
        else
            answer=$(printf '%s' "$2" | "${request[@]}" --data-binary @- 2>&1)
        fi
        status=${answer##*$'\n'} text=${answer%$'\n'*}
        [[ $status =~ ^[0-9]{3}$ ]] || status=000 text=$answer
        # No answer, "too many" and the server's own trouble may pass; whatever else is said will be said again.
        [[ $status == 000 || $status == 429 || $status == 5?? ]] && ((SECONDS < PATIENCE)) || return 0
        sleep 1
    done
}

# hook VERB ARGUMENTS...: posts the last argument, a hostlist (Slurm 26.05 may put arguments of an administrator before it).
hook() {
    local verb=$1 nodes=${*: -1} file=null
    if (($# < 2)) || [[ -z $nodes || $nodes == *[[:cntrl:]]* ]]; then
        say "no hostlist among the arguments; slurmctld calls this with one"
        exit 2
    fi
    nodes=${nodes//\\/\\\\}
    nodes=${nodes//\"/\\\"}
    # The file is one of slurmctld's own descriptors, which the copilot in its container could not open: its content is sent. It is
    # often absent, empty or cut, and serves logs and decisions about whole jobs only.
    if [[ $verb == resume && -r ${SLURM_RESUME_FILE:-} ]]; then
        { file=$(<"$SLURM_RESUME_FILE"); } 2>/dev/null
        [[ $file == '{'*'}' ]] || file=null
    fi
    post "$verb" "{\"nodes\": \"$nodes\", \"resume_file\": $file}"
    # Looked like an object and was none, or made the body too large: the nodes matter, not the file.
    [[ $file != null && ($status == 400 || $status == 413) ]] && post "$verb" "{\"nodes\": \"$nodes\", \"resume_file\": null}"
    if [[ $status == 202 ]]; then
        say "$text"
        exit 0
    fi
    say "nothing was accepted, status $status: $text"
    exit 1
}
