#!/bin/bash
# The CPU lane and steps of many generated rows on a machine with a GPU, in one call, with what must hold before speed.
#
#   bench/h200_lane.sh pack DIR         where Sluice builds: the program with its libraries, what the conformance programs
#                                       and bench_token are linked from, with kernels for CUDA_ARCHS (default 90), and scripts, into DIR
#   bench/h200_lane.sh run DIR [OUT]    where the GPU is (python3, gcc)
# PARTS (default "conformance models rows lane real"):
#   conformance  all conformance programs, CUDA against the CPU
#   models       tests/gpu/models.py: small models of every architecture in every placement (ONLY="mamba lfm2": those; MODELS_LIMIT=900 seconds)
#   restarts     tests/gpu/restarts.py: servers that are killed, and what the next finds on disk
#   sanitize     conformance programs and small models (SANITIZE: names in models.py, one of each kind of layer by default)
#                under compute-sanitizer's memcheck; TOOLS="memcheck racecheck": the conformance programs under those
#   parts        bench_token: each part of a layer, steps of ROWS (default "1 8 12 16 32 64") generated rows
#   rows         `sluice bench` resident, --parallel of ROWS
#   lane, real   a quarter of the experts in VRAM, uniform routing and the real model's, lane off and auto in turns, links
#                slower by SLOWDOWNS (default "1 2.2 4.6"); ROUNDS (default 2), TOKENS (default 96)
#   threads      the same with 2 threads, real routing
#   many         the same with prompts of 512 and eight sequences, real routing
#   bits         one answer of 400 tokens of the large model: lane off, auto, and forced to 25, 50, 100 %
# Exit status 1: something failed; 77: there is no GPU.
set -uo pipefail

