#!/bin/bash
# Starts one role: entrypoint.sh slurmctld|slurmd|slurmdbd|login|copilot [ARGUMENT...]; the arguments go to the role's program.
# What is missing is said in one sentence, and the exit code is 78. docs/images.md lists the variables.
#
# tini is the first process: it passes signals to the program and reaps what is left to it. munged and nslcd are small daemons beside it.
set -euo pipefail
role=${1:-}
run=/run/slurm # what is made at the start goes there
export SLURM_CONF=${SLURM_CONF:-/etc/slurm/slurm.conf}

# The pod's status shows the sentence too, for whoever looks there for the cause.
missing() {
    printf '%s: %s\n' "${role:-entrypoint.sh}" "$*" >&2
    [ ! -w /dev/termination-log ] || printf '%s' "$*" >/dev/termination-log
    exit 78
}
say() { printf '%s: %s\n' "$role" "$*" >&2; }

# start_as USER COMMAND...: as that user if we are root, else as who we are.
start_as() {
    local user=$1
    shift
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@"
    else
        "$@"
    fi
}

# munged wants a key that nobody but its own user can read, which a mounted Secret is not.
munge() {
    local key=${MUNGE_KEY:-/run/secrets/munge/munge.key} dir=/run/munge trusting=()
    [ -e "$key" ] || missing "the munge key is missing: mount the cluster's Secret so that $key exists, or name its path in MUNGE_KEY"
    [ -r "$key" ] || missing "the munge key $key cannot be read by user $(id -un): give the Secret's files to its group (fsGroup)"
    [ "$(stat -Lc %s "$key")" -ge 32 ] || missing "the munge key $key is shorter than 32 bytes: make one with dd if=/dev/urandom bs=1024 count=1"
    if [ "$(id -u)" = 0 ]; then
        chown munge:munge "$dir"
        chmod 755 "$dir"
    else
        [ -w "$dir" ] || missing "$dir cannot be written by user $(id -un): mount an emptyDir there"
        trusting=(--force) # an emptyDir belongs to root and is open to its group, which munged would refuse
    fi
    rm -f "$dir/munge.key" "$dir/munged.pid"
    (umask 077 && start_as munge tee "$dir/munge.key" <"$key" >/dev/null)
    start_as munge munged "${trusting[@]}" --socket="$dir/munge.socket.2" --key-file="$dir/munge.key" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munged.seed" || missing "munged did not start: $(tail -n 1 "$dir/munged.log")"
}

slurm_conf() {
    [ -e "$SLURM_CONF" ] || missing "slurm.conf is missing: mount it as $SLURM_CONF, or name its path in SLURM_CONF"
    [ -r "$SLURM_CONF" ] || missing "$SLURM_CONF cannot be read by user $(id -un)"
    grep -qi '^[[:space:]]*ClusterName[[:space:]]*=' "$SLURM_CONF" || missing "$SLURM_CONF has no ClusterName: is it the cluster's slurm.conf?"
}

# conf KEY: a setting's value in slurm.conf, "" if it is not there.
conf() { sed -nE "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*([^#[:space:]]+).*/\1/Ip" "$SLURM_CONF" | tail -n 1; }

# Users from LDAP, if LDAP_URI names a server.
ldap() {
    [ -n "${LDAP_URI:-}" ] || { say "no LDAP_URI: the users are those of /etc/passwd"; return 0; }
    [ -n "${LDAP_BASE:-}" ] || missing "LDAP_URI is set and LDAP_BASE is not: name where the users are, such as dc=example,dc=org"
    local conf=/run/nslcd/nslcd.conf
    [ -w /run/nslcd ] || missing "/run/nslcd cannot be written by user $(id -un): mount an emptyDir there"
    [ -z "${LDAP_PASSWORD_FILE:-}" ] || [ -r "$LDAP_PASSWORD_FILE" ] || missing "LDAP_PASSWORD_FILE=$LDAP_PASSWORD_FILE cannot be read"
    [ -z "${LDAP_CA_FILE:-}" ] || [ -r "$LDAP_CA_FILE" ] || missing "LDAP_CA_FILE=$LDAP_CA_FILE cannot be read"
    (
        umask 077
        if [ "$(id -u)" = 0 ]; then printf 'uid nslcd\ngid nslcd\n'; fi
        printf 'uri %s\nbase %s\nnss_initgroups_ignoreusers ALLLOCAL\n' "$LDAP_URI" "$LDAP_BASE"
        # A server that is away for a moment is asked again soon; the defaults wait up to a minute.
        printf 'bind_timelimit 3\ntimelimit 5\nreconnect_sleeptime 1\nreconnect_retrytime 2\n'
        if [ -n "${LDAP_BIND_DN:-}" ]; then printf 'binddn %s\n' "$LDAP_BIND_DN"; fi
        if [ -n "${LDAP_PASSWORD_FILE:-}" ]; then printf 'bindpw %s\n' "$(<"$LDAP_PASSWORD_FILE")"; fi
        if [ -n "${LDAP_CA_FILE:-}" ]; then printf 'tls_reqcert demand\ntls_cacertfile %s\n' "$LDAP_CA_FILE"; fi
        if [ "${LDAP_STARTTLS:-}" = true ]; then printf 'ssl start_tls\n'; fi
    ) >"$conf"
    [ "$(id -u)" != 0 ] || chown root:nslcd /run/nslcd "$conf"
    [ "$(id -u)" != 0 ] || chmod 775 /run/nslcd
    nslcd || missing "nslcd did not start with the configuration in $conf"
}

