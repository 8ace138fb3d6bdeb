#!/usr/bin/env bash
# Installs the PostgreSQL server that tests start for themselves. Says nothing and does nothing where one is.
set -euo pipefail

# The places of tests/support/postgres.py: the path, Debian and Ubuntu, Red Hat.
has_postgres() {
    command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null ||
        compgen -G "/usr/pgsql-*/bin/initdb" >/dev/null
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

has_postgres && exit
if ! command -v apt-get >/dev/null || { [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; }; then
    echo "The tests need a PostgreSQL server, 14 or newer: install your system's package (Debian and Ubuntu: postgresql;" \
        "Fedora: postgresql-server; Arch: postgresql), or put the folder of initdb on PATH." >&2
    exit 1
fi

echo "• PostgreSQL (0.1 GB)"
# Debian's package makes a cluster and starts it on port 5432; tests bring their own, and nobody asked for that one.
setting=/etc/postgresql-common/createcluster.d/practicum.conf
as_root mkdir -p "${setting%/*}"
trap 'as_root rm -f "$setting"' EXIT
echo "create_main_cluster = false" | as_root tee "$setting" >/dev/null
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
has_postgres
