#!/bin/bash
# The engine on a machine with a GPU, in one call: answers against the CPU's, and speed beside its ceilings.
#
#   bench/h200_engine.sh pack DIR       where Sluice builds: `make dist` with kernels for CUDA_ARCHS (default 90), into DIR
#   bench/h200_engine.sh run DIR [OUT]  where the GPU is (python3 with numpy; no compiler, no library needed): unpacks
#                                       it, makes the model of Qwen3-30B-A3B's shape (18.2 GiB, below MODELS, default
#                                       /tmp) unless it is there, and runs the parts; what they print goes to OUT too
# PARTS="same resident eight streamed quarter disk" (default: all of them) and REPS (default 2) choose what is run.
# Exit status 1: an answer differed or a part failed.
set -uo pipefail

pack() {
    set -e
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}" WITH_CUDA=1
    make dist
    cp dist/sluice-*-linux-x86_64.tar.gz "$dir/sluice.tar.gz"
    cp bench/h200_engine.sh "$dir/"
    dirty=$(git status --porcelain --untracked-files=no | head -c1)
    echo "commit $(git rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, kernels for sm $CUDA_ARCHS" >"$dir/about"
    ls -l "$dir"
}

say() { printf '\n== %s\n' "$*"; }
failed() {
    echo "FAILED: $*"
    rc=1
}

# The largest difference between two files of log-probabilities, and whether they are the same to the bit.
differ() {
    python3 - "$1" "$2" <<'PY'
import sys, numpy as np
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
print("  %d positions x %d: largest difference of a log-probability %.2e, mean %.2e, best token differs at %d; %s" % (
    *a.shape, np.abs(a - b).max(), np.abs(a - b).mean(), (a.argmax(1) != b.argmax(1)).sum(),
    "the same bits" if a.tobytes() == b.tobytes() else "not the same bits"))
PY
}

same_bits() { cmp -s "$1" "$2" && echo "  $3: the same bits" || { differ "$1" "$2"; failed "$3 differs"; }; }

# vram SHARE: --vram that gives this share of the experts slots; ram SHARE likewise of --ram beside it.
budget() {
    "$sluice" plan -m "$big" --device cuda --json --ram-bandwidth 1 --disk-bandwidth 1 --parallel 1 -c 2100 --batch 2048 \
        --ram 100GiB "${@:2}" >"$out/plan.json" 2>"$out/plan.err" || cat "$out/plan.err" >&2
    python3 - "$out/plan.json" "$1" <<'PY'
import json, sys
p, share = json.load(open(sys.argv[1])), float(sys.argv[2])
dev = sum(r["bytes"] for r in p["rows"] if r["memory"] == "device" and r["what"] not in ("routed experts", "device slots"))
experts = sum(c["experts"] * c["slot_bytes"] for c in p["classes"])
print(int((dev + share * experts) / 2**20) + 2)
PY
}

bench() { # name, arguments: a line per test, the whole in a file
    say "$1"
    local log=$out/$1.json
    if timeout "${BENCH_SECONDS:-200}" "$sluice" bench -m "$big" --device cuda --json -r "${REPS:-2}" "${@:2}" >"$log" 2>"$log.err"; then
        python3 - "$log" <<'PY'
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  %-10s %9.1f tokens/s" % (t["test"], t["avg_ts"]), end="")
    if "causal_ceiling_ts" in t:
        print(", causal ceiling %.1f (%.0f %%), overlap %.1f (%.0f %%)" % (t["causal_ceiling_ts"],
              100 * t["causal_ceiling_reached"], t["overlap_ceiling_ts"], 100 * t["overlap_ceiling_reached"]), end="")
    for k in ("device_bytes_per_s", "link_bytes_per_s", "disk_before_bytes_per_s"):
        if t.get(k):
            print(", %s %.2f GB/s" % (k.split("_")[0], t[k] * 1e-9), end="")
    for k in ("expert_hits", "expert_host_hits", "expert_misses", "expert_promotions", "expert_demotions"):
        if t.get(k):
            print(", %s %d" % (k[7:], t[k]), end="")
    print()
PY
    else
        tail -5 "$log.err"
        failed "$1"
    fi
}

