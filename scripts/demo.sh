#!/bin/sh
# demo.sh SLUICE MODEL
# Starts the server on the demo model, asks it one question with curl, shows the streamed answer, and leaves
# the server running.
set -eu
sluice=$1
model=$2
port=${PORT:-8080}
url="http://127.0.0.1:$port"
log=build/demo.log
pidfile=build/demo.pid

if [ -f "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; then
    echo "A demo server is running already (pid $(cat "$pidfile")); stopping it."
    kill "$(cat "$pidfile")"
    while kill -0 "$(cat "$pidfile")" 2>/dev/null; do sleep 0.1; done
fi

setsid "$sluice" serve -m "$model" --port "$port" >"$log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$pidfile"

i=0
until curl -fs "$url/health" >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
        echo "The server did not start:" >&2
        cat "$log" >&2
        echo "If the port is taken, choose another: make demo PORT=8081" >&2
        exit 1
    fi
    i=$((i + 1))
    [ "$i" -lt 300 ] || { echo "The server is not ready after 30 s; see $log" >&2; exit 1; }
    sleep 0.1
done

ask() {
    printf '\nYou:    %s\nSluice: ' "$1"
    curl -fsN "$url/v1/chat/completions" -H 'Content-Type: application/json' -d '{
      "messages": [{"role": "user", "content": "'"$1"'"}],
      "temperature": 0, "stream": true}' |
        # Each event is `data: {json}`; the pieces of text are joined as they come.
        sed -un 's/^data: .*"delta": *{[^}]*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p' |
        while IFS= read -r piece; do printf '%b' "$piece"; done
    echo
}
ask "${QUESTION:-What is 27 + 58?}"

cat <<TEXT

The server is running (pid $pid, log $log):
  API       $url/v1        (OpenAI-style: chat/completions, completions, models)
  health    $url/health
  metrics   $url/metrics
Ask it something else:
  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "stream": true}'
Stop it:
  make demo-stop
TEXT
