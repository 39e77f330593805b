#!/bin/bash
# What a real GPU and driver must stand, in one call: faults, budgets, and compute-sanitizer over a server at work.
#
#   bench/h200_checks.sh pack DIR       where Sluice builds: what bench/h200_engine.sh packs, and the tests
#   bench/h200_checks.sh run DIR [OUT]  where the GPU is (python3, root for the cgroups; no compiler, no library needed)
# PARTS="faults memory stages budget sanitize" (default: all of them) chooses what is run:
#   faults    tests/fault/gpu_faults.py: kernels that fault, GPUs that are gone and memory that runs out under the real
#             binary, on one GPU and, where there are two, on either of two
#   memory    device memory beside the plan and --vram, resident and with a quarter of the experts on the card
#   stages    with the layers over two GPUs: the memory of both cards beside their plans, resident and with a quarter of
#             the experts on the cards; a server under memcheck and racecheck. Skipped where there is one
#   budget    tests/budget/test_budget.py on the GPU: host memory within --ram, in a cgroup of that size
#   sanitize  a server under memcheck, racecheck, synccheck and initcheck (or those of TOOLS), experts resident and in tiers
# Ends with how much passed, failed and was skipped. Exit status 1: something failed; 77: there is no GPU to use.
set -uo pipefail

pack() {
    set -e
    here=$(dirname "$0")
    "$here/h200_engine.sh" pack "$1"
    dir=$(cd "$1" && pwd)
    cd "$here/.."
    make build/release/tests/support/faulty/libcuda.so.1
    cp build/release/tests/support/faulty/libcuda.so.1 bench/h200_checks.sh tests/fault/gpu_faults.py \
        tests/budget/test_budget.py tests/budget/cgroup.py "$dir/"
    ls -l "$dir"
}

n_passed=0 n_failed=0 n_skipped=0
say() { printf '\n== %s\n' "$*"; }
passed() { n_passed=$((n_passed + 1)); }
skipped() {
    echo "skipped: $*"
    n_skipped=$((n_skipped + 1))
}
failed() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}

# tap NAME: shows and counts what the program left in OUT/NAME.log.
tap() {
    grep -E '^(ok|not ok|#|1\.\.0)' "$out/$1.log" || tail -5 "$out/$1.log"
    local skips
    skips=$(grep -c '^ok .*# SKIP' "$out/$1.log")
    n_skipped=$((n_skipped + skips))
    n_passed=$((n_passed + $(grep -c '^ok' "$out/$1.log") - skips))
    n_failed=$((n_failed + $(grep -c '^not ok' "$out/$1.log")))
    grep -qE '^(ok|not ok)' "$out/$1.log" || failed "$1: no test was run"
    grep -q '^1\.\.' "$out/$1.log" || failed "$1: it did not come to its end"
}

# plan_of MODEL KEY ARGS: a number of the plan on $devices.
plan_of() {
    "$sluice" plan -m "$1" --device "$devices" --json --ram-bandwidth 1 --disk-bandwidth 1 "${@:3}" 2>/dev/null |
        python3 -c 'import json, sys; print(eval(sys.argv[1], {"p": json.load(sys.stdin)}))' "$2"
}
devices=cuda
DEVICE_ROWS='sum(r["bytes"] for r in p["rows"] if r["memory"] == "device" and r["what"] not in ("routed experts", "device slots"))'
EXPERTS='sum(c["experts"] * c["slot_bytes"] for c in p["classes"])'

# serve NAME PREFIX... -- ARGS: starts a server (its log: OUT/NAME.log), or says why not; stop NAME ends it.
serve() {
    local name=$1 prefix=() i
    shift
    while [ "$1" != -- ]; do
        prefix+=("$1")
        shift
    done
    shift
    "${prefix[@]}" "$sluice" serve --port 0 --alias "$name" --heat-file off "$@" >"$out/$name.log" 2>&1 </dev/null &
    server=$!
    for ((i = 0; i < ${START_SECONDS:-100} * 10; i++)); do
        grep -q "ready after" "$out/$name.log" && break
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    url=$(sed -n 's,.*listening on \(http://[^ ]*:[0-9]*\).*,\1,p' "$out/$name.log" | head -1)
    grep -q "ready after" "$out/$name.log" && return
    tail -5 "$out/$name.log"
    return 1
}

# The program itself gets the signal, also below a sanitizer; its exit status.
stop() {
    local pid
    for pid in $(pgrep -f -- "sluice serve --port 0 --alias $1 "); do
        [ "$(readlink "/proc/$pid/exe")" != "$(readlink -f "$sluice")" ] || kill -TERM "$pid"
    done
    wait "$server"
}

