#!/bin/sh
# check_image.sh [--file FILE] [KEEP]          every step of FILE (deploy/container/Containerfile), and what comes out
# check_image.sh [--file FILE] --quick SLUICE  what comes out alone: seconds, and no network
#
# Where there is no container service and no registry. The whole check makes the base image by debootstrap, and buildah
# carries out the file's steps (in a chroot, so no kernel feature is needed that a small machine lacks). The quick one
# puts the program SLUICE and its libraries into an empty image, with all that the file says of its
# last one. A stage named kernels, whose image has NVIDIA's compiler, is not run: nvcc of this machine makes the kernels
# (CUDA_ARCHS, 75), and the other steps find them where that stage leaves them. The image's own ENTRYPOINT then serves the demo model as the image's USER, under the seccomp profile beside
# the file, and its own HEALTHCHECK must find it healthy. KEEP: a folder for the base system, so that a second run need not
# fetch it again. Needs root, buildah, python3 and curl; the whole check debootstrap and the network too. TAP.
set -eu
cd "$(dirname "$0")/.."
file=deploy/container/Containerfile
[ "${1:-}" != --file ] || { file=$2; shift 2; }
profile=$PWD/deploy/container/seccomp.json
work=$(mktemp -d)
quick=
[ "${1:-}" != --quick ] || { quick=$(realpath "$2"); shift 2; }
base=${1:-$work/base}
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
b() { buildah --root "$work/storage" --runroot "$work/run" "$@"; }
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    b umount --all >/dev/null 2>&1 || true
    b rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM
cannot() { echo "check_image: $*"; exit 77; }
[ "$(id -u)" = 0 ] || cannot "it needs root"
for tool in buildah python3 curl $([ -n "$quick" ] || echo debootstrap); do
    command -v "$tool" >/dev/null || cannot "$tool is not here"
done

without_kernels() { awk '/^FROM/ { out = / AS kernels$/ } !out'; }

# What the stage of that name leaves in /kernels.
make_kernels() {
    archs=${CUDA_ARCHS:-75}
    make -s -j"$(nproc)" WITH_CUDA=1 CUDA_ARCHS="$archs" kernels >"$work/kernels.log" 2>&1 || { tail "$work/kernels.log"; exit 1; }
    mkdir "$work/kernels"
    cp -r "build/cuda/sm$(echo "$archs" | tr ' ' _)" "$work/kernels/"
    k=$(b from scratch)
    b add -q "$k" "$work/kernels" /kernels >/dev/null
    b commit -q "$k" localhost/kernels >/dev/null
    b rm "$k" >/dev/null
}

# The base under the name that the file asks for, then every step.
build_whole() {
    without_kernels <"$file" >"$work/steps"
    name=$(sed -n 's/^FROM \([^ ]*\).*/\1/p' "$work/steps" | sort -u)
    [ "$(echo "$name" | wc -l)" = 1 ] || { echo "check_image: $file has more than one base image" >&2; exit 1; }
    [ -x "$base/bin/sh" ] || debootstrap --variant=minbase bookworm "$base" >"$work/debootstrap.log" 2>&1 ||
        { tail "$work/debootstrap.log"; exit 1; }
    c=$(b from scratch)
    b add -q "$c" "$base" / >/dev/null
    b commit -q "$c" "localhost/$name" >/dev/null
    b rm "$c" >/dev/null
    if ! cmp -s "$file" "$work/steps"; then make_kernels; fi
    sed "s|^FROM $name|FROM localhost/$name|; s|--from=kernels|--from=localhost/kernels|" "$work/steps" >"$work/Containerfile"
    b build --pull-never --format docker --ignorefile .dockerignore -f "$work/Containerfile" -t localhost/sluice . \
        >"$work/build.log" 2>&1 || { tail -30 "$work/build.log"; exit 1; }
    if [ -d "$work/kernels" ]; then
        c=$(b from --pull-never localhost/sluice)
        python3 -c 'import glob, sys
program, kernels = open(sys.argv[1], "rb").read(), glob.glob(sys.argv[2] + "/*/*.fatbin")
sys.exit(not kernels or not all(open(k, "rb").read() in program for k in kernels))' \
            "$(b mount "$c")/usr/bin/sluice" "$work/kernels" || { echo "not ok - the program has the kernels"; exit 1; }
        echo "# the program has the kernels of $(ls "$work/kernels")"
    fi
    echo "ok - every step of $file ran"
}

