#!/bin/bash
# Layers with a state (gated delta nets) and gated attention, on a machine with a GPU and nvcc, in one call.
#
#   bench/h200_recurrent.sh [OUT]     in a checkout; what the parts print goes to OUT too (default: a new folder in /tmp)
# PARTS="build conformance answers bench llama" (default: all) chooses what is run:
#   build        sluice and the conformance programs, kernels for CUDA_ARCHS (default 90)
#   conformance  the ops of these layers, and the graphs, against the definition in C
#   answers      small models of these families: the GPU beside the CPU, held to the bars of bench/logprobs.py; and the
#                same bits in slices, with experts in tiers, over two stages, and over two GPUs where there are two
#   bench        PRESET (default qwen3.5-35b-a3b; made in MODELS, default /tmp): decode, prefill of 2,048, eight sequences
#   llama        the same file by llama.cpp, in turns with Sluice: where LLAMA is the folder of a llama-bench for this GPU
# REPS (default 3). Ends with how much passed and failed. Exit status 1: something failed; 77: there is no GPU to use.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-$(mktemp -d /tmp/h200recurrent.XXXXXX)}
mkdir -p "$out"
export CUDA_ARCHS="${CUDA_ARCHS:-90}" XDG_CACHE_HOME=$out CMOCKA_MESSAGE_OUTPUT=TAP
parts=" ${PARTS:-build conformance answers bench llama} "
sluice=build/release/sluice
programs="recurrent attention elementwise norm rope graph"
n_passed=0 n_failed=0
passed() { n_passed=$((n_passed + 1)); }
failed() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

build() {
    # shellcheck disable=SC2046,SC2086
    make -j"$(nproc)" WITH_CUDA=1 $sluice $(printf 'build/release/tests/conformance/test_%s ' $programs) \
        >"$out/build.log" 2>&1 || { tail -20 "$out/build.log"; failed build; exit 1; }
}

conformance() {
    local name
    for name in $programs; do
        timeout 200 "build/release/tests/conformance/test_$name" --backend cuda >"$out/$name.log" 2>&1 </dev/null &
        echo "$! $name" >>"$out/pids"
    done
    while read -r pid name; do
        if wait "$pid"; then
            echo "  $name: $(grep -c '^ok.* on cuda' "$out/$name.log") passed"
            passed
        else
            grep -B6 -A2 '^not ok' "$out/$name.log" | head -40
            failed "$name"
        fi
    done <"$out/pids"
    rm "$out/pids"
}

