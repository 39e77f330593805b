#!/bin/bash
# The Vulkan backend on a machine with an NVIDIA GPU, in one call: conformance, the same bits in every placement, tiers, and
# speed beside our CUDA and llama.cpp's Vulkan, in turns.
#
#   bench/h200_vulkan.sh pack DIR       where Sluice builds (Debian 12): `make dist` with the Vulkan backend and CUDA kernels for
#                                       CUDA_ARCHS (default 90), the conformance programs, Debian's Vulkan loader with what
#                                       NVIDIA's driver needs beside it, and, where LLAMA_VULKAN is the bins/linux-x64-vulkan
#                                       folder of the npm package @node-llama-cpp/linux-x64-vulkan, llama.cpp (`make peer`)
#   bench/h200_vulkan.sh run DIR [OUT]  where the GPU is (python3; no compiler, no network): unpacks it and runs the PARTS; as
#                                       root the loader's libraries go to /, else to a folder that the programs are told of
# PARTS="devices conformance answers speed tiers llama" (default: all) chooses what is run:
#   devices      sluice devices, and how long a first and a second start take (compiled kernels are kept in between)
#   conformance  all ops against the definition in C, all programs at once
#   answers      tests/gpu/models.py: small models beside the CPU, and the same bits in tiers, stages and slices; ONLY="a|b"
#                keeps to cases with such names (default: a score of them), POSITIONS (default 300)
#   speed        PRESET (default gpt-oss-20b; made in MODELS, default /tmp), resident: prefill 512 and 2,048, decode, eight
#                sequences; vulkan:0 and cuda:0 in turns, ROUNDS times (default 2)
#   tiers        a quarter of its experts in VRAM, the rest pinned: the same, in turns
#   llama        the same file by llama.cpp with GGML_VULKAN, in turns with vulkan:0
# Ends with how much passed and failed. Exit status 1: something failed; 77: there is no GPU to use.
set -uo pipefail

LOADER="libvulkan1 libegl1 libglvnd0 libopengl0 libgl1 libglx0 libgles2 libx11-6 libxext6 libxcb1 libxau6 libxdmcp6"

