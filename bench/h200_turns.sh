#!/bin/bash
# Two versions of Sluice in turns on a machine with a GPU: does a change cost speed?
#
#   bench/h200_turns.sh pack DIR OLD    where Sluice builds: `make dist` of this tree and of OLD, another one of an older
#                                       commit, with kernels for CUDA_ARCHS (default 90), into DIR
#   bench/h200_turns.sh run DIR [OUT]   where the GPU is (python3; no compiler, no library needed): makes the model unless
#                                       MODELS (default /tmp) has it, and times both, ROUNDS (default 3) times in turns
# PRESET (default qwen3-30b-a3b) is `sluice synth --preset`'s, ARGS (default "--experts resident --parallel 1,8 -p 2048
# -n 96 -b 2048") are `sluice bench`'s. Ends with a line for each test: medians, new beside old. Exit status 1: something
# failed; 77: there is no GPU to use.
set -uo pipefail

pack() {
    set -e
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    old=$(cd "$2" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}" WITH_CUDA=1
    for which in old new; do
        tree=$old
        [ $which = old ] || tree=$(pwd)
        make -C "$tree" dist
        cp "$tree"/dist/sluice-*-linux-x86_64.tar.gz "$dir/$which.tar.gz"
        dirty=$(git -C "$tree" status --porcelain --untracked-files=no | head -c1)
        echo "$which: commit $(git -C "$tree" rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, sm $CUDA_ARCHS"
    done | tee "$dir/about.log"
    grep -E '^(old|new): ' "$dir/about.log" >"$dir/about"
    rm "$dir/about.log"
    cp bench/h200_turns.sh "$dir/"
    ls -l "$dir"
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    dir=$(mktemp -d /tmp/h200turns.XXXXXX)
    rc=0
    export XDG_CACHE_HOME=$dir
    for which in old new; do
        mkdir "$dir/$which" && tar -C "$dir/$which" -xzf "$1/$which.tar.gz" || exit 1
    done
    old=$(echo "$dir"/old/*/bin/sluice) new=$(echo "$dir"/new/*/bin/sluice)
    preset=${PRESET:-qwen3-30b-a3b}
    model=${MODELS:-/tmp}/$preset.gguf
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || { rm -rf "$dir"; return 77; }
    cat "$1/about"
    [ -f "$model" ] || "$new" synth --preset "$preset" -q -o "$model" || exit 1
    for round in $(seq "${ROUNDS:-3}"); do
        for which in old new; do
            log=$out/$which-$round.json
            # shellcheck disable=SC2086
            "${!which}" bench -m "$model" --device cuda:0 --heat-file off --ram 100GiB -r 3 --json \
                ${ARGS:---experts resident --parallel 1,8 -p 2048 -n 96 -b 2048} >"$log" 2>"$log.err" ||
                { tail -3 "$log.err"; rm -f "$log"; rc=1; }
        done
    done
    python3 - "$out" <<'PY' || rc=1
import glob, json, statistics, sys
figures = {}
for which in ("old", "new"):
    for path in sorted(glob.glob(f"{sys.argv[1]}/{which}-*.json")):
        for t in json.load(open(path)):
            figures.setdefault(t["test"], {}).setdefault(which, []).append(t["avg_ts"])
for name, of in figures.items():
    for which, values in of.items():
        print(f"{name:14} {which}  " + "  ".join(f"{v:9.1f}" for v in values))
    if len(of) == 2:
        print(f"{name:14} new / old {statistics.median(of['new']) / statistics.median(of['old']):.4f}")
if not figures:
    sys.exit("nothing was measured")
PY
    rm -rf "$dir"
    return $rc
}

case "${1:-}" in
pack) pack "${2:?where to?}" "${3:?which older tree?}" ;;
run) mkdir -p "${3:-/tmp}"; run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/turns.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