score() { # name, arguments
    "$sluice" score -m "$out/small.gguf" --ids "$out/ids" --heat-file off --logprobs "$out/$1.npy" "${@:2}" \
        >"$out/score.log" 2>&1 || { tail -3 "$out/score.log"; failed "score $1"; }
}
places() {
    local least name args
    least=$("$sluice" plan -m "$out/small.gguf" --device cuda --experts streamed --vram 1MiB --json 2>/dev/null |
        python3 -c 'import json, sys; print((json.load(sys.stdin)["vram_least_bytes"] >> 20) + 1)')
    while read -r name args; do
        [ -n "$name" ] || continue
        # shellcheck disable=SC2086
        score "$name" $args
        if cmp -s "$out/cuda.npy" "$out/$name.npy"; then passed; else failed "$name differs"; fi
    done <<PLACES
whole --device cuda:0 -b 512
slices --device cuda:0 -b 37
rows --device cuda:0 -b 3
$([ -z "$least" ] || echo "tiers --device cuda:0 --experts streamed --vram ${least}MiB")
stages --device cuda:0,0
$([ "$(nvidia-smi -L | wc -l)" -lt 2 ] || echo "GPUs --device cuda:0,1")
PLACES
}
answers() {
    local f32="-t F32 --embd-type F32 --output-type F32" sizes="--vocab 1024 --layers 8" bar synth
    python3 -c 'import array, random; r = random.Random(3)
array.array("i", [r.randrange(1024) for _ in range(300)]).tofile(open("'"$out"'/ids", "wb"))'
    while read -r bar synth; do
        echo "  $synth"
        # shellcheck disable=SC2086
        "$sluice" synth -q -o "$out/small.gguf" $synth || failed "synth $synth"
        score cpu --device cpu
        score cuda --device cuda:0
        python3 bench/logprobs.py "$out/cpu.npy" "$out/cuda.npy" "$bar" && passed || failed "the GPU is too far from the CPU"
        places
        rm -f "$out"/*.npy "$out/small.gguf"
    done <<MODELS
f32 --arch qwen35moe $f32 $sizes --experts 8 --top-k 2
f32 --arch qwen35moe $f32 $sizes --experts 8 --top-k 2 --delta-heads 8 --delta-key-heads 4 --delta-dim 128
f32 --arch qwen3next $f32 $sizes --experts 8 --top-k 2 --delta-heads 6 --delta-key-heads 3 --delta-dim 40
f32 --arch qwen35 $f32 $sizes --experts 0 --top-k 0 --delta-heads 4 --delta-key-heads 4 --delta-dim 64
quantised --arch qwen35moe -t Q4_K --down Q6_K $sizes --experts 16 --top-k 4 --expert-ff 256 --delta-heads 4 --delta-key-heads 2 --delta-dim 128
quantised --arch qwen3next -t Q8_0 $sizes --experts 16 --top-k 4 --expert-ff 256 --delta-heads 4 --delta-key-heads 2 --delta-dim 128
MODELS
}

preset=${PRESET:-qwen3.5-35b-a3b}
big=${MODELS:-/tmp}/$preset.gguf
model() { [ -f "$big" ] || "$sluice" synth --preset "$preset" -q -o "$big" || { failed "synth $preset"; exit 1; }; }
ours() { # arguments
    if timeout 200 "$sluice" bench -m "$big" --device cuda:0 --experts resident --heat-file off --ram 100GiB -b 2048 \
        -r "${REPS:-3}" --json -v "$@" >"$out/ours.json" 2>"$out/ours.err"; then
        python3 -c '
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  Sluice     %-10s %10.1f" % (t["test"], t["avg_ts"]))' "$out/ours.json"
        grep -o 'one step: .*\|[0-9]* x .* ops recorded.*' "$out/ours.err" | sort -u | sed 's/^/    /' | head -12
        passed
    else
        tail -3 "$out/ours.err"
        failed "bench $*"
    fi
}
theirs() { # arguments
    LD_LIBRARY_PATH=$LLAMA${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout 200 "$LLAMA/llama-bench" -m "$big" -ngl 99 -fa 1 \
        -r "${REPS:-3}" -o json "$@" >"$out/theirs.json" 2>"$out/theirs.err" && python3 -c '
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  llama.cpp  %-10s %10.1f   %d rows at once" % ("tg%d" % t["n_gen"] if t["n_gen"] else "pp%d" % t["n_prompt"], t["avg_ts"], t["n_ubatch"]))' \
        "$out/theirs.json" && passed || { tail -3 "$out/theirs.err"; failed "llama-bench $*"; }
}

date -u +"%Y-%m-%d %H:%M UTC"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || exit 77
git log -1 --format='commit %h' 2>/dev/null
{
    [[ $parts != *" build "* ]] || { say build && build; }
    [[ $parts != *" conformance "* ]] || { say conformance && conformance; }
    [[ $parts != *" answers "* ]] || { say answers && answers; }
    if [[ $parts == *" bench "* ]]; then
        say bench
        model
        ours -p 2048 -n 128
        ours -p 0 -n 64 --parallel 8
    fi
    if [[ $parts == *" llama "* && -n ${LLAMA:-} ]]; then
        say "beside llama.cpp"
        model
        for _ in 1 2; do
            theirs -p 2048 -n 128 -ub 2048 -b 2048
            ours -p 2048 -n 128
        done
    fi
    printf '\n%d passed, %d failed (%d s)\n' "$n_passed" "$n_failed" "$SECONDS"
    [ "$n_failed" = 0 ]
} > >(tee "$out/recurrent.txt") 2>&1