# The same without RUN: programs, libraries and the user are this machine's.
build_quick() {
    tree=$work/tree
    mkdir -p "$tree/usr/bin" "$tree/etc" "$tree/tmp" "$tree/var/cache/sluice" "$tree/run/sluice"
    ln -s usr/bin "$tree/bin"
    cp "$quick" "$tree/usr/bin/sluice"
    cp -L "$(command -v sh)" "$tree/usr/bin/sh" # for the try below
    for program in "$tree"/usr/bin/*; do
        ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) .*/\1/p'
    done | sort -u | xargs cp -L --parents -t "$tree"
    echo "sluice:x:10001:10001::/var/cache/sluice:/bin/sh" >"$tree/etc/passwd"
    chown 10001 "$tree/var/cache/sluice"
    chmod 1777 "$tree/run/sluice"
    { echo "FROM scratch"; echo "COPY . /"
      awk '/^FROM/ { text = ""; next } { text = text $0 "\n" } END { printf "%s", text }' $file |
          awk '!run && /^(RUN|COPY)/ { run = 1 } !run; run && !/\\$/ { run = 0 }'; } >"$work/Containerfile"
    b build --pull-never --format docker -f "$work/Containerfile" -t localhost/sluice "$tree" >"$work/build.log" 2>&1 ||
        { tail -30 "$work/build.log"; exit 1; }
    c=$(b from --pull-never localhost/sluice)
    b run "$c" -- /bin/sh -c true >"$work/try.log" 2>&1 || cannot "buildah runs nothing here: $(tail -1 "$work/try.log")"
    echo "ok - an image with all that $file says of its last one"
}

if [ -n "$quick" ]; then build_quick; else build_whole; fi

# What the image says of itself.
b inspect --type image localhost/sluice >"$work/image.json"
about() { python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))["Docker"]["config"]; print(eval(sys.argv[2]))' "$work/image.json" "$1"; }
[ "$(about 'c["User"]')" = 10001 ]
about '"\n".join(c["Entrypoint"])' >"$work/entrypoint"
about '"\n".join(c["Healthcheck"]["Test"][1:])' >"$work/health"

c=$(b from --pull-never --security-opt "seccomp=$profile" localhost/sluice)
mkdir "$work/models"
cp demo/demo.gguf "$work/models/"
chmod -R a+rX "$work/models"
set --
while read -r word; do set -- "$@" "$word"; done <"$work/entrypoint"
# The file's port is the machine's here: another one, which HEALTHCHECK need not know.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
b run -v "$work/models:/models:ro" "$c" -- "$@" --port "$port" -m /models/demo.gguf --experts streamed >"$work/server.log" 2>&1 &
server=$!
set --
while read -r word; do set -- "$@" "$word"; done <"$work/health"
for _ in $(seq 300); do
    if b run "$c" -- "$@" >"$work/health.log" 2>&1; then healthy=1; break; fi
    kill -0 $server 2>/dev/null || break
    sleep 0.2
done
[ -n "${healthy:-}" ] || { cat "$work/server.log" "$work/health.log"; echo "not ok - HEALTHCHECK finds it healthy"; exit 1; }
echo "ok - HEALTHCHECK finds it healthy"

curl -sf "http://127.0.0.1:$port/v1/chat/completions" -d '{"messages":[{"role":"user","content":"What is 2 + 3?"}],"max_tokens":8,"temperature":0}' |
    python3 -c 'import json, sys; r = json.load(sys.stdin); assert "5" in r["choices"][0]["message"]["content"], r'
echo "ok - it answers"
pid=$(pgrep -f "^/usr/bin/sluice serve .*--port $port " | head -1)
grep -q '^Uid:.*10001' "/proc/$pid/status"
grep -q '^Seccomp:.*2' "/proc/$pid/status"
curl -sf "http://127.0.0.1:$port/metrics" >"$work/metrics"
grep -q '^sluice_disk_without_io_uring 0$' "$work/metrics"
[ "$(sed -n 's/^sluice_disk_reads_total //p' "$work/metrics")" -gt 0 ]
echo "ok - as user 10001, under the profile, with io_uring"
kill -TERM "$pid"
for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
if kill -0 "$pid" 2>/dev/null; then echo "not ok - SIGTERM ends it"; exit 1; fi
wait "$server" || true # buildah, through which the log comes
grep -q 'stopped' "$work/server.log"
echo "ok - SIGTERM ends it"
echo "1..5"
