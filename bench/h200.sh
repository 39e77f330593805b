#!/bin/bash
# Conformance and speed of the CUDA backend on a machine with a GPU, in one call.
#
#   bench/h200.sh pack DIR          where Sluice builds: builds the conformance programs with their kernels
#                                   (CUDA_ARCHS, default 90) and puts them with what they need into DIR
#   bench/h200.sh run DIR [OUT]     where the GPU is (no compiler, no library needed): runs all of it, then the
#                                   smaller part under compute-sanitizer where that is installed. Prints a table;
#                                   the table and the logs go to OUT (default: a new folder under /tmp)
#   bench/h200.sh here [OUT]        both on one machine
# ONLY="matmul moe" keeps to those programs. SANITIZE=0 leaves the sanitizer out, BENCH=0 bench_token, which times whole
# steps of a Qwen3-30B-A3B shape (20 GB of device memory). Exit status 1: something failed.
set -euo pipefail

pack() {
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}"
    make -j"$(nproc)" WITH_CUDA=1 MODE=release build/release/bench/bench_token \
        $(ls tests/conformance/test_*.c | sed 's,\(.*\)\.c,build/release/\1,')
    rm -rf "$dir"/h200.tar.* "$dir/bin"
    mkdir "$dir/bin"
    cp build/release/tests/conformance/test_* build/release/bench/bench_token "$dir/bin/"
    rm -f "$dir"/bin/*.d
    strip --strip-debug "$dir"/bin/*
    cp "$(ldd "$dir/bin/test_matmul" | awk '/libcmocka/ { print $3 }')" "$dir/bin/"
    cp bench/h200.sh "$dir/"
    dirty=$(git status --porcelain --untracked-files=no | head -c1)
    echo "commit $(git rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, kernels for sm $CUDA_ARCHS, nvcc $(
        nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')" >"$dir/bin/about"
    # The programs hold the same kernels: xz finds that, gzip does not.
    tar -C "$dir" -cJf "$dir/h200.tar.xz" bin
    rm -r "$dir/bin"
    ls -l "$dir"
}

# name, then the arguments of the part that is small enough for the sanitizer's pace
parts() {
    cat <<'PARTS'
matmul --test alone --test embed
moe --test shapes
attention --test odd --test later
elementwise
kv
norm
rope
router --test values --test numbers
hand
graph
PARTS
}

count() { # how many lines of the log match
    grep -c "$1" "$2" || true
}

# Tests of all programs, each run under the sanitizer as one more, and the bench as one.
summary() {
    awk '/ passed, .* failed on cuda/ { p += $2; f += $4; if (/exit status/ && !$4) f++ }
        /^(memcheck|racecheck) / { if (/(exit status|cut off)/) f++; else p++ }
        /^compute-sanitizer is not installed/ { s++ }
        /^whole steps: / { if (/passed/) p++; else f++ }
        END { printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$1"
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    dir=$(mktemp -d /tmp/h200bin.XXXXXX)/bin
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1/h200.tar.xz" "${dir%/bin}"
    export LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" CMOCKA_MESSAGE_OUTPUT=TAP
    table=$out/conformance.txt
    {
        date -u +"%Y-%m-%d %H:%M UTC"
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not work"
        cat "$dir/about"
        echo
    } >"$table"
    rc=0
    # All at once: most of the time goes into the plain-C definition, which runs on one core each.
    while read -r name _; do
        [ -z "${ONLY:-}" ] || [[ " $ONLY " == *" $name "* ]] || continue
        (
            start=$(date +%s.%N)
            status=0
            timeout 400 "$dir/test_$name" --backend cuda >"$out/$name.log" 2>&1 </dev/null || status=$?
            echo "$status $(date +%s.%N) $start" | awk '{ printf "%d %.1f\n", $1, $2 - $3 }' >"$out/$name.rc"
        ) &
    done < <(parts)
    wait
    while read -r name _; do
        [ -f "$out/$name.rc" ] || continue
        read -r status seconds <"$out/$name.rc"
        # The definition's own tests come first, under its own name.
        printf '%-12s %3d passed, %3d failed on cuda, %s s%s\n' "$name" "$(count '^ok.* on cuda' "$out/$name.log")" \
            "$(count '^not ok.* on cuda' "$out/$name.log")" "$seconds" \
            "$([ "$status" = 0 ] || echo "; exit status $status")" >>"$table"
        [ "$status" = 0 ] || rc=1
    done < <(parts)

    if [ "${BENCH:-1}" = 1 ]; then
        status=0
        timeout 120 "$dir/bench_token" >"$out/token.txt" 2>&1 || status=$?
        { echo && cat "$out/token.txt"; } >>"$table"
        if [ "$status" = 0 ] && ! grep -q "BITS DIFFER" "$out/token.txt"; then
            echo "whole steps: passed" >>"$table"
        else
            echo "whole steps: failed, exit status $status" >>"$table"
            rc=1
        fi
    fi
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    if [ "${SANITIZE:-1}" = 1 ] && [ -n "$sanitizer" ]; then
        echo >>"$table"
        for tool in memcheck racecheck; do
            while read -r name args; do
                [ -f "$out/$name.rc" ] || continue
                # shellcheck disable=SC2086
                timeout "${SANITIZE_SECONDS:-150}" "$sanitizer" --tool $tool --error-exitcode 9 --print-limit 5 \
                    "$dir/test_$name" --backend cuda $args >"$out/$name.$tool.log" 2>&1 </dev/null &
                echo "$! $tool $name $args" >>"$out/sanitizer.pids"
            done < <(parts)
        done
        while read -r pid tool name args; do
            status=0
            wait "$pid" || status=$?
            printf '%-9s %-12s %-32s %s%s\n' "$tool" "$name" "$args" \
                "$(sed -n 's/.*SUMMARY: //p' "$out/$name.$tool.log" | head -1)" \
                "$([ "$status" = 0 ] || { [ "$status" = 124 ] && echo "; cut off by its time" || echo "; exit status $status"; })" >>"$table"
            [ "$status" = 0 ] || rc=1
        done <"$out/sanitizer.pids"
    elif [ "${SANITIZE:-1}" = 1 ]; then
        echo "compute-sanitizer is not installed: memory was not checked" >>"$table"
    fi
    for log in "$out"/*.log; do
        case $log in *check.log) continue ;; esac
        grep -B3 -A3 "^not ok" "$log" | head -40 || true
    done
    rm -f "$out"/*.rc "$out/sanitizer.pids"
    summary "$table" >"$out/summary"
    { echo && cat "$out/summary"; } >>"$table"
    rm "$out/summary"
    cat "$table"
    rm -r "${dir%/bin}"
    return $rc
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) run "${2:?from where?}" "${3:-}" ;;
here)
    here=$(mktemp -d /tmp/h200pack.XXXXXX)
    pack "$here"
    run "$here" "${2:-}"
    rm -r "$here"
    ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
