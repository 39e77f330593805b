#!/bin/sh
# check_deb.sh DEB [BASE]     installs DEB in a clean root, starts what its unit starts, removes it
# check_deb.sh --quick DEB     what is in it alone: seconds, and neither root nor network
#
# DEB may be a folder with one such file in it. The clean root is Debian 12's by debootstrap; BASE: a folder for it, so that a second run need not fetch it again (it is
# copied, never changed). There is no systemd in it: the unit's command is started as the unit says, with the settings of
# /etc/sluice/sluice.conf, as a user without rights. The whole check needs root, debootstrap and the network. TAP.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM
cannot() { echo "check_deb: $*"; exit 77; }
n=0
ok() { n=$((n + 1)); echo "ok $n - $1"; }
not_ok() { echo "not ok $((n + 1)) - $1"; exit 1; }
quick=
[ "${1:-}" != --quick ] || { quick=1; shift; }
command -v dpkg-deb >/dev/null || cannot "dpkg-deb is not here"
deb=$(realpath "$1")
if [ -d "$deb" ]; then deb=$(ls "$deb"/sluice_*.deb 2>/dev/null) || cannot "no package could be built: dpkg-shlibdeps is not here"; fi

# What is in it.
dpkg-deb -x "$deb" "$work/files"
dpkg-deb -e "$deb" "$work/control"
for f in usr/bin/sluice lib/systemd/system/sluice.service etc/sluice/sluice.conf usr/share/doc/sluice/copyright \
    usr/share/doc/sluice/changelog.gz usr/share/man/man1/sluice.1.gz usr/share/man/man1/sluice-serve.1.gz \
    usr/share/bash-completion/completions/sluice usr/share/zsh/vendor-completions/_sluice \
    usr/share/fish/vendor_completions.d/sluice.fish; do
    [ -f "$work/files/$f" ] || not_ok "it has no $f"
done
(cd "$work/files" && md5sum --quiet -c "$work/control/md5sums") || not_ok "md5sums"
[ "$(cat "$work/control/conffiles")" = /etc/sluice/sluice.conf ] || not_ok "conffiles"
[ -z "$(dpkg-deb -c "$deb" | awk '$2 != "root/root" || substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w" || $1 ~ /s/')" ] ||
    not_ok "a file has another owner than root, or others may write to it"
for s in postinst prerm postrm; do sh -n "$work/control/$s" || not_ok "$s"; done
for lib in libc6 libmicrohttpd12 libgnutls30 libjansson4 libpcre2-8-0 liburing2 libcurl3-gnutls libedit2; do
    grep -q "^Depends:.*$lib" "$work/control/control" || not_ok "it does not depend on $lib"
done
grep -q "^ Permission is hereby granted" "$work/files/usr/share/doc/sluice/copyright" || not_ok "the licence is not in copyright"
"$work/files/usr/bin/sluice" --version | grep -q "^sluice $(dpkg-deb -f "$deb" Version)$" || not_ok "its version"
ok "files, sums, owners, scripts and dependencies"
if [ -n "$quick" ]; then echo "1..$n"; exit 0; fi

[ "$(id -u)" = 0 ] || cannot "it needs root"
command -v debootstrap >/dev/null || cannot "debootstrap is not here"
base=${2:-$work/base}
[ -x "$base/bin/sh" ] || debootstrap --variant=minbase bookworm "$base" >"$work/debootstrap.log" 2>&1 ||
    { tail "$work/debootstrap.log"; cannot "there is no clean root"; }
root=$work/root
cp -a "$base" "$root"
cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
cp "$deb" "$root/tmp/sluice.deb"
in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"; }
# All that the package can have left, but for lists and logs of the package manager.
files() { (cd "$root" && find . \( -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/log -o -path ./var/cache/apt -o -path ./var/cache/ldconfig -o -path ./tmp \) -prune -o -printf '%p %y %m %U %s\n' | LC_ALL=C sort); }

# First what it depends on alone, so that what it adds itself shows.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
in_root apt-get update -q >"$work/apt.log" 2>&1 || { tail -5 "$work/apt.log"; cannot "no package can be fetched"; }
depends=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/([^)]*)//; s/|.*//; s/:any//' | tr '\n' ' ')
# shellcheck disable=SC2086
in_root apt-get install -y -q --no-install-recommends $depends >"$work/apt.log" 2>&1 || { tail -5 "$work/apt.log"; not_ok "what it depends on can be installed"; }
files >"$work/before"
in_root apt-get install -y -q --no-install-recommends /tmp/sluice.deb >"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; not_ok "it is installed"; }
in_root dpkg -s sluice | grep -q '^Status: install ok installed' || not_ok "it is installed"
[ -z "$(in_root dpkg --verify sluice)" ] || not_ok "what is installed is what was packed"
in_root sluice --version >/dev/null || not_ok "the program starts"
ok "it is installed in a clean root"

# As systemd would start it: the unit's command with the words of its settings.
mkdir -p "$root/srv/models" "$root/run/sluice" "$root/var/cache/sluice"
cp demo/demo.gguf "$root/srv/models/model.gguf"
chmod 644 "$root/srv/models/model.gguf"
chown 65534 "$root/run/sluice" "$root/var/cache/sluice"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s|^SLUICE_ARGS=.*|SLUICE_ARGS=--port $port --ctx 512 --unix-socket /run/sluice/http.sock|" "$root/etc/sluice/sluice.conf"
SLUICE_MODEL=$(sed -n 's/^SLUICE_MODEL=//p' "$root/etc/sluice/sluice.conf")
SLUICE_ARGS=$(sed -n 's/^SLUICE_ARGS=//p' "$root/etc/sluice/sluice.conf")
command=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/sluice.service")
eval "set -- $command"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin XDG_CACHE_HOME=/var/cache/sluice chroot --userspec=65534:65534 "$root" "$@" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
    if in_root sluice health --unix-socket /run/sluice/http.sock >/dev/null 2>&1; then healthy=1; break; fi
    kill -0 $server 2>/dev/null || break
    sleep 0.2
done
[ -n "${healthy:-}" ] || { cat "$work/server.log"; not_ok "the unit's command serves"; }
kill -TERM $server
wait $server || not_ok "SIGTERM ends it with 0"
server=
ok "the unit's command serves with the package's settings, and ends at SIGTERM"

in_root dpkg -r sluice >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; not_ok "it is removed"; }
grep -q "^SLUICE_ARGS=--port $port" "$root/etc/sluice/sluice.conf" || not_ok "changed settings stay when it is removed"
[ ! -e "$root/usr/bin/sluice" ] || not_ok "it is removed"
in_root dpkg -P sluice >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; not_ok "it is purged"; }
rm -r "$root/srv/models" "$root/run/sluice"
files >"$work/after"
# Times are not compared; a folder's size is the file system's affair.
sed -i '/ d [0-7]* [0-9]* /s/ [0-9]*$//' "$work/before" "$work/after"
diff "$work/before" "$work/after" >"$work/diff" || { cat "$work/diff"; not_ok "nothing is left when it is purged"; }
ok "removed it leaves its settings, purged nothing"
echo "1..$n"