# ask N TOKENS: that many requests at once, streams among them; all must be answered.
ask() {
    python3 - "$url" "$1" "$2" <<'PY'
import http.client, json, sys, threading
host, n, tokens, bad = sys.argv[1][len("http://"):], int(sys.argv[2]), int(sys.argv[3]), []
def one(i):
    try:
        c = http.client.HTTPConnection(host, timeout=300)
        c.request("POST", "/v1/completions", json.dumps({"prompt": "Tell me a story about river %d. " % i * (1 + 4 * i),
                  "stream": bool(i % 2), "max_tokens": tokens, "temperature": 0.8, "logprobs": 2}))
        r = c.getresponse()
        text = r.read().decode()
        if r.status != 200 or '"error"' in text:
            bad.append("%d %s" % (r.status, text[-300:]))
    except OSError as e:
        bad.append(repr(e))
threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
for t in threads: t.start()
for t in threads: t.join()
print("\n".join(bad), end="\n" if bad else "")
sys.exit(bool(bad))
PY
}

used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits; }

# memory NAME LIMIT ARGS: what a server at work takes of $devices: LIMIT in all, or that of the plan if it is 0; and of each
# card what its stage is planned to take. The card's whole use, less that, is the driver's.
memory() {
    local name=$1 limit=$2 before
    shift 2
    before=$(used)
    if serve "$name" -- -m "$model" --device "$devices" -c 2048 "$@" && ask 8 64; then
        python3 - "$url" "$limit" "$before" "$(used)" "$out/$name.log" "${DRIVER_MIB:-1024}" "$name" <<'PY' && passed || failed "$name: not as planned"
import re, sys, urllib.request
url, limit, before, now = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(), sys.argv[4].split()
log, driver, name = open(sys.argv[5]).read(), int(sys.argv[6]), sys.argv[7]
metrics = urllib.request.urlopen(url + "/metrics").read().decode()
ours = float(re.search(r"^sluice_device_memory_bytes (\S+)", metrics, re.M).group(1)) / 2**20
held = {int(c): float(v) / 2**20 for c, v in re.findall(r'^sluice_stage_memory_bytes\{.*device="cuda:(\d+)"\} (\S+)', metrics, re.M)}
plan = float(re.search(r"total, device +([0-9.]+) MiB", log).group(1))
may = limit or plan
good = plan - 1 <= ours <= plan + 0.1 <= may + 0.2
print("%s: allocated %.1f MiB, planned %.1f, may take %.1f" % (name, ours, plan, may))
cards = [(int(c), float(p)) for c, p in re.findall(r"memory: device \d+: layers .* on cuda:(\d+): .*?([0-9.]+) MiB of ", log)] or [(0, plan)]
for card, part in cards:
    rose = int(now[card]) - int(before[card])
    print("  cuda:%d: allocated %.1f MiB, planned %.1f; its whole use rose by %d: %.0f beside ours are the driver's"
          % (card, held[card], part, rose, rose - part))
    good = good and part - 1 <= held[card] <= part + 0.1 and -2 <= rose - part <= driver
sys.exit(not good)
PY
    else
        failed "$name"
    fi
    stop "$name" || failed "$name: exit status $?"
}

sanitized() { # TOOL NAME ARGS: one server below a tool, in the background
    local tool=$1 name=$2
    shift 2
    (
        start=$(date +%s)
        if serve "$name" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --print-limit 5 \
            -- --parallel 3 -c 512 --batch 128 --device "$devices" "$@" && ask 3 12; then
            status=0
        else
            status=90
        fi
        stop "$name" || status=$?
        printf '%-9s %-24s %s, %s s%s\n' "$tool" "$name" "$(sed -n 's/.*SUMMARY: //p' "$out/$name.log" | head -1)" \
            $(($(date +%s) - start)) "$([ "$status" = 0 ] || echo "; exit status $status")" >"$out/$name.sum"
        [ "$status" = 0 ] && grep -q 'SUMMARY: 0 \(errors\|hazards\)' "$out/$name.log"
        echo $? >"$out/$name.rc"
    ) &
    jobs+=("$name:$!")
}

# least_of MODEL: of --vram for each of $devices, in MiB, with a little room, as sanitized serves.
least_of() {
    local n=$(($(tr -cd , <<<"$devices" | wc -c) + 1))
    echo $((($(plan_of "$1" 'p["vram_least_bytes"]' --experts streamed --vram 1MiB --parallel 3 -c 512 --batch 128) / n >> 20) + 2))
}

# quarter_of MODEL: what $devices take in all with a quarter of the experts, in MiB.
quarter_of() {
    echo $((($(plan_of "$1" "$DEVICE_ROWS" -c 2048) + $(plan_of "$1" "$EXPERTS" -c 2048) / 4) >> 20))
}

