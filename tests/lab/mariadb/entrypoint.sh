#!/bin/bash
# Makes the database at the first start, then runs mariadbd with the container's arguments. root logs in by the socket alone.
set -euo pipefail
data=/var/lib/mysql
if [ ! -d "$data/mysql" ]; then
    password=$(<"$MARIADB_PASSWORD_FILE")
    password=${password//\\/\\\\} password=${password//\'/\\\'}
    mariadb-install-db --datadir="$data" --auth-root-authentication-method=socket --skip-test-db >/dev/null
    mariadbd --datadir="$data" --bootstrap <<END
FLUSH PRIVILEGES;
CREATE DATABASE \`$MARIADB_DATABASE\`;
CREATE USER '$MARIADB_USER'@'%' IDENTIFIED BY '$password';
GRANT ALL ON \`$MARIADB_DATABASE\`.* TO '$MARIADB_USER'@'%';
END
fi
exec mariadbd --datadir="$data" "$@"