pack() {
    set -e
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    export CUDA_ARCHS="${CUDA_ARCHS:-90}" WITH_VULKAN=1
    # shellcheck disable=SC2046
    make -j"$(nproc)" MODE=release WITH_CUDA=0 $(ls tests/conformance/test_*.c | sed 's,\(.*\)\.c,build/release/\1,')
    make dist
    rm -rf "$dir/bin" "$dir/debs" "$dir/llama"
    mkdir "$dir/bin" "$dir/debs"
    gzip -dc dist/sluice-*-linux-x86_64.tar.gz >"$dir/bin/sluice.tar" # xz makes less of it than gzip
    cp build/release/tests/conformance/test_* "$dir/bin/"
    rm -f "$dir"/bin/*.d
    strip --strip-debug "$dir"/bin/test_*
    cp "$(ldd "$dir/bin/test_matmul" | awk '/libcmocka/ { print $3 }')" "$dir/bin/"
    mkdir -p "$dir/bin/tests/gpu" "$dir/bin/tests/peer" "$dir/bin/bench"
    cp tests/gpu/*.py "$dir/bin/tests/gpu/"
    cp tests/peer/cases.py "$dir/bin/tests/peer/"
    cp bench/logprobs.py "$dir/bin/bench/"
    # shellcheck disable=SC2086
    (cd "$dir/debs" && apt-get download -q $LOADER >/dev/null)
    if [ -n "${LLAMA_VULKAN:-}" ]; then
        make peer
        mkdir "$dir/llama"
        cp "$LLAMA_VULKAN"/libggml-base.so "$LLAMA_VULKAN"/libggml-vulkan.so "$LLAMA_VULKAN"/libggml.vulkan.*.so \
            "$LLAMA_VULKAN"/libllama.vulkan.*.so "$LLAMA_VULKAN"/libggml-cpu-{sapphirerapids,icelake,haswell,x64}.so "$dir/llama/"
        gcc -O2 -Ibuild/peer/src/include -Ibuild/peer/src/ggml/include -o "$dir/llama/llama_peer" tests/peer/llama_peer.c \
            "$dir"/llama/libllama.vulkan.*.so "$dir"/llama/libggml.vulkan.*.so "$dir/llama/libggml-base.so" -lm \
            -Wl,--allow-shlib-undefined
    fi
    cp bench/h200_vulkan.sh "$dir/"
    dirty=$(git status --porcelain --untracked-files=no | head -c1)
    echo "commit $(git rev-parse --short=10 HEAD)${dirty:+ with uncommitted changes}, $(glslc --version | head -1)" >"$dir/bin/about"
    (cd "$dir" && tar -cJf vulkan.tar.xz bin debs $([ ! -d llama ] || echo llama) && rm -rf bin debs llama)
    ls -l "$dir"
}

n_passed=0 n_failed=0
passed() { n_passed=$((n_passed + 1)); }
failed() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}
say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

loader() {
    local file icd egl root=$dir/root
    [ "$(id -u)" != 0 ] || root=/
    mkdir -p "$root"
    for file in "$dir"/debs/*.deb; do
        dpkg -x "$file" "$root" || failed "unpacking $file"
    done
    if [ "$root" = / ]; then
        ldconfig
    else
        export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    icd=$(find /usr/local/nvidia /usr/share/vulkan /etc/vulkan -name 'nvidia_icd*.json' 2>/dev/null | head -1)
    egl=$(find /usr/local/nvidia /usr/share/glvnd /etc/glvnd -name '10_nvidia.json' 2>/dev/null | head -1)
    [ -z "$icd" ] || export VK_DRIVER_FILES=$icd VK_ICD_FILENAMES=$icd
    [ -z "$egl" ] || export __EGL_VENDOR_LIBRARY_FILENAMES=$egl
    echo "driver ${icd:-not found}"
}

seconds() { # command
    local from
    from=$(date +%s%N)
    "$@" >"$out/timed.log" 2>&1 || { tail -3 "$out/timed.log"; failed "$*"; }
    echo $((($(date +%s%N) - from) / 1000000))
}
devices() {
    "$sluice" devices
    if "$sluice" devices | grep -q '^vulkan:0 '; then passed; else failed "no vulkan:0"; fi
    "$sluice" synth -q -o "$out/small.gguf" --vocab 1024 -t Q4_K --expert-ff 256
    local run=("$sluice" run -m "$out/small.gguf" -q --temp 0 -n 32 --heat-file off -p "a river" --device vulkan:0)
    echo "a first start $(seconds "${run[@]}") ms, a second $(seconds "${run[@]}") ms"
    rm "$out/small.gguf"
}

conformance() {
    local file name
    : >"$out/pids"
    for file in "$dir"/bin/test_*; do
        name=${file##*/test_}
        [ "$name" != send ] || continue
        LD_LIBRARY_PATH="$dir/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" timeout "${CONFORMANCE_S:-240}" "$file" --backend vulkan \
            >"$out/$name.log" 2>&1 </dev/null &
        echo "$! $name" >>"$out/pids"
    done
    while read -r pid name; do
        if wait "$pid"; then
            echo "  $name: $(grep -c '^ok.* on vulkan' "$out/$name.log") passed"
            passed
        else
            grep -B6 -A2 '^not ok' "$out/$name.log" | head -40
            failed "$name"
        fi
    done <"$out/pids"
}

answers() {
    local only=${ONLY:-qwen3moe f32|gpt-oss mxfp4|gpt-oss f32, window 32|qwen35moe f32, 3|qwen3next q4_K|deepseek2 f32, groups|deepseek2 q8_0|gemma4 f32, gqa|llama4 f32, every|laguna q8_0|grok q8_0|maple f32|mimo2 q8_0|step35 q8_0|mixed Q4_K_M|type IQ2_XS|type IQ3_S|type IQ1_M|type MXFP4|type Q6_K}
    local args=() name
    while read -r -d '|' name; do args+=(--only "$name"); done <<<"$only|"
    timeout "${ANSWERS_S:-400}" python3 "$dir/bin/tests/gpu/models.py" "$sluice" --device vulkan:0 --jobs "${JOBS:-4}" \
        --positions "${POSITIONS:-300}" "${args[@]}" >"$out/models.tap" 2>&1
    sed 's/^/  /' "$out/models.tap"
    n_passed=$((n_passed + $(grep -c '^ok [^#]*$' "$out/models.tap")))
    n_failed=$((n_failed + $(grep -c '^not ok' "$out/models.tap")))
    grep -q '^ok ' "$out/models.tap" || failed "answers"
}

preset=${PRESET:-gpt-oss-20b}
big=${MODELS:-/tmp}/$preset.gguf
model() { [ -f "$big" ] || "$sluice" synth --preset "$preset" -q -o "$big" || { failed "synth $preset"; return 1; }; }

