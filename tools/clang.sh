#!/bin/sh
# What clang has to say: every source as the compiler sees it, with the warnings of the build, and nothing made of it.
# (The fuzz targets are what is built and run with clang.)
#
#   tools/clang.sh [FOLDER ...]    only the sources under these folders; all where none is named
set -eu
root=$PWD/
folders=
for folder; do folders="$folders -e ' -c $root$folder/'"; done
cmake --preset clang >/dev/null
ninja -C build-clang page.c live_page.c config_texts.c >/dev/null
ninja -C build-clang -t commands all | eval "grep -F -- ${folders:-' -c '}" |
    sed 's/ -MD -MT [^ ]* -MF [^ ]*//; s/ -o [^ ]* -c / -fsyntax-only /' | sort -u | tr '\n' '\0' |
    (cd build-clang && xargs -0 -P "$(nproc)" -I{} sh -c '{}')