run() {
    rc=0
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    models=${MODELS:-/tmp}
    big=$models/qwen3-30b-a3b.gguf
    dir=$(mktemp -d /tmp/h200engine.XXXXXX)
    tar -C "$dir" -xzf "$1/sluice.tar.gz" || exit 1
    sluice=$(echo "$dir"/*/bin/sluice)
    export XDG_CACHE_HOME=$dir
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not work"
    cat "$1/about"
    "$sluice" --version
    parts=" ${PARTS:-same resident eight streamed quarter disk} "

    if [[ $parts == *" same "* ]]; then
        say "answers of the demo model"
        demo=$(echo "$dir"/*/demo/demo.gguf)
        for i in 1 2 3 4 5 6; do
            echo "Once there was a river that ran past an old mill. What is 17 plus $i, and which month follows March? " \
                "Count from five to twelve, then spell the word river backwards, then tell a story of $i lines."
        done >"$dir/text"
        score() { "$sluice" score -m "$demo" --text "$dir/text" --logprobs "$out/$1.npy" "${@:2}" >/dev/null 2>"$out/$1.err" ||
            { tail -3 "$out/$1.err"; failed "score $1"; }; }
        answer() { "$sluice" run -m "$demo" -q --temp 0 -n 96 -p "Tell me a story about a river." "${@:2}" >"$out/$1.txt" 2>"$out/$1.err" ||
            { tail -3 "$out/$1.err"; failed "run $1"; }; }
        score cpu --device cpu
        score cuda --device cuda --experts resident
        [ -f "$out/cuda.npy" ] && echo " the CPU beside the GPU:" && differ "$out/cpu.npy" "$out/cuda.npy"
        answer cuda-answer --device cuda --experts resident
        least=$("$sluice" plan -m "$demo" --device cuda --experts streamed --vram 1MiB --json 2>/dev/null |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["vram_least_bytes"] >> 20)')
        least_ram=$("$sluice" plan -m "$demo" --device cuda --experts streamed --vram "${least}MiB" --ram 1MiB --json 2>/dev/null |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["least_bytes"] >> 20)')
        echo " least budgets: --vram ${least}MiB --ram ${least_ram}MiB"
        for more in 0 2 6; do
            for ram in "$((least_ram + 40))MiB" 8GiB; do
                name="vram-$((least + more))-ram-$ram"
                score "$name" --device cuda --experts streamed --vram "$((least + more))MiB" --ram "$ram"
                [ -f "$out/$name.npy" ] && same_bits "$out/cuda.npy" "$out/$name.npy" "scored with $name"
                answer "$name-answer" --device cuda --experts streamed --vram "$((least + more))MiB" --ram "$ram"
                same_bits "$out/cuda-answer.txt" "$out/$name-answer.txt" "answered with $name"
            done
        done
        rm -f "$out"/*.npy
    fi
    [[ $parts == " same " ]] && return "$rc"

    if [ ! -f "$big" ]; then
        say "the model"
        start=$(date +%s.%N)
        "$sluice" synth --preset qwen3-30b-a3b -q -o "$big" ${SYNTH:-} || exit 1
        echo "  $(stat -c %s "$big") bytes written in $(echo "$(date +%s.%N) $start" | awk '{ printf "%.1f", $1 - $2 }') s"
    fi
    common=(--ram 100GiB -b 2048)
    [[ $parts == *" resident "* ]] && bench resident --experts resident -p 2048 -n 128 "${common[@]}"
    [[ $parts == *" eight "* ]] && bench eight --experts resident -p 0 -n 64 --parallel 8 "${common[@]}"
    [[ $parts == *" streamed "* ]] && bench streamed-all-on-device --experts streamed -p 0 -n 128 "${common[@]}"
    if [[ $parts == *" quarter "* ]]; then
        vram=$(budget 0.25)
        bench quarter-of-vram --vram "${vram}MiB" -p 2048 -n 48 "${common[@]}"
    fi
    if [[ $parts == *" disk "* ]]; then
        vram=$(budget 0.25)
        least=$("$sluice" plan -m "$big" --device cuda --vram "${vram}MiB" --ram 1MiB --parallel 1 -c 2100 --batch 2048 --json 2>/dev/null |
            python3 -c 'import json, sys; print((json.load(sys.stdin)["least_bytes"] >> 20) + 4480)')
        bench half-on-disk --vram "${vram}MiB" --ram "${least}MiB" -p 512 -n 32 -b 2048
    fi
    rm -rf "$dir"
    return "$rc"
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/engine.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | head -11
    exit 2
    ;;
esac
