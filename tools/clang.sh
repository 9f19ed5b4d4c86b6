#!/bin/sh
# What clang has to say: every source as the compiler sees it, with the warnings of the build, and nothing made of it.
# (The fuzz targets are what is built and run with clang.)
#
#   tools/clang.sh [FOLDER ...]    only the sources under these folders; all where none is named
set -eu
cmake --preset clang >/dev/null
ninja -C build-clang page.c live_page.c config_texts.c >/dev/null
chosen=$(mktemp)
trap 'rm -f "$chosen"' EXIT
for folder in "${@:-}"; do
    ninja -C build-clang -t commands all | grep -F -e " -c $PWD/${folder:+$folder/}" || {
        echo "no source under '$folder' is part of the build" >&2
        exit 1
    }
done | sed 's/ -MD -MT [^ ]* -MF [^ ]*//; s/ -o [^ ]* -c / -fsyntax-only /' | sort -u >"$chosen"
[ -s "$chosen" ] || exit 1
echo "clang reads $(wc -l <"$chosen") sources"
tr '\n' '\0' <"$chosen" | (cd build-clang && xargs -0 -P "$(nproc)" -I{} sh -c '{}')