pack() {
    set -e
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}" WITH_CUDA=1 MODE=release
    make -j2 all
    lane=$dir/lane
    rm -rf "$lane" && mkdir -p "$lane"/{bin,lib,src/lib,tests/gpu,tests/peer,bench}
    cp build/release/sluice "$lane/bin/"
    strip "$lane/bin/sluice"
    ldd build/release/sluice | awk '$3 ~ /^\// { print $3 }' | grep -v '/lib[cm]\.so\|libpthread\|libdl\|ld-linux' |
        xargs -I{} cp -L {} "$lane/lib/"
    cp -L "$(ldconfig -p | awk '$1 == "libcmocka.so.0" { print $NF; exit }')" "$lane/lib/"
    ln -s libcmocka.so.0 "$lane/lib/libcmocka.so"
    # The other programs hold the same kernels, so they are linked over there.
    cp build/release/lib/libsl_{backends,common}.a "$lane/src/lib/"
    strip -g "$lane"/src/lib/*.a
    cp /usr/include/cmocka*.h "$lane/src/"
    cp --parents tests/conformance/*.[ch] tests/support/*.h bench/bench_token.c $(find backends common engine model -name '*.h' -o -name '*.def') "$lane/src/"
    cp tests/gpu/*.py "$lane/tests/gpu/"
    cp tests/peer/*.py "$lane/tests/peer/"
    cp bench/logprobs.py "$lane/bench/"
    cp bench/h200_lane.sh "$dir/"
    dirty=$(git status --porcelain --untracked-files=no | head -c1)
    echo "commit $(git rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, kernels for sm $CUDA_ARCHS" >"$lane/about"
    tar -C "$dir" -czf "$dir/lane.tar.gz" lane
    rm -r "$lane"
    ls -l "$dir"
}

# The conformance programs and bench_token, from what pack left.
link_programs() {
    local source
    cd "$dir/src" || exit 1
    flags="-std=gnu11 -I. -D_GNU_SOURCE -pthread -ffp-contract=off -fno-math-errno -O2"
    # shellcheck disable=SC2086
    gcc $flags -c -o conformance.o tests/conformance/conformance.c || failed "compiling"
    for source in tests/conformance/test_*.c bench/bench_token.c; do
        # shellcheck disable=SC2086
        gcc $flags -o "$dir/bin/$(basename "$source" .c)" "$source" conformance.o lib/libsl_backends.a lib/libsl_common.a \
            -L"$dir/lib" -lcmocka -ldl -lm -lpthread 2>"$out/$(basename "$source").err" || cat "$out/$(basename "$source").err" &
    done
    wait
    cd - >/dev/null || exit 1
}

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
n_passed=0 n_failed=0
passed() { n_passed=$((n_passed + 1)); }
failed() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}

conformance() {
    local name pids=()
    for name in "$dir"/bin/test_*; do
        CMOCKA_MESSAGE_OUTPUT=TAP timeout 300 "$name" --backend cuda >"$out/$(basename "$name").log" 2>&1 </dev/null &
        pids+=("$!:$(basename "$name")")
    done
    for name in "${pids[@]}"; do
        if wait "${name%:*}"; then
            printf '%s %s; ' "${name#*:}" "$(grep -c '^ok.* on cuda' "$out/${name#*:}.log")"
            passed
        else
            grep -B8 -A2 '^not ok' "$out/${name#*:}.log" | head -40
            failed "${name#*:}"
        fi
    done
    echo
}

small() { # models or restarts
    local only=()
    for name in ${ONLY:-}; do only+=(--only "$name"); done
    timeout "${MODELS_LIMIT:-900}" python3 "$dir/tests/gpu/$1.py" "$sluice" --jobs 8 "${only[@]}" >"$out/$1.log" 2>&1 && passed || failed "$1"
    grep -v '^ok' "$out/$1.log" | tail -30
    echo "  $(grep -c '^ok' "$out/$1.log") of $(sed -n 's/^1\.\.//p' "$out/$1.log") passed"
}

# A sluice that runs under memcheck; what it finds makes the program's exit status 9. Commands that use no GPU run without: the
# tool fails where CUDA is never called.
sanitized_sluice() {
    printf '#!/bin/bash\n[[ " $* " == *cuda* ]] || exec "%s" "$@"\nexec "%s" --error-exitcode 9 --log-file "%s/memcheck.%%p.log" "%s" "$@"\n' \
        "$sluice" "$sanitizer" "$out" "$sluice" >"$1"
    chmod +x "$1"
}

sanitize() {
    local name tool rc pids only=()
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
        { echo "skipped: compute-sanitizer is not installed"; return; }
    for tool in ${TOOLS:-memcheck}; do
        pids=()
        for name in "$dir"/bin/test_*; do
            CMOCKA_MESSAGE_OUTPUT=TAP timeout "${LIMIT:-400}" "$sanitizer" --tool "$tool" --error-exitcode 9 "$name" --backend cuda \
                >"$out/$tool-$(basename "$name").log" 2>&1 </dev/null &
            pids+=("$!:$tool-$(basename "$name")")
        done
        for name in "${pids[@]}"; do
            wait "${name%:*}"
            rc=$?
            if [ $rc = 0 ]; then
                printf '%s %s; ' "${name#*:}" "$(grep -c '^ok.* on cuda' "$out/${name#*:}.log")"
                passed
            else
                grep -A12 '^not ok\|^========= [^EC]' "$out/${name#*:}.log" | head -40
                failed "${name#*:}: exit status $rc"
            fi
        done
        echo
    done
    sanitized_sluice "$dir/bin/sluice-sanitized"
    for name in ${SANITIZE:-qwen3moe gpt-oss qwen35moe deepseek2 deepseek32 kimi-linear nemotron_h lfm2moe mamba}; do only+=(--only "$name"); done
    timeout "${LIMIT:-400}" python3 "$dir/tests/gpu/models.py" "$dir/bin/sluice-sanitized" --jobs 8 "${only[@]}" >"$out/sanitized-models.log" 2>&1 &&
        passed || failed "models under memcheck"
    grep -v '^ok' "$out/sanitized-models.log" | tail -30
    cat "$out"/memcheck.*.log 2>/dev/null | grep -h -A12 '^========= [^EC]' | head -60
    echo "  models: $(grep -c '^ok' "$out/sanitized-models.log") of $(sed -n 's/^1\.\.//p' "$out/sanitized-models.log") passed, \
$(cat "$out"/memcheck.*.log | grep -c 'ERROR SUMMARY: 0 errors') of $(find "$out" -name 'memcheck.*.log' | wc -l) runs without an error"
}

# --vram for a quarter of the experts.
quarter() {
    "$sluice" plan -m "$1" --device cuda --json --ram-bandwidth 1 --disk-bandwidth 1 --parallel 1 -c 2100 --batch 2048 \
        --ram 100GiB 2>/dev/null | python3 -c '
import json, sys
p = json.load(sys.stdin)
dev = sum(r["bytes"] for r in p["rows"] if r["memory"] == "device" and r["what"] not in ("routed experts", "device slots"))
print("%dMiB" % (int((dev + 0.25 * sum(c["experts"] * c["slot_bytes"] for c in p["classes"])) / 2**20) + 2))'
}

bench() { # model, arguments: "tokens/s ..." of each test, and the lane's share
    local model=$1
    shift
    timeout 120 "$sluice" bench -m "$model" --device cuda:0 --heat-file off --ram 100GiB -b 2048 -p 0 -r 1 --json "$@" \
        >"$out/bench.json" 2>"$out/bench.err" || { tail -3 "$out/bench.err"; failed "bench $*"; return; }
    passed
    python3 - "$out/bench.json" <<'PY'
import json, sys
for t in json.load(open(sys.argv[1])):
    lane = ""
    if t.get("lane_experts"):
        lane = " (lane %.0f %% at %.1f GB/s)" % (100 * t["lane_experts"] / t["expert_host_hits"], t["lane_bytes"] / t["lane_ns"])
    print(" %.1f%s" % (t["avg_ts"], lane), end="")
PY
}

turns() { # model, arguments: off and auto in turns
    local model=$1 vram slow round lane
    shift
    vram=$(quarter "$model")
    for slow in ${SLOWDOWNS:-1 2.2 4.6}; do
        for round in $(seq "${ROUNDS:-2}"); do
            for lane in off auto; do
                printf '  link / %s, %s:' "$slow" "$lane"
                SLUICE_TEST_LINK_SLOWDOWN=$slow bench "$model" --experts streamed --vram "$vram" -n "${TOKENS:-96}" --cpu-lane "$lane" "$@"
                echo
            done
        done
    done
}

answer() { # file, arguments
    "$sluice" run -m "$real" -q --temp 0 -n 400 --device cuda:0 --heat-file off --ram 100GiB -p "Tell me of a river." "${@:2}" \
        >"$out/$1.txt" 2>"$out/$1.err" || { tail -3 "$out/$1.err"; failed "$1"; }
    [ "$1" = answer ] || { cmp -s "$out/answer.txt" "$out/$1.txt" && passed || failed "$1: another answer"; }
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    work=$(mktemp -d /tmp/h200lane.XXXXXX)
    tar -C "$work" -xzf "$1/lane.tar.gz" || exit 1
    dir=$work/lane sluice=$work/lane/bin/sluice
    export LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} XDG_CACHE_HOME=$work
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || return 77
    cat "$dir/about"
    "$sluice" --version || return 1
    parts=" ${PARTS:-conformance models rows lane real} "
    uniform=${MODELS:-/tmp}/qwen3-30b-a3b.gguf real=${MODELS:-/tmp}/qwen3-30b-a3b-real.gguf
    [[ ! $parts =~ \ (conformance|sanitize|parts)\  ]] || link_programs
    [[ $parts != *" conformance "* ]] || { say conformance && conformance; }
    [[ $parts != *" models "* ]] || { say models && small models; }
    [[ $parts != *" restarts "* ]] || { say restarts && small restarts; }
    [[ $parts != *" sanitize "* ]] || { say "compute-sanitizer" && sanitize; }
    if [[ $parts == *" parts "* ]]; then
        say "each part of a layer"
        # shellcheck disable=SC2046
        "$dir/bin/bench_token" --seconds 0.2 $(printf -- '--rows %s ' ${ROWS:-1 8 12 16 32 64}) | tee "$out/parts.txt" && passed || failed bench_token
    fi
    if [[ $parts =~ \ (rows|real|threads|many|bits)\  ]]; then
        [ -f "$real" ] || "$sluice" synth --preset qwen3-30b-a3b -q -o "$real" || failed synth
    fi
    if [[ $parts == *" rows "* ]]; then
        say "resident, steps of ${ROWS:-1 8 12 16 32 64} rows"
        bench "$real" --experts resident -n 64 --parallel "$(tr ' ' , <<<"${ROWS:-1 8 12 16 32 64}")"
        echo
    fi
    [[ $parts != *" real "* ]] || { say "a quarter in VRAM, real routing" && turns "$real"; }
    if [[ $parts == *" threads "* ]]; then
        say "two threads"
        SLOWDOWNS=1 turns "$real" --cpu-lane-threads 2
    fi
    if [[ $parts == *" many "* ]]; then
        say "prompts of 512, one sequence and eight"
        SLOWDOWNS=1 TOKENS=64 turns "$real" -p 512 --parallel 1,8
    fi
    if [[ $parts == *" bits "* ]]; then
        say "one answer, whoever computes"
        vram=$(quarter "$real")
        answer answer --experts resident
        answer off --vram "$vram" --experts streamed --cpu-lane off
        answer auto --vram "$vram" --experts streamed --cpu-lane auto
        for percent in 25 50 100; do
            SLUICE_TEST_LANE_PERCENT=$percent answer "forced-$percent" --vram "$vram" --experts streamed --cpu-lane auto
        done
    fi
    if [[ $parts == *" lane "* ]]; then
        [ -f "$uniform" ] || "$sluice" synth --preset qwen3-30b-a3b --skew 0 --locality 0 --stay 0 -q -o "$uniform" || failed synth
        say "a quarter in VRAM, uniform routing"
        turns "$uniform"
    fi
    rm -rf "$work"
    printf '\n%d passed, %d failed (%d s)\n' "$n_passed" "$n_failed" "$SECONDS"
    [ "$n_failed" = 0 ]
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) mkdir -p "${3:-/tmp}"; run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/lane.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