ours() { # device, arguments
    if timeout 200 "$sluice" bench -m "$big" --device "$1" --heat-file off --ram 100GiB -b 2048 -r 2 --json -v "${@:2}" \
        >"$out/ours.json" 2>"$out/ours.err"; then
        python3 -c '
import json, sys
for t in json.load(open(sys.argv[1])):
    print("  %-10s %-12s %10.1f" % (sys.argv[2], t["test"], t["avg_ts"]))' "$out/ours.json" "$1"
        grep -o '[0-9]* x .* ops recorded.*' "$out/ours.err" | sort -u | sed 's/^/    /' | head -6
        passed
    else
        tail -3 "$out/ours.err"
        failed "bench $*"
    fi
}
theirs() { # rows of a prompt at once, prompt, generated tokens
    GGML_DIR=$dir/llama LD_LIBRARY_PATH=$dir/llama${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LLAMA_GPU_LAYERS=99 LLAMA_UBATCH=$1 \
        timeout 200 "$dir/llama/llama_peer" bench "$big" "$(nproc)" "$2" "$3" 2 1 >"$out/theirs.json" 2>"$out/theirs.err" ||
        { tail -3 "$out/theirs.err"; failed "llama.cpp $*"; return; }
    passed
    python3 -c '
import json, sys
for line in open(sys.argv[1]):
    t = json.loads(line)
    print("  llama.cpp  %-12s %10.1f   %s rows at once" % (t["test"], t["tps"], sys.argv[2]))' "$out/theirs.json" "$1"
}
in_turns() { # arguments of all
    local device
    for device in vulkan:0 cuda:0; do ours "$device" "$@"; done
}
vram_of() { # device, share of the experts in slots: MiB
    "$sluice" plan -m "$big" --device "$1" --json --ram-bandwidth 1 --disk-bandwidth 1 --parallel 1 -c 2100 --batch 2048 \
        --ram 100GiB --experts streamed --vram 1MiB 2>/dev/null >"$out/least.json"
    "$sluice" plan -m "$big" --device "$1" --json --ram-bandwidth 1 --disk-bandwidth 1 --parallel 1 -c 2100 --batch 2048 \
        --ram 100GiB --experts resident >"$out/all.json" 2>/dev/null
    python3 -c '
import json, sys
least, most = (json.load(open(f)) for f in sys.argv[1:3])
low, high = least["vram_least_bytes"], most["vram_total_bytes"]
print(int(low + (high - low) * float(sys.argv[3])) >> 20)' "$out/least.json" "$out/all.json" "$2"
}
tiers() {
    local device vram
    for device in vulkan:0 cuda:0; do
        vram=$(vram_of "$device" 0.25) || { failed "the plan of a quarter on $device"; continue; }
        ours "$device" --experts streamed --vram "${vram}MiB" -p 2048 -n 48
    done
}

run() {
    out=${2:-$(mktemp -d /tmp/h200vulkan.XXXXXX)}
    mkdir -p "$out"
    dir=$(mktemp -d /tmp/h200vulkandir.XXXXXX)
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1/vulkan.tar.xz" "$dir" || exit 1
    tar -C "$dir" -xf "$dir/bin/sluice.tar" || exit 1
    sluice=$(echo "$dir"/sluice-*/bin/sluice)
    export XDG_CACHE_HOME=$out CMOCKA_MESSAGE_OUTPUT=TAP
    local parts=" ${PARTS:-devices conformance answers speed tiers llama} " round
    date -u +"%Y-%m-%d %H:%M UTC"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || return 77
    cat "$dir/bin/about"
    loader
    [[ $parts != *" devices "* ]] || { say devices && devices; }
    [[ $parts != *" conformance "* ]] || { say conformance && conformance; }
    [[ $parts != *" answers "* ]] || { say "answers and bits" && answers; }
    for round in $(seq "${ROUNDS:-2}"); do
        if [[ $parts == *" speed "* ]]; then
            say "resident, round $round"
            model && in_turns --experts resident -p 2048 -n 128 && in_turns --experts resident -p 512 -n 0 &&
                in_turns --experts resident -p 0 -n 64 --parallel 8
        fi
        if [[ $parts == *" llama "* && -d $dir/llama ]]; then
            say "beside llama.cpp, round $round"
            model && theirs 2048 2048 128 && theirs 512 512 0 && ours vulkan:0 --experts resident -p 2048 -n 128
        fi
        if [[ $parts == *" tiers "* ]]; then
            say "a quarter of the experts in VRAM, round $round"
            model && tiers
        fi
    done
    rm -rf "$dir"
    printf '\n%d passed, %d failed (%d s)\n' "$n_passed" "$n_failed" "$SECONDS"
    [ "$n_failed" = 0 ]
}

case "${1:-}" in
pack) pack "${2:?where to?}" ;;
run) mkdir -p "${3:-/tmp}"; run "${2:?from where?}" "${3:-}" 2>&1 | tee "${3:-/tmp}/vulkan.txt"; exit "${PIPESTATUS[0]}" ;;
*)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
