#!/bin/bash
# AuthorizedKeysCommand of sshd: the keys of a user, from the file of that name in a mounted Secret and from sshPublicKey in LDAP.
# sshd clears the environment, so the entrypoint has left in /run/sshd/keys.conf where to look: two lines, the folder and LDAP's base.
set -uo pipefail
user=${1:-}
[[ $user =~ ^[A-Za-z_][A-Za-z0-9._-]*$ ]] || exit 0
{ read -r folder && read -r base; } </run/sshd/keys.conf || exit 0
[ ! -r "$folder/$user" ] || cat "$folder/$user"
[ -n "$base" ] || exit 0
export LDAPCONF=/run/sshd/ldap.conf
ldapsearch -x -LLL -o ldif-wrap=no -o nettimeout=3 -b "$base" "(&(objectClass=ldapPublicKey)(uid=$user))" sshPublicKey |
    while read -r name value; do
        case $name in
        sshPublicKey:) printf '%s\n' "$value" ;;
        sshPublicKey::) base64 -d <<<"$value" && echo ;;
        esac
    done
