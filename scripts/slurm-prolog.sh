#!/bin/sh
# PrologSlurmctld of slurm.conf: holds the job's start until its nodes are registered. Without it slurmctld starts the job only at its
# next pass, up to 30 s after that. Needs sh and curl; settings as in copilot-hook.sh, and COPILOT_WAIT, the longest wait in seconds.
#
# A prolog that fails requeues the job, so this one ends with 0 whatever happens, and that is why curl is not exec'd: a curl that
# is killed, missing or crashes must not count. The waiting shell adds 0.1 MB to curl's 1.4 MB.
trap 'exit 0' EXIT # even if hooks.conf has a syntax error
exec </dev/null
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
for conf in "${0%/*}/hooks.conf" /etc/slurmctld-copilot/hooks.conf; do
    if [ -r "$conf" ]; then
        # shellcheck source=/dev/null
        . "$conf"
        break
    fi
done
log=${COPILOT_HOOK_LOG:-/var/log/slurm/copilot-hooks.log}
if { [ -f "$log" ] && [ -w "$log" ]; } || { [ ! -e "$log" ] && [ -w "${log%/*}" ]; }; then
    exec >>"$log" 2>&1
elif [ -e /proc/self/fd/2 ]; then
    exec >&2
else
    exec >/dev/null 2>&1
fi
[ -n "$SLURM_JOB_NODELIST" ] || exit 0

# The copilot answers every SLICE seconds at the latest, and is asked again: so one that hangs holds a job for little longer than that.
limit=${COPILOT_WAIT:-600}
SLICE=$((limit < 60 ? limit : 60))
# So many times a copilot that is away or stopping is asked again, a second apart: enough for a restart.
tries=30
newline='
'
set -f # no globbing in what is said, whose line ends become blanks
# shellcheck disable=SC2048,SC2086
say() { echo "$(date +%FT%T%z) slurm-prolog.sh[$$]: job $SLURM_JOB_ID:" $*; }
uptime() { read -r now rest </proc/uptime && now=${now%.*}; } # seconds, without starting a process

# ask: the answer's body and status in $text and $status, curl's exit code in $code.
ask() {
    set -- --get --data-urlencode "nodes=$SLURM_JOB_NODELIST" -d "job=$SLURM_JOB_ID" -d "timeout=$SLICE"
    if [ -n "$COPILOT_URL" ]; then
        exec 9<"${COPILOT_TOKEN_FILE:-/dev/null}" && read -r token <&9
        set -- "$@" --noproxy '*' -H @- "$COPILOT_URL/v1/wait"
    else
        token=
        set -- "$@" --unix-socket "${COPILOT_SOCKET:-/run/slurmctld-copilot/copilot.sock}" http://copilot/v1/wait
    fi
    if [ -n "$token" ]; then
        answer=$(echo "Authorization: Bearer $token" | curl -sS -m $((SLICE + 5)) -w '\n%{http_code}' "$@" 2>&1)
    else
        answer=$(curl -sS -m $((SLICE + 5)) -w '\n%{http_code}' "$@" 2>&1)
    fi
    code=$?
    status=${answer##*"$newline"}
    text=${answer%"$newline"*}
    [ $code -eq 0 ] || status=none text=$answer
}

uptime
end=$((now + limit))
while ask; do
    uptime
    case $code/$status/$text in
    0/200/*'"state"'*) exit 0 ;;
    0/504/*) ;; # not yet
    0/200/* | 0/429/* | 0/5* | 7/* | 52/* | 55/* | 56/*) # away, restarting, or killed while we waited
        tries=$((tries - 1))
        [ $tries -gt 0 ] || break
        sleep 1
        ;;
    *) break ;;
    esac
    [ "$now" -lt "$end" ] || break
done
say "no answer to wait for, so the job starts when Slurm says so: curl $code, status $status: $text"
exit 0
