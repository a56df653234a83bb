#!/bin/bash
# Starts slapd, without root. What is missing is said in one sentence, and the exit code is 78.
#   LDAP_BASE                  the suffix, such as dc=example,dc=org; its administrator is cn=admin,<LDAP_BASE>
#   LDAP_ADMIN_PASSWORD_FILE   file with the administrator's password (default /run/secrets/ldap/password)
#   LDAP_TLS_DIR               folder with tls.crt, tls.key and ca.crt (default /run/secrets/ldap-tls; without it there is no ldaps)
#   LDAP_LOG_LEVEL             slapd's (default stats: a line for each operation)
# Listens on 1389 (ldap) and 1636 (ldaps). The database is /var/lib/ldap, a volume.
# Files /seed/*.ldif are loaded once, into a database that is new.
set -euo pipefail
data=/var/lib/ldap conf=/run/slapd/slapd.conf
password_file=${LDAP_ADMIN_PASSWORD_FILE:-/run/secrets/ldap/password} tls=${LDAP_TLS_DIR:-/run/secrets/ldap-tls}

missing() { printf 'openldap: %s\n' "$*" >&2; exit 78; }

[[ ${LDAP_BASE:-} =~ ^dc=[A-Za-z0-9-]+(,dc=[A-Za-z0-9-]+)*$ ]] || missing "LDAP_BASE must be the directory's suffix in the form dc=example,dc=org, and is '${LDAP_BASE:-}'"
[ -r "$password_file" ] || missing "the administrator's password is missing: mount a Secret so that $password_file can be read, or name its path in LDAP_ADMIN_PASSWORD_FILE"
password=$(<"$password_file")
[ ${#password} -ge 8 ] || missing "the administrator's password in $password_file has fewer than 8 characters"
[ -w "$data" ] || missing "the database's folder $data cannot be written by user $(id -u): set the volume's fsGroup to 911"
[ -w /run/slapd ] || missing "/run/slapd cannot be written by user $(id -u): mount an emptyDir there"

umask 077
listen="ldap://:1389/ ldapi://%2Frun%2Fslapd%2Fldapi"
{
    for schema in core cosine nis inetorgperson ldap-public-key; do echo "include /etc/ldap/schema/$schema.schema"; done
    printf 'modulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload ppolicy\n'
    printf 'pidfile /run/slapd/slapd.pid\nargsfile /run/slapd/slapd.args\n'
    if [ -r "$tls/tls.crt" ]; then
        printf 'TLSCertificateFile %s\nTLSCertificateKeyFile %s\n' "$tls/tls.crt" "$tls/tls.key"
        [ ! -r "$tls/ca.crt" ] || printf 'TLSCACertificateFile %s\n' "$tls/ca.crt"
    fi
    printf 'database mdb\nsuffix "%s"\ndirectory %s\nmaxsize 1073741824\n' "$LDAP_BASE" "$data"
    printf 'rootdn "cn=admin,%s"\nrootpw %s\n' "$LDAP_BASE" "$(printf %s "$password" | slappasswd -n -T /dev/stdin)"
    for word in "objectClass eq" "uid eq" "uidNumber,gidNumber eq" "member,memberUid eq" "cn eq"; do echo "index $word"; done
    # Passwords given in clear text are hashed. Who has pwdAccountLockedTime cannot log in: that needs a policy with pwdLockout.
    printf 'overlay ppolicy\nppolicy_default "cn=default,ou=policies,%s"\nppolicy_hash_cleartext\nppolicy_use_lockout\n' "$LDAP_BASE"
    printf 'access to attrs=userPassword by self =xw by anonymous auth by * none\n'
    printf 'access to * by * read\n'
} >"$conf"
[ ! -r "$tls/tls.crt" ] || listen+=" ldaps://:1636/"

if [ ! -e "$data/data.mdb" ]; then
    domain=${LDAP_BASE%%,*}
    slapadd -f "$conf" <<END || missing "the new database in $data could not be made (see above)"
dn: $LDAP_BASE
objectClass: top
objectClass: dcObject
objectClass: organization
dc: ${domain#dc=}
o: ${domain#dc=}

dn: ou=people,$LDAP_BASE
objectClass: organizationalUnit
ou: people

dn: ou=groups,$LDAP_BASE
objectClass: organizationalUnit
ou: groups

dn: ou=policies,$LDAP_BASE
objectClass: organizationalUnit
ou: policies

dn: cn=default,ou=policies,$LDAP_BASE
objectClass: organizationalRole
objectClass: pwdPolicy
cn: default
pwdAttribute: userPassword
pwdLockout: TRUE
pwdMaxFailure: 0
END
    for seed in /seed/*.ldif; do
        [ -r "$seed" ] || continue
        slapadd -f "$conf" -l "$seed" || missing "$seed could not be loaded (see above); the database is kept as it is"
    done
fi
exec slapd -f "$conf" -h "$listen" -d "${LDAP_LOG_LEVEL:-stats}"
