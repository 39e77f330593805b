#!/bin/sh
# check_layers.sh BUILD_DIR "layer:allowed layer ..." ...
# Reads the compiler's dependency files and fails when a folder includes a header of a folder that
# mk/layers.mk does not allow it.
set -eu
build=$1
shift
all=""
for spec in "$@"; do all="$all ${spec%%:*}"; done
bad=0
n=0
for spec in "$@"; do
    layer=${spec%%:*}
    allowed=" $layer ${spec#*:} "
    for dep in $(find "$build/$layer" -name '*.d' 2>/dev/null); do
        n=$((n + 1))
        for h in $(tr ' \\' '\n\n' <"$dep" | grep '\.h$' | grep -v '^/' | sort -u); do
            top=${h%%/*}
            case " $all " in *" $top "*) ;; *) continue ;; esac
            case "$allowed" in
            *" $top "*) ;;
            *)
                echo "check-layers: ${dep#"$build"/} includes $h, but $layer may include only:$allowed"
                bad=1
                ;;
            esac
        done
    done
done
[ "$n" -gt 0 ] || { echo "check-layers: no dependency files under $build"; exit 1; }
[ "$bad" = 0 ] && echo "check-layers: $n files keep to the graph"
exit "$bad"