sanitize() { # PREFIX TOOLS: servers on $devices below each tool
    local tool
    if [ -z "$sanitizer" ]; then
        skipped "$1sanitize: compute-sanitizer is not installed"
        return
    fi
    for tool in $2; do
        sanitized "$tool" "$1$tool-resident" -m "$small" --experts resident
        sanitized "$tool" "$1$tool-tiers" -m "$small" --experts streamed --vram "$(least_of "$small")MiB"
    done
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    dir=$(mktemp -d /tmp/h200checks.XXXXXX)
    tar -C "$dir" -xzf "$1/sluice.tar.gz" || exit 1
    sluice=$(echo "$dir"/*/libexec/sluice)
    "$sluice" --version >/dev/null 2>&1 || sluice=$(echo "$dir"/*/bin/sluice)
    trap 'pkill -KILL -f -- "$sluice serve "; exit 143' INT TERM # below a sanitizer they take minutes to end by themselves
    demo=$(echo "$dir"/*/demo/demo.gguf)
    export XDG_CACHE_HOME=$dir CUDA_DEVICE_ORDER=PCI_BUS_ID # as nvidia-smi numbers them
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not work"
    cat "$1/about"
    parts=" ${PARTS:-faults memory stages budget sanitize} "
    if ! plan_of "$demo" 1 &>/dev/null; then
        "$sluice" plan -m "$demo" --device cuda 2>&1 | tail -1
        n_skipped=$(wc -w <<<"$parts")
        summary
        return 77
    fi
    model=$dir/model.gguf
    "$sluice" synth -q -o "$model" --layers 16 --embd 1024 --heads 16 --kv-heads 4 --head-dim 128 --experts 64 --top-k 8 \
        --expert-ff 512 --vocab 8192 -t Q4_K --down Q6_K || failed "synth"
    small=$dir/small.gguf
    "$sluice" synth -q -o "$small" --layers 2 --embd 512 --heads 8 --kv-heads 2 --head-dim 128 --experts 16 --top-k 4 \
        --expert-ff 256 --vocab 1024 -t Q4_K --down Q6_K,Q4_K || failed "synth"
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    jobs=()

    if [[ $parts == *" memory "* ]]; then
        say "device memory"
        quarter=$(quarter_of "$model")
        memory resident 0 --experts resident
        memory quarter "$quarter" --vram "${quarter}MiB"
    fi
    if [[ $parts == *" faults "* ]]; then
        say "faults"
        driver=${DRIVER:-$(ldconfig -p | awk '$1 == "libcuda.so.1" && /x86-64/ { print $NF; exit }')}
        timeout "${FAULTS_SECONDS:-300}" python3 "$1/gpu_faults.py" "$sluice" "$demo" "$1" "$driver" >"$out/faults.log" 2>&1
        tap faults
    fi
    if [[ $parts == *" stages "* ]]; then
        say "layers over two GPUs"
        if devices=cuda:0,1 plan_of "$demo" 1 &>/dev/null; then
            devices=cuda:0,1
            each=$(($(quarter_of "$model") / 2))
            memory stages-resident 0 --experts resident
            memory stages-quarter $((2 * each)) --vram "${each}MiB"
            sanitize stages- "${TOOLS:-memcheck racecheck}"
            devices=cuda
        else
            skipped "stages: $("$sluice" plan -m "$demo" --device cuda:0,1 2>&1 | tail -1)"
        fi
    fi
    if [[ $parts == *" sanitize "* ]]; then
        say "a server under compute-sanitizer"
        sanitize "" "${TOOLS:-memcheck racecheck synccheck initcheck}"
        [ -z "$sanitizer" ] || sanitized memcheck memcheck-demo-tiers -m "$demo" --experts streamed --vram "$(least_of "$demo")MiB"
    fi
    if [[ $parts == *" budget "* ]]; then # while the sanitizers run: this is about the host's memory
        say "host memory within --ram"
        mixed=$dir/mixed.gguf
        "$sluice" synth -q -o "$mixed" --layers 8 --embd 512 --heads 8 --kv-heads 2 --experts 32 --top-k 4 --expert-ff 512 \
            --vocab 4096 -t Q4_K --down Q4_K,Q6_K
        vram=$((($(plan_of "$mixed" "$DEVICE_ROWS" -c 1024) + $(plan_of "$mixed" "$EXPERTS") / 4 >> 20) + 2))
        timeout "${BUDGET_SECONDS:-150}" python3 "$1/test_budget.py" "$sluice" --quick --device cuda --vram "${vram}MiB" >"$out/budget.log" 2>&1
        if [ $? = 77 ]; then
            skipped "$(tail -1 "$out/budget.log")"
        else
            tap budget
        fi
    fi
    for job in "${jobs[@]}"; do
        wait "${job#*:}"
        name=${job%:*}
        cat "$out/$name.sum"
        if [ "$(cat "$out/$name.rc")" = 0 ]; then
            passed
        else
            failed "$name"
            grep -m12 '^=====' "$out/$name.log"
        fi
        rm -f "$out/$name.sum" "$out/$name.rc"
    done
    rm -rf "$dir"
    summary
}

summary() {
    printf '\n%d passed, %d failed, %d skipped\n' "$n_passed" "$n_failed" "$n_skipped"
    [ "$n_failed" = 0 ]
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run)
    mkdir -p "${3:-/tmp}"
    run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/checks.txt"
    exit "${PIPESTATUS[0]}"
    ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
