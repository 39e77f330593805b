#!/bin/bash
# The engine on a machine with a GPU, in one call: answers against the CPU's, and speed beside its ceilings.
#
#   bench/h200_engine.sh pack DIR       where Sluice builds: `make dist` with kernels for CUDA_ARCHS (default 90), into DIR
#   bench/h200_engine.sh run DIR [OUT]  where the GPU is (python3; no compiler, no library needed): unpacks it,
#                                       makes the model of Qwen3-30B-A3B's shape (18.2 GiB, below MODELS, default
#                                       /tmp) unless it is there, and runs the parts; what they print goes to OUT too
# PARTS="same resident eight streamed quarter disk answers split" (default: all but the last two, which want two GPUs or more) and REPS (default 2) choose what is run.
# Ends with how much passed, failed and was skipped. Exit status 1: something failed; 77: there is no GPU to use.
set -uo pipefail

pack() {
    set -e
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}" WITH_CUDA=1
    make dist
    cp dist/sluice-*-linux-x86_64.tar.gz "$dir/sluice.tar.gz"
    cp bench/h200_engine.sh bench/logprobs.py bench/answers.py "$dir/"
    dirty=$(git status --porcelain --untracked-files=no | head -c1)
    echo "commit $(git rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, kernels for sm $CUDA_ARCHS" >"$dir/about"
    ls -l "$dir"
}

say() { printf '\n== %s\n' "$*"; }
n_passed=0 n_failed=0 n_skipped=0
failed() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}
passed() { n_passed=$((n_passed + 1)); }
summary() {
    printf '\n%d passed, %d failed, %d skipped\n' "$n_passed" "$n_failed" "$n_skipped"
    [ "$n_failed" = 0 ]
}

# near DEFINITION OTHER [BAR]: how far apart two files of log-probabilities are; beyond the bar is a failure.
near() { python3 "$logprobs" "$@" && passed || failed "$2 is too far from $1"; }

same_bits() {
    if cmp -s "$1" "$2"; then
        echo "  $3: the same bits"
        passed
    else
        [[ $1 != *.npy ]] || python3 "$logprobs" "$1" "$2"
        failed "$3 differs"
    fi
}

# Small models of all float types and of quantised ones, each with what it is held to (bench/logprobs.py).
small_models() {
    local sizes="--experts 8 --top-k 2 --vocab 1024" f32="-t F32 --embd-type F32 --output-type F32"
    cat <<MODELS
f32 --arch qwen3moe $f32 $sizes
f32 --arch qwen2moe $f32 $sizes
f32 --arch olmoe $f32 $sizes --embd 256 --heads 4 --kv-heads 4 --head-dim 64
f32 --arch llama $f32 $sizes --rope-freqs --head-dim 128
f32 --arch qwen3 $f32 --experts 0 --top-k 0 --vocab 1024 --heads 3 --kv-heads 3 --head-dim 96
f32 --arch qwen3moe -t F16 --embd-type F16 --output-type F16 $sizes
f32 --arch qwen3moe -t BF16 --embd-type BF16 --output-type BF16 $sizes
quantised --arch qwen3moe -t Q4_K --down Q6_K,Q4_K --attn Q4_K,Q5_K $sizes --expert-ff 256
quantised --arch qwen2moe -t Q8_0 $sizes
f32 --arch gpt-oss $f32 --experts 8 --top-k 4 --vocab 1024 --expert-ff 256 --window 64
f32 --arch gpt-oss $f32 --experts 16 --top-k 4 --vocab 1024 --heads 16 --kv-heads 2 --window 32 --layers 6 --yarn 32 --rope-base 150000 --ctx 131072
f32 --arch gpt-oss -t BF16 --embd-type BF16 --output-type BF16 --experts 8 --top-k 4 --vocab 1024
quantised --arch gpt-oss -t Q8_0 --gate MXFP4 --up MXFP4 --down MXFP4 --experts 16 --top-k 4 --vocab 1024 --embd 480 --heads 16 --kv-heads 2 --expert-ff 352 --window 64
quantised --arch gpt-oss -t Q8_0 --experts 8 --top-k 4 --vocab 1024 --expert-ff 256
f32 --arch gemma4 $f32 $sizes --layers 6 --window-period 3 --window 48 --head-dim 512 --window-head-dim 256 --heads 8 --kv-heads 1 --window-kv-heads 2 --softcap 30
f32 --arch gemma4 $f32 --experts 12 --top-k 5 --vocab 1024 --layers 5 --window-period 2 --window 33 --embd 192 --heads 6 --kv-heads 2 --head-dim 96
f32 --arch gemma4 $f32 --experts 0 --top-k 0 --vocab 1024 --window-period 2 --window 70
quantised --arch gemma4 -t Q8_0 --gate Q4_K --up Q4_K --down Q6_K $sizes --embd 256 --expert-ff 256 --window-period 2 --window 64 --head-dim 512 --window-head-dim 256
f32 --arch grok $f32 $sizes --beside
f32 --arch granitemoe $f32 $sizes
f32 --arch qwen3next $f32 $sizes --rotated 16
f32 --arch qwen35moe $f32 $sizes --rotated 16
quantised --arch qwen35moe -t Q8_0 $sizes --rotated 16
f32 --arch deepseek2 $f32 $sizes --q-lora 48 --head-dim 96 --rotated 32 --dense-layers 1
f32 --arch deepseek2 $f32 --experts 16 --top-k 3 --vocab 1024 --sigmoid --groups 4 --groups-used 2 --q-lora 48 --head-dim 96 --rotated 32
quantised --arch deepseek2 -t Q8_0 $sizes --head-dim 96 --rotated 32
MODELS
}

