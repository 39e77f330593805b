#!/bin/sh
# demo.sh start SLUICE MODEL | stop
# start: starts the server on the demo model, asks it one question with curl, shows the streamed answer, and
# leaves the server running. stop: stops that server and waits until it has gone.
# PORT (8080) and QUESTION may be set.
set -eu
port=${PORT:-8080}
url="http://127.0.0.1:$port"
log=build/demo.log
pidfile=build/demo.pid
answer=build/demo.answer

# The pid of our server; nothing when it is gone, also when another program has got its number.
server_pid() {
    pid=$(cat "$pidfile" 2>/dev/null) || return 0
    if { tr '\0' '\n' <"/proc/$pid/cmdline"; } 2>/dev/null | sed -n 2p | grep -qx serve; then echo "$pid"; fi
}

stop() {
    pid=$(server_pid)
    rm -f "$pidfile"
    [ -n "$pid" ] || return 1
    kill "$pid" 2>/dev/null || return 0
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

fail() {
    echo "$1" >&2
    cat "$log" >&2
    [ -z "$(server_pid)" ] || stop
    rm -f "$pidfile"
    exit 1
}

case ${1:-} in
stop)
    if stop; then echo "The demo server has stopped."; else echo "No demo server is running."; fi
    exit 0
    ;;
start) ;;
*)
    echo "usage: demo.sh start SLUICE MODEL | stop" >&2
    exit 2
    ;;
esac
sluice=$2
model=$3

if stop; then echo "A demo server was running already; it has been stopped."; fi

mkdir -p build
: >"$log" # the last run's lines must not count
# In a session of its own: the server stays when the terminal closes.
setsid "$sluice" serve -m "$model" --port "$port" >"$log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$pidfile"

# Its log, not the port, says that it is ready: another program may be answering there.
i=0
until grep -q ' ready after ' "$log"; do
    kill -0 "$pid" 2>/dev/null || fail "The server did not start (if the port is taken: make demo PORT=8081):"
    i=$((i + 1))
    [ "$i" -lt 300 ] || fail "The server was not ready after 30 s and has been stopped:"
    sleep 0.1
done

question=${QUESTION:-What is 27 + 58?}
printf '\nYou:    %s\nSluice: ' "$question"
escaped=$(printf '%s' "$question" | sed 's/[\\"]/\\&/g')
curl -sSN "$url/v1/chat/completions" -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "'"$escaped"'"}], "temperature": 0, "stream": true}' |
    tee "$answer" |
    # Each event is `data: {json}`; the pieces of text are joined as they come.
    sed -un 's/^data: .*"delta": *{[^}]*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/; t piece
             d; :piece; s/\\\(["/]\)/\1/g; p' |
    while IFS= read -r piece; do printf '%b' "$piece"; done
echo
grep -q '^data: \[DONE\]' "$answer" || {
    cat "$answer" >&2
    fail "The answer did not come to its end; the server's log:"
}

cat <<TEXT

The server is running (pid $pid, log $log):
  page      $url/          (chat, and a map of the experts)
  API       $url/v1        (OpenAI's and Anthropic's: chat/completions, responses, messages, models)
  health    $url/health
  metrics   $url/metrics
Ask it something else:
  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "stream": true}'
Or chat in the terminal:
  $sluice run -m $model
Stop it:
  make demo-stop
TEXT
