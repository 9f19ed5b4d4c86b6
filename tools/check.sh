#!/bin/sh
# The checks that are not tests: format, words, layers, headers that stand alone, static analysis.
set -u
failed=0
step() { printf '%-34s' "$1"; shift; if "$@" >/tmp/snug-check.$$ 2>&1; then echo ok; else
    echo FAILED; cat /tmp/snug-check.$$; failed=1; fi; rm -f /tmp/snug-check.$$; }

sources() { git ls-files 'src/*.c' 'src/*.h' 'src/*.cu' 'src/*.cuh'; }
formatted() { git ls-files "*.c" "*.h" "*.cu" "*.cuh" | xargs -P "$(nproc)" -n 100 clang-format --dry-run -Werror; }

# includes_go_up ORDER FIELD PREFIX: reads names of files; a folder, the FIELDth part of a name, includes PREFIX<folder>
# only of itself and of the folders before it in ORDER.
includes_go_up() {
    xargs grep -HE "^#include \"$3[a-z]*/" /dev/null | sort -u | awk -F: -v order="$1" -v field="$2" -v prefix="$3" '
        BEGIN { n = split(order, names, " "); for (i = 1; i <= n; i++) place[names[i]] = i }
        {
            split($1, parts, "/"); folder = parts[field]
            used = $2; sub("^#include \"" prefix, "", used); sub("/.*", "", used)
            if (!(used in place) || (folder in place && place[used] > place[folder])) {
                print $1 ": " folder " may not include from " used; status = 1
            }
        }
        END { exit status }'
}
layers() {
    order="base graph ops rewrite autodiff model config precision optim device plan program search run dist data io task engine train report watch api cli"
    sources | includes_go_up "$order" 2 ''
}
rooms() {
    order="declared support products attention convolution kernels runtime"
    git ls-files 'src/device/cpu/*/*' | includes_go_up "$order" 4 device/cpu/ &&
        git ls-files 'src/device/cuda/*/*' | includes_go_up "$order" 4 device/cuda/
}

headers_stand_alone() {
    flags="-D_GNU_SOURCE -Wall -Werror -fopenmp-simd -Isrc -Iinclude -I. $(pkg-config --cflags jansson)"
    cuda=$(dirname "$(dirname "$(command -v nvcc)")" 2>/dev/null)/include
    [ -f "$cuda/cuda_runtime_api.h" ] && flags="$flags -isystem $cuda" || cuda=
    headers=$(git ls-files 'src/*.h' 'include/*.h')
    [ -n "$cuda" ] || headers=$(echo "$headers" | grep -v '^src/device/cuda/')
    echo "$headers" | xargs -P "$(nproc)" -n 20 sh -c 'flags=$0; for h; do
        echo "#include \"$h\"" | gcc $flags -std=c11 -x c -fsyntax-only - || exit 1
        case $h in src/device/cpu/*|*_internal.h) continue ;; esac
        echo "#include \"$h\"" | g++ $flags -std=c++17 -x c++ -fsyntax-only - || exit 1
    done' "$flags"
}

no_switch_on_ops() { ! sources | xargs grep -n 'case OP_'; }
one_door_to_the_heap() {
    ! sources | grep -vx src/base/alloc.c |
        xargs grep -nwE '(malloc|calloc|realloc|free|strdup|asprintf)\('
}
library() { sources | grep -v '^src/cli/'; }
no_exit_in_the_library() { ! library | grep -vx src/base/status.c | xargs grep -nwE '(exit|abort)\('; }
no_environment_below_cli() { ! library | xargs grep -nw 'getenv('; }
no_whitespace_errors() { git diff --check "$(git hash-object -t tree /dev/null)" HEAD -- ':!tests/fuzz/corpus' ':!tests/golden'; }
file_lengths() {
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs awk '
        FNR == 1001 { print FILENAME " has more than 1000 lines"; status = 1 }
        END { exit status }'
}
documents_name_files() {
    status=0
    for f in $(git ls-files '*.md' | xargs grep -ohE '`(src|tests|tools|bench|docs|cmake|include|configs)/[A-Za-z0-9_./-]+`' |
        tr -d '`' | sort -u); do
        [ -e "$f" ] || { echo "no such file: $f, named in $(git grep -lF "\`$f\`" '*.md' | tr '\n' ' ')"; status=1; }
    done
    return $status
}
static_analysis() {
    cppcheck -q -j "$(nproc)" --std=c11 --error-exitcode=1 --inline-suppr -Isrc -Iinclude \
        --enable=warning,performance,portability --suppress=missingIncludeSystem \
        --suppress=normalCheckLevelMaxBranches -D_GNU_SOURCE src
}

step 'clang-format'                     formatted
step 'layers of folders'                layers
step 'rooms of devices'                 rooms
step 'headers compile alone (C, C++)'   headers_stand_alone
step 'no switch over op ids'            no_switch_on_ops
step 'heap only through base/alloc'     one_door_to_the_heap
step 'the library never exits'          no_exit_in_the_library
step 'environment read in cli only'     no_environment_below_cli
step 'white space'                      no_whitespace_errors
step 'file lengths'                     file_lengths
step 'documents name files there are'   documents_name_files
step 'cppcheck'                         static_analysis
exit $failed
