#!/bin/bash
# Starts phpLDAPadmin on port 8080, without root. What is missing is said in one sentence, and the exit code is 78.
#   LDAP_URI      the directory's server, such as ldap://openldap or ldaps://openldap
#   LDAP_BASE     its suffix, such as dc=example,dc=org
#   LDAP_CA_FILE  the authority of its certificate, for ldaps
# No password is configured: who logs in gives his own.
set -euo pipefail
conf=/run/phpldapadmin/config.php

missing() { printf 'phpldapadmin: %s\n' "$*" >&2; exit 78; }

[[ ${LDAP_URI:-} =~ ^(ldaps?)://([A-Za-z0-9.-]+)(:([0-9]+))?/?$ ]] || missing "LDAP_URI must name the directory's server in the form ldap://openldap, and is '${LDAP_URI:-}'"
scheme=${BASH_REMATCH[1]} host=${BASH_REMATCH[2]} port=${BASH_REMATCH[4]}
if [ -z "$port" ]; then port=389; [ "$scheme" = ldap ] || port=636; fi
[[ ${LDAP_BASE:-} =~ ^dc=[A-Za-z0-9-]+(,dc=[A-Za-z0-9-]+)*$ ]] || missing "LDAP_BASE must be the directory's suffix in the form dc=example,dc=org, and is '${LDAP_BASE:-}'"
[ -z "${LDAP_CA_FILE:-}" ] || [ -r "$LDAP_CA_FILE" ] || missing "LDAP_CA_FILE=$LDAP_CA_FILE cannot be read"
[ -w "${conf%/*}" ] || missing "${conf%/*} cannot be written by user $(id -u): mount an emptyDir there"

umask 077
# The key of the session cookies lives as long as the container.
cat >"$conf" <<END
<?php
\$config->custom->appearance['friendly_attrs'] = array();
\$config->custom->session['blowfish'] = '$(head -c 24 /dev/urandom | base64)';
\$config->custom->appearance['hide_template_warning'] = true;
\$servers = new Datastore();
\$servers->newServer('ldap_pla');
\$servers->setValue('server', 'name', 'Slurm users');
\$servers->setValue('server', 'host', '$scheme://$host:$port');
\$servers->setValue('server', 'port', 0);
\$servers->setValue('server', 'base', array('$LDAP_BASE'));
\$servers->setValue('server', 'tls', false);
\$servers->setValue('login', 'auth_type', 'session');
\$servers->setValue('login', 'bind_id', 'cn=admin,$LDAP_BASE');
\$servers->setValue('auto_number', 'enable', true);
\$servers->setValue('auto_number', 'min', array('uidNumber' => 10000, 'gidNumber' => 10000));
END
[ -z "${LDAP_CA_FILE:-}" ] || export LDAPTLS_CACERT=$LDAP_CA_FILE
exec apache2 -D FOREGROUND -f /etc/phpldapadmin/apache-container.conf