# The small model's bits wherever its experts and layers are.
small_places() {
    local least name args
    least=$("$sluice" plan -m "$dir/small.gguf" --device cuda --experts streamed --vram 1MiB --json 2>/dev/null |
        python3 -c 'import json, sys; print((json.load(sys.stdin)["vram_least_bytes"] >> 20) + 1)')
    while read -r name args; do
        [ -n "$name" ] || continue
        # shellcheck disable=SC2086
        "$sluice" score -m "$dir/small.gguf" --ids "$dir/ids" --logprobs "$out/small-$name.npy" --heat-file off $args \
            >"$out/small.log" 2>&1 || tail -3 "$out/small.log"
        same_bits "$out/small-cuda.npy" "$out/small-$name.npy" "$name"
    done <<PLACES
least --device cuda:0 --experts streamed --vram ${least}MiB
more --device cuda:0 --experts streamed --vram $((least + 2))MiB
slices --device cuda:0 --experts resident -b 37
stages --device cuda:0,0 --experts resident
$([ "$(nvidia-smi -L | wc -l)" -lt 2 ] || echo "GPUs --device cuda:0,1 --experts resident")
PLACES
}

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

# What follows runs in a memory cgroup of so many MiB, without swap, where the kernel gives one.
within=()
cgroup() {
    local group=/sys/fs/cgroup/sluice-bench
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p $group && echo "$1M" >$group/memory.max && echo 0 >$group/memory.swap.max &&
        within=(sh -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" sh) && echo " in a memory cgroup of $1 MiB" ||
        echo " NOT in a memory cgroup: none can be made"
} 2>/dev/null

bench() { # name, arguments: a line per test, the whole in a file
    say "$1"
    local log=$out/$1.json
    if timeout "${BENCH_SECONDS:-200}" "${within[@]}" "$sluice" bench -m "$big" --device cuda --json -r "${REPS:-2}" "${@:2}" >"$log" 2>"$log.err"; then
        python3 - "$log" <<'PY'
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  %-10s %9.1f tokens/s" % (t["test"], t["avg_ts"]), end="")
    if "causal_ceiling_ts" in t:
        print(", causal ceiling %.1f (%.0f %%), overlap %.1f (%.0f %%)" % (t["causal_ceiling_ts"],
              100 * t["causal_ceiling_reached"], t["overlap_ceiling_ts"], 100 * t["overlap_ceiling_reached"]), end="")
    for k in ("device_bytes_per_s", "link_bytes_per_s", "disk_bytes_per_s", "disk_busy_bytes_per_s"):
        if t.get(k):
            print(", %s %.2f GB/s" % (k[:-len("_bytes_per_s")].replace("_", " "), t[k] * 1e-9), end="")
    for k in ("expert_hits", "expert_host_hits", "expert_misses", "expert_promotions", "expert_demotions",
              "expert_early", "expert_early_used", "prefetch_used"):
        if t.get(k):
            print(", %s %d" % (k[7:], t[k]), end="")
    print()
PY
        passed
    else
        tail -5 "$log.err"
        failed "$1"
    fi
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    models=${MODELS:-/tmp}
    big=$models/qwen3-30b-a3b.gguf
    dir=$(mktemp -d /tmp/h200engine.XXXXXX)
    tar -C "$dir" -xzf "$1/sluice.tar.gz" || exit 1
    sluice=$(echo "$dir"/*/bin/sluice)
    logprobs=$1/logprobs.py answers=$1/answers.py
    export XDG_CACHE_HOME=$dir
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not work"
    cat "$1/about"
    "$sluice" --version
    parts=" ${PARTS:-same resident eight streamed quarter disk} "
    if ! "$sluice" plan -m "$(echo "$dir"/*/demo/demo.gguf)" --device cuda >/dev/null 2>"$out/no-device"; then
        grep -m1 . "$out/no-device"
        rm -rf "$dir"
        n_skipped=$(wc -w <<<"$parts")
        summary
        return 77
    fi

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
        [ -f "$out/cuda.npy" ] && echo " the CPU beside the GPU:" && near "$out/cpu.npy" "$out/cuda.npy" quantised
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
        echo " small models, the CPU beside the GPU:"
        python3 -c 'import array, random; r = random.Random(3)
array.array("i", [r.randrange(1024) for _ in range(184)]).tofile(open("'"$dir"'/ids", "wb"))'
        while read -r bar synth; do
            echo " $synth"
            # shellcheck disable=SC2086
            "$sluice" synth -q -o "$dir/small.gguf" $synth || failed "synth $synth"
            rm -f "$out"/small-*.npy
            for device in cpu cuda; do
                "$sluice" score -m "$dir/small.gguf" --ids "$dir/ids" --device $device --logprobs "$out/small-$device.npy" \
                    >"$out/small.log" 2>&1 || tail -3 "$out/small.log"
            done
            near "$out/small-cpu.npy" "$out/small-cuda.npy" "$bar"
            [[ $synth != *gpt-oss* ]] || small_places
        done < <(small_models)
        rm -f "$out"/*.npy
    fi
    if [[ $parts == " same " ]]; then
        rm -rf "$dir"
        summary
        return
    fi

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
        cgroup "$least"
        bench half-on-disk --vram "${vram}MiB" --ram "${least}MiB" -p 512 -n 32 -b 2048
        within=()
    fi
    [[ $parts == *" answers "* ]] && several
    [[ $parts == *" split "* ]] && split
    rm -rf "$dir"
    summary
}

# The same answers over several GPUs as over one: of the demo model, and of the large one, whose experts are large enough
# to come over two links.
several() {
    local demo devices name args vram half all=cuda:0,1
    [ "$(nvidia-smi -L | wc -l)" -lt 4 ] || all=cuda:0,1,2,3
    demo=$(echo "$dir"/*/demo/demo.gguf)
    say "answers of the demo model over several GPUs"
    seq 1 400 | tr '\n' ' ' >"$dir/text"
    for devices in cuda:0 cuda:0,1 cuda:1,0 cuda:0,0,1,1 $all; do
        "$sluice" score -m "$demo" --text "$dir/text" --logprobs "$out/$devices.npy" --experts resident --device "$devices" \
            >/dev/null 2>"$out/$devices.err" || { tail -3 "$out/$devices.err"; failed "score $devices"; }
        [ "$devices" = cuda:0 ] || same_bits "$out/cuda:0.npy" "$out/$devices.npy" "scored over $devices"
    done
    rm -f "$out"/*.npy
    say "answers of the large model over several GPUs"
    vram=$(budget 0.25 --parallel 4 --batch 512)
    half=$((vram / 2))
    while read -r name args; do
        # shellcheck disable=SC2086
        python3 "$answers" "$out/$name.answers" "$sluice" -m "$big" -c 2048 --parallel 4 --ram 100GiB $args 2>"$out/$name.err" ||
            { tail -3 "$out/$name.err"; failed "$name"; }
        [ "$name" = resident ] || same_bits "$out/resident.answers" "$out/$name.answers" "$name"
    done <<RUNS
resident --device cuda:0 --experts resident
tiers --device cuda:0 --vram ${vram}MiB
two-resident --device cuda:0,1 --split 25,23 --experts resident
two-tiers --device cuda:0,1 --split 24,24 --vram ${half}MiB
two-tiers-turned --device cuda:1,0 --split 25,23 --vram ${half}MiB
all-resident --device $all --experts resident
all-tiers --device $all --vram $((half * 2 / $(tr , '\n' <<<$all | wc -l) + 512))MiB
RUNS
    rm -f "$out"/*.answers
}

# The layers over two GPUs beside one with the same budget, with one sequence and with four, twice in turns; and divided by
# what the heat of such a run says.
split() {
    local both=(--parallel 1,4 -p 2048 -n 96 --ram 100GiB) heat=$dir/heat vram turn layers
    vram=$(budget 0.25 --parallel 4 --batch 512)
    for turn in 1 2; do
        bench "one-resident-$turn" --experts resident "${both[@]}"
        for layers in 25,23 26,22; do # the last stage has the output matrix too
            bench "two-resident-$layers-$turn" --experts resident "${both[@]}" --device cuda:0,1 --split $layers
        done
        bench "one-quarter-$turn" --vram "${vram}MiB" "${both[@]}"
        for layers in 24,24 25,23; do
            bench "two-quarter-$layers-$turn" --vram "$((vram / 2))MiB" "${both[@]}" --device cuda:0,1 --split $layers
        done
    done
    bench one-quarter-for-heat --vram "${vram}MiB" "${both[@]}" --heat-file "$heat"
    bench two-quarter-by-heat --vram "$((vram / 2))MiB" "${both[@]}" --device cuda:0,1 --heat-file "$heat"
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) mkdir -p "${3:-/tmp}"; run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/engine.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
