#!/bin/sh
# install_deps.sh build|eval|test|browser|monitoring|peer|slurm|dev
# Installs what is missing for building, asking the demo model its questions, testing, testing the dashboard or the alerts,
# comparing with llama.cpp, testing the start by Slurm, or developing, with apt (Debian 12 and relatives). Does nothing, quickly, when everything is
# there.
# Needs root or sudo only when something is missing.
set -eu

build="gcc make libc6-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev libpcre2-dev liburing-dev libcurl4-gnutls-dev libedit-dev"
demo="curl ca-certificates"
test="$build $demo g++ libcmocka-dev libasan8 libubsan1 libtsan2 openssl python3 python3-jinja2 git python3-yaml iproute2 nftables dpkg-dev zsh fish"
# Vulkan: its compiler and headers, a driver that computes on the CPU, validation layers.
test="$test glslc libvulkan-dev mesa-vulkan-drivers vulkan-validationlayers"
# Level Zero: its headers and loader, what makes SPIR-V of its kernels, OpenCL on the CPU, which the tests' driver runs them by, and
# Intel's offline compiler (ocloc).
test="$test libze-dev libze1 clang-15 llvm-spirv-15 spirv-tools pocl-opencl-icd ocl-icd-opencl-dev intel-opencl-icd"
# Where systemd runs the package starts a web server on port 80: not for one test, which is skipped then.
[ -d /run/systemd/system ] || test="$test nginx-light"
browser="chromium fonts-dejavu-core"
monitoring="prometheus" # for promtool; where systemd runs, the package starts a Prometheus of its own
peer="git python3-numpy python3-pytest python3-requests" # the last two: llama.cpp's server tests
slurm="slurm-wlm munge"
dev="clang clang-format clang-tidy libclang-rt-14-dev"

case "${1:-build}" in
build) want="$build $demo" ;;
eval) want="$build $demo python3" ;;
test) want="$test" ;;
browser) want="$test $browser" ;;
monitoring) want="$test $monitoring" ;;
peer) want="$test $peer" ;;
slurm) want="$test $slurm" ;;
dev) want="$test $dev" ;;
*)
    echo "usage: install_deps.sh build|eval|test|browser|monitoring|peer|slurm|dev" >&2
    exit 2
    ;;
esac

missing=""
for p in $want; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
# Node.js comes from Debian unless some node of at least version 18 is there already.
case "${1:-build}" in
test | browser | monitoring | peer | dev)
    if ! { command -v node && command -v npm; } >/dev/null 2>&1 ||
        [ "$(node -e 'console.log(+process.versions.node.split(".")[0] >= 18)')" != true ]; then
        missing="$missing nodejs npm"
    fi
    ;;
esac
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "install_deps: apt-get is not here, so nothing is installed; what is needed are the equivalents of:$want" >&2
    exit 0
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install_deps: packages are missing, and neither root nor sudo is at hand to install them. As root:" >&2
        echo "  apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "install_deps: installing$missing (this may take a few minutes)"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q >/dev/null || echo "install_deps: apt-get update failed; trying with the lists there are" >&2
# Run level 1: services that come with a package are not started.
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends $missing >/dev/null
