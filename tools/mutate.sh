#!/bin/bash
# Do the tests notice? Puts small faults into chosen files, one at a time, builds, runs the tests that could see them,
# and lists the faults that no test noticed.
#
#   tools/mutate.sh [-n COUNT] [-s SEED] [-t TESTS] FILE ...
#
#   -n   how many faults, drawn at random from all that fit (20)
#   -s   seed of the draw (1): the same seed gives the same faults
#   -t   a regular expression over the names of tests, as ctest -R takes it (all of them)
#
# Works on a copy of what is committed, under build-mutate; the checkout is not touched. A fault that does not compile
# does not count, nor does one that leaves the program the same, byte for byte. The last line says how many of the others
# were noticed; the exit status is 0 when all were.
set -euo pipefail
cd "$(dirname "$0")/.."
count=20 seed=1 tests=.
while getopts n:s:t: option; do
    case $option in
    n) count=$OPTARG ;;
    s) seed=$OPTARG ;;
    t) tests=$OPTARG ;;
    *) sed -n '2,14p' "$0"; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,14p' "$0"; exit 2; }
root=$PWD/build-mutate tree=$PWD/build-mutate/tree tool=$PWD/tools/mutate.py
mkdir -p "$root"
rm -rf "$tree"
git worktree prune
git worktree add --quiet --detach "$tree" HEAD
trap 'cd / && git -C "$tree" worktree remove --force "$tree"' EXIT
cd "$tree"
build=$root/build
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 >/dev/null
mapfile -t targets < <(ctest --test-dir "$build" -N -R "$tests" | sed -n 's/.*Test *#[0-9]*: //p' |
    sed 's|^fuzz/||; s|/|_|')
[ ${#targets[@]} -gt 0 ] || { echo "no test matches '$tests'" >&2; exit 2; }
make_all() { cmake --build "$build" -j "$(nproc)" --target snug_cli "${targets[@]}" >"$root/build.log" 2>&1; }
make_all || { tail -20 "$root/build.log"; echo "the tree does not build without a fault" >&2; exit 1; }
ctest --test-dir "$build" -R "$tests" -j "$(nproc)" --timeout 120 >"$root/test.log" 2>&1 ||
    { tail -20 "$root/test.log"; echo "a test fails without a fault" >&2; exit 1; }

# The quickest first, so that most faults are noticed in a moment; the name of a test that fails ends up in a file.
sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .* \([0-9.]*\) sec.*/\2 \1/p' "$root/test.log" | sort -n | cut -d' ' -f2 >"$root/order"
export build root
# shellcheck disable=SC2016 # its own shell expands it
try_all() {
    rm -f "$root/failed"
    xargs -P "$(nproc)" -I{} bash -c \
        'ctest --test-dir "$build" -R "^{}$" --timeout 120 >/dev/null 2>&1 || { echo {} >>"$root/failed"; exit 255; }' \
        <"$root/order" 2>/dev/null
}

sum_of_program() { sha256sum "$build/snug" | cut -d' ' -f1; }
whole=$(sum_of_program)
noticed=0 missed=0 void=0 same=0 number=0
while IFS= read -r fault; do
    git checkout --quiet -- .
    python3 "$tool" apply "$number" "$seed" "$count" "$@"
    number=$((number + 1))
    if ! make_all; then
        void=$((void + 1))
    elif [ "$(sum_of_program)" = "$whole" ]; then
        same=$((same + 1))
    elif try_all; then
        missed=$((missed + 1))
        echo "missed   $fault"
        git diff -U0 | sed -n '/^[-+] /p'
    else
        noticed=$((noticed + 1))
        echo "noticed  $fault	by $(head -1 "$root/failed")"
    fi
done < <(python3 "$tool" list "$seed" "$count" "$@")
echo "$noticed of $((noticed + missed)) faults noticed, $void did not compile, $same left the program the same"
[ $missed -eq 0 ]
