#!/bin/sh
# make_dist.sh MANDIR   (CUDA_ARCHS: which GPUs the kernels are for, default all)
# Packs dist/sluice-VERSION-linux-x86_64.tar.gz: the program with every library that it needs. The C library is inside
# too and used only where the system's own is too old.
set -eu
man=$1
version=$(sed -n 's/.*SL_VERSION  *"\(.*\)".*/\1/p' common/version.h)
name=sluice-$version-linux-x86_64
out=dist/$name
rm -rf "$out"
mkdir -p "$out/bin" "$out/libexec" "$out/lib/system" "$out/share/man/man1" "$out/share/bash-completion/completions" \
    "$out/share/zsh/site-functions" "$out/share/fish/vendor_completions.d"

# Its own link: libraries are looked for beside the program, also those that libraries need.
make -s CUDA_ARCHS="${CUDA_ARCHS:-all}" LDFLAGS="-Wl,--disable-new-dtags,-rpath,'\$\$ORIGIN/../lib'" B=build/dist all
strip -o "$out/libexec/sluice" build/dist/sluice

ldd build/dist/sluice | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /ld-linux/ { print $1 }' | while read -r lib; do
    case $(basename "$lib") in
    ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so*) cp -L "$lib" "$out/lib/system/" ;;
    *) cp -L "$lib" "$out/lib/" ;;
    esac
done
strip --strip-unneeded "$out"/lib/*.so* 2>/dev/null || true
# The licences of what is inside.
mkdir -p "$out/share/doc"
for lib in "$out"/lib/*.so* "$out"/lib/system/*.so*; do
    path=$(ldd build/dist/sluice | awk -v n="$(basename "$lib")" '$1 == n { print $3 } index($1, "/" n) { print $1 }')
    package=$(dpkg-query -S "$(readlink -f "$path")" "$path" 2>/dev/null | head -1 | cut -d: -f1)
    [ -z "$package" ] || cp -n "/usr/share/doc/$package/copyright" "$out/share/doc/$package.copyright" 2>/dev/null || true
done

cat > "$out/bin/sluice" <<'RUN'
#!/bin/sh
# Starts the program with the libraries beside it; with the C library beside it where the system's own is too old.
here=$(dirname "$(readlink -f "$0")")/..
if "$here/libexec/sluice" --version >/dev/null 2>&1; then
    exec "$here/libexec/sluice" "$@"
fi
exec "$here/lib/system/ld-linux-x86-64.so.2" --library-path "$here/lib/system:$here/lib" "$here/libexec/sluice" "$@"
RUN
chmod 755 "$out/bin/sluice"
cp "$man"/*.1 "$out/share/man/man1/"
cp deploy/completion/sluice.bash "$out/share/bash-completion/completions/sluice"
cp deploy/completion/_sluice "$out/share/zsh/site-functions/"
cp deploy/completion/sluice.fish "$out/share/fish/vendor_completions.d/"
# With all that one of them links to (tests/docs/check.py).
documents="README.md CONTRIBUTING.md LICENSE docs deploy bench/results demo/README.md"
# shellcheck disable=SC2086
cp -r --parents $documents demo/demo.gguf "$out/"
cp deploy/tarball/README.md "$out/README.md" # about what is in it, not about how it is built
tar -C dist -czf "dist/$name.tar.gz" --owner=0 --group=0 "$name"
ls -l "dist/$name.tar.gz"
