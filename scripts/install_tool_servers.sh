#!/usr/bin/env bash
# Installs third-party MCP servers from exact pins, each in an environment of its own under .tools/.
# Takes about 25 s the first time; nothing to do when up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-python3}"
[ -x .venv/bin/python ] && python=.venv/bin/python
locks=scripts/tool_servers

# A stamp remembers the lock that a folder was made from.
up_to_date() { # FOLDER LOCK
    cmp -s "$1/.stamp" "$2"
}

python_server() { # NAME
    local folder=".tools/$1" lock="$locks/$1.lock"
    up_to_date "$folder" "$lock" && return
    echo "• $folder: mcp-server-$1"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    "$folder/bin/pip" install --disable-pip-version-check --quiet --no-deps -r "$lock"
    cp "$lock" "$folder/.stamp"
}

node_server() { # NAME
    local folder=".tools/$1" lock="$locks/package-lock.json"
    up_to_date "$folder" "$lock" && return
    echo "• $folder: @modelcontextprotocol/server-$1"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$locks/package.json" "$lock" "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --silent
    cp "$lock" "$folder/.stamp"
}

mkdir -p .tools
# Two test runs at once must not build the same environment.
exec 9>.tools/.lock
flock 9
python_server time
python_server git
if command -v npm >/dev/null; then
    node_server everything
else
    echo "npm is not on this machine: server-everything, which needs Node, is left out"
fi
