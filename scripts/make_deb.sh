#!/bin/sh
# make_deb.sh SLUICE MANDIR OUTDIR
# Packs OUTDIR/sluice_VERSION_ARCH.deb: the program SLUICE, its man pages, completion, the service and its settings.
# What it depends on are the packages of this machine that its libraries are from, by dpkg-shlibdeps.
set -eu
sluice=$(realpath "$1") man=$2 out=$3
cd "$(dirname "$0")/.."
version=$(sed -n 's/.*SL_VERSION  *"\(.*\)".*/\1/p' common/version.h)
arch=$(dpkg --print-architecture)
maintainer="The Sluice authors <sluice@localhost>"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
umask 022
tree=$work/tree
doc=$tree/usr/share/doc/sluice
mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/usr/share/man/man1" "$doc" "$work/debian"
strip -o "$tree/usr/bin/sluice" "$sluice"
chmod 755 "$tree/usr/bin/sluice"
install -m 644 "$man"/*.1 "$tree/usr/share/man/man1"
gzip -9 -n "$tree"/usr/share/man/man1/*.1
install -D -m 644 deploy/completion/sluice.bash "$tree/usr/share/bash-completion/completions/sluice"
install -D -m 644 deploy/completion/_sluice "$tree/usr/share/zsh/vendor-completions/_sluice"
install -D -m 644 deploy/completion/sluice.fish "$tree/usr/share/fish/vendor_completions.d/sluice.fish"
install -D -m 644 deploy/systemd/sluice.service "$tree/lib/systemd/system/sluice.service"
install -D -m 644 deploy/systemd/sluice.conf "$tree/etc/sluice/sluice.conf"
echo /etc/sluice/sluice.conf >"$tree/DEBIAN/conffiles"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: sluice"
    echo
    echo "Files: *"
    echo "Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE)"
    echo "License: Expat"
    sed '1,/^Copyright/d; /./,$!d' LICENSE | sed 's/^$/./; s/^/ /' | sed '1{/^ \.$/d}'
} >"$doc/copyright"
printf 'sluice (%s) stable; urgency=medium\n\n  * Version %s.\n\n -- %s  %s\n' "$version" "$version" "$maintainer" \
    "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9 -n >"$doc/changelog.gz"
install -m 755 deploy/deb/postinst deploy/deb/prerm deploy/deb/postrm "$tree/DEBIAN/"

printf 'Source: sluice\n\nPackage: sluice\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -e"$tree/usr/bin/sluice" 2>"$work/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { cat "$work/shlibdeps.log" >&2; exit 1; }
(cd "$tree" && find etc lib usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: sluice
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Depends: $depends
Recommends: ca-certificates
Suggests: libvulkan1
Section: science
Priority: optional
Description: inference server for Mixture-of-Experts models larger than memory
 Sluice serves GGUF models on CPUs and NVIDIA GPUs over HTTP, with APIs
 compatible with OpenAI's and Anthropic's. Dense weights stay resident,
 routed experts are streamed from the model file, within given budgets of
 memory. The same prompt and seed give the same answer on any budget.
 .
 The service sluice.service is installed and not started: set a model in
 /etc/sluice/sluice.conf, then systemctl enable --now sluice.
CONTROL
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/sluice_${version}_$arch.deb" >/dev/null
ls -l "$out/sluice_${version}_$arch.deb"