slurmctld() {
    munge
    slurm_conf
    ldap
    local state user
    state=$(conf StateSaveLocation) state=${state:-/var/spool}
    user=$(conf SlurmUser) user=${user:-root}
    id "$user" >/dev/null 2>&1 || missing "SlurmUser $user of $SLURM_CONF is not a user of this image: use slurm"
    # In a volume that belongs to root and its group, it is a folder of SlurmUser's own: slurmctld warns of one that others can write.
    [ -d "$state" ] || start_as "$user" mkdir -m 700 "$state" 2>/dev/null || missing "StateSaveLocation $state is not here and cannot be made: mount the volume that keeps the cluster's state"
    start_as "$user" test -w "$state" || missing "StateSaveLocation $state cannot be written by SlurmUser $user: set the volume's fsGroup"
    exec slurmctld -D "$@"
}

slurmd() {
    munge
    slurm_conf
    ldap
    local node=${SLURMD_NODENAME:-$(hostname -s)}
    # shellcheck source-path=SCRIPTDIR source=fit.sh
    source /fit.sh
    fit "$node"
    # -b: a container's uptime is its host's, and slurmctld ignores a node that booted before it was asked for.
    exec slurmd -D -b -N "$node" "$@"
}

# slurmdbd wants its configuration readable by SlurmUser alone, and the database's password in it.
slurmdbd() {
    local given=${SLURMDBD_CONF:-/etc/slurm/slurmdbd.conf} own=$run/slurmdbd.conf
    munge
    [ -r "$given" ] || missing "slurmdbd.conf is missing or cannot be read: mount it as $given, or name its path in SLURMDBD_CONF"
    if [ -n "${SLURMDBD_PASSWORD_FILE:-}" ] && [ ! -r "$SLURMDBD_PASSWORD_FILE" ]; then
        missing "SLURMDBD_PASSWORD_FILE=$SLURMDBD_PASSWORD_FILE cannot be read"
    fi
    ldap
    rm -f "$own"
    { cat "$given"; [ -z "${SLURMDBD_PASSWORD_FILE:-}" ] || printf '\nStoragePass=%s\n' "$(<"$SLURMDBD_PASSWORD_FILE")"; } |
        (umask 077 && start_as slurm tee "$own" >/dev/null)
    SLURM_CONF=${own%/*}/slurm.conf exec slurmdbd -D "$@"
}

# Where /authorized-keys.sh finds users' keys. It asks LDAP without a password: the keys are public.
authorized_keys() {
    printf '%s\n%s\n' "${SSH_AUTHORIZED_KEYS:-/run/secrets/authorized-keys}" "${LDAP_BASE:-}" >/run/sshd/keys.conf
    {
        printf 'URI %s\n' "${LDAP_URI:-}"
        if [ -n "${LDAP_CA_FILE:-}" ]; then printf 'TLS_CACERT %s\n' "$LDAP_CA_FILE"; fi
    } >/run/sshd/ldap.conf
    chmod 644 /run/sshd/keys.conf /run/sshd/ldap.conf
}

login() {
    [ "$(id -u)" = 0 ] || missing "sshd needs root to become the users who log in"
    munge
    slurm_conf
    ldap
    local keys=${SSH_HOST_KEYS:-/run/secrets/ssh-host-keys} options=() key
    for key in "$keys"/ssh_host_*_key; do
        [ -r "$key" ] || continue
        install -D -m 600 "$key" "/run/sshd/${key##*/}" # sshd refuses a key that others can read
        options+=(-h "/run/sshd/${key##*/}")
    done
    [ ${#options[@]} -gt 0 ] || missing "ssh's host keys are missing: mount a Secret with ssh_host_ed25519_key as $keys, or name the folder in SSH_HOST_KEYS"
    authorized_keys
    exec /usr/sbin/sshd -D -e "${options[@]}" "$@"
}

copilot() {
    munge
    slurm_conf
    exec /slurmctld-copilot serve "$@"
}

case $role in
slurmctld | slurmd | slurmdbd | login | copilot)
    shift
    "$role" "$@"
    ;;
"") missing "say which role: slurmctld, slurmd, slurmdbd, login or copilot" ;;
*) missing "there is no such role: slurmctld, slurmd, slurmdbd, login or copilot (for another program, set the container's command)" ;;
esac
