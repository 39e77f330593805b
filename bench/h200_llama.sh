#!/bin/bash
# Sluice beside llama.cpp on a machine with a GPU, in turns in one call, resident: decode of one sequence, prefill of 2,048.
#
#   bench/h200_llama.sh pack DIR       where Sluice builds: what bench/h200_engine.sh packs, and llama.cpp's prebuilt CUDA
#                                      library with its code compiled for CUDA_ARCHS (default 90): bench/llama_cuda.py.
#                                      Needs `make peer`, the npm package @node-llama-cpp/linux-x64-cuda of the same version
#                                      in LLAMA_CUDA (its bins/linux-x64-cuda folder), and zstd
#   bench/h200_llama.sh run DIR [OUT]  where the GPU is (python3, CUDA's libcudart and libcublas): makes the model unless
#                                      MODELS (default /tmp) has it, and times both in turns
# PRESET (default gpt-oss-20b; 12 GB) is `sluice synth --preset`'s. ROUNDS (default 2). llama.cpp gets 2,048 rows of a prompt at
# once as Sluice does, and 512, its default, for comparison. Exit status 1: something failed; 77: there is no GPU to use.
set -uo pipefail

pack() {
    set -e
    here=$(cd "$(dirname "$0")" && pwd)
    : "${LLAMA_CUDA:?the folder bins/linux-x64-cuda of that package}"
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    "$here/h200_engine.sh" pack "$dir"
    cd "$here/.."
    make peer
    rm -rf "$dir/llama" && mkdir "$dir/llama"
    python3 bench/llama_cuda.py "$LLAMA_CUDA/libggml-cuda.so" "$dir/llama/libggml-cuda.so" "${CUDA_ARCHS:-90}"
    cp "$LLAMA_CUDA"/libggml-base.so "$LLAMA_CUDA"/libggml.cuda.*.so "$LLAMA_CUDA"/libllama.cuda.*.so \
        "$LLAMA_CUDA"/libggml-cpu-{sapphirerapids,icelake,haswell,x64}.so "$dir/llama/"
    gcc -O2 -Ibuild/peer/src/include -Ibuild/peer/src/ggml/include -o "$dir/llama/llama_peer" tests/peer/llama_peer.c \
        "$dir"/llama/libllama.cuda.*.so "$dir"/llama/libggml.cuda.*.so "$dir/llama/libggml-base.so" -lm -Wl,--allow-shlib-undefined
    tar -C "$dir" -cJf "$dir/llama.tar.xz" llama
    rm -r "$dir/llama"
    cp "$0" "$dir/"
}

ours() {
    "$sluice" bench -m "$model" --device cuda:0 --experts resident --heat-file off --ram 100GiB -p 2048 -n 128 -b 2048 -r 2 --json \
        >"$out/ours.json" 2>"$out/ours.err" || { tail -3 "$out/ours.err"; rc=1; return; }
    python3 -c '
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  Sluice     %-10s %10.1f" % (t["test"], t["avg_ts"]))' "$out/ours.json"
}

# lib NAME: the folder of a library of CUDA's.
lib() { dirname "$(find / -xdev -name "$1*" 2>/dev/null | head -1)"; }

theirs() { # rows of a prompt at once, prompt, generated tokens
    GGML_DIR=$dir/llama LD_LIBRARY_PATH=$dir/llama:$libraries LLAMA_GPU_LAYERS=99 LLAMA_UBATCH=$1 \
        "$dir/llama/llama_peer" bench "$model" "$(nproc)" "$2" "$3" 3 1 >"$out/theirs.json" 2>"$out/theirs.err" || {
        tail -3 "$out/theirs.err"
        rc=1
    }
    python3 -c '
import json, sys
for line in open(sys.argv[1]):
    t = json.loads(line)
    print("  llama.cpp  %-10s %10.1f   %s rows at once" % (t["test"], t["tps"], sys.argv[2]))' "$out/theirs.json" "$1"
}

run() {
    out=${2:-$(mktemp -d /tmp/h200.XXXXXX)}
    mkdir -p "$out"
    dir=$(mktemp -d /tmp/h200llama.XXXXXX)
    rc=0
    tar -C "$dir" -xzf "$1/sluice.tar.gz" || exit 1
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1/llama.tar.xz" "$dir" || exit 1
    sluice=$(echo "$dir"/*/bin/sluice)
    export XDG_CACHE_HOME=$dir
    preset=${PRESET:-gpt-oss-20b}
    model=${MODELS:-/tmp}/$preset.gguf
    libraries=$(lib libcublas.so.):$(lib libcudart.so.)
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || { rm -rf "$dir"; return 77; }
    cat "$1/about"
    [ -f "$model" ] || "$sluice" synth --preset "$preset" -q -o "$model" || exit 1
    for round in $(seq "${ROUNDS:-2}"); do
        echo "round $round"
        ours
        theirs 2048 2048 128
        theirs 512 2048 0
    done
    rm -rf "$dir"
    return $rc
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) mkdir -p "${3:-/tmp}"; run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/llama.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
