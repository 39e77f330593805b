#!/bin/sh
# with_server.sh SLUICE MODEL -- COMMAND...
# Serves MODEL on a free loopback port, runs COMMAND with --url added, stops the server.
set -eu
sluice=$1
model=$2
shift 3
log=$(mktemp)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$sluice" serve -m "$model" --port "$port" >"$log" 2>&1 </dev/null &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; rm -f "$log"' EXIT
i=0
until curl -fs "http://127.0.0.1:$port/health" >/dev/null 2>&1; do
    i=$((i + 1))
    if ! kill -0 "$pid" 2>/dev/null || [ "$i" -gt 600 ]; then
        echo "with_server: the server did not become ready:" >&2
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done
"$@" --url "http://127.0.0.1:$port"
