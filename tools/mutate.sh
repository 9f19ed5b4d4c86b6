#!/bin/bash
# Do the tests notice? Puts small faults into chosen files, one at a time, builds, runs the tests that could see them,
# and lists the faults that no test noticed.
#
#   tools/mutate.sh [-n COUNT] [-s SEED] [-t TESTS] [-o NUMBERS] FILE ...
#
#   -n   how many faults, drawn at random from all that fit (20)
#   -s   seed of the draw (1): the same seed gives the same faults
#   -t   a regular expression over the names of tests, as ctest -R takes it (all of them)
#   -o   only these of the draw, as "3 17 40" or "0-49": to try survivors again, or half at a time
#
# Works on a copy of what is committed, under build-mutate; the checkout is not touched. A fault that does not compile
# does not count, nor does one that leaves the program the same, byte for byte. The last line says how many of the others
# were noticed; the exit status is 0 when all were.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,15p' "$0"; exit 2; }
count=20 seed=1 tests=. only=
while getopts n:s:t:o: option; do
    case $option in
    n) count=$OPTARG ;;
    s) seed=$OPTARG ;;
    t) tests=$OPTARG ;;
    o) only=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
root=$PWD/build-mutate tree=$PWD/build-mutate/tree tool=$PWD/tools/mutate.py build=$PWD/build-mutate/build
mkdir -p "$root"
rm -rf "$tree"
git worktree prune
git worktree add --quiet --detach "$tree" HEAD
trap 'cd / && git -C "$tree" worktree remove --force "$tree"' EXIT
cd "$tree"

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
target_of() { sed 's|^fuzz/||; s|/|_|'; }
make_targets() { cmake --build "$build" -j "$(nproc)" --target "$@" >"$root/build.log" 2>&1; }
mapfile -t names < <(ctest --test-dir "$build" -N -R "$tests" | sed -n 's/.*Test *#[0-9]*: //p')
[ ${#names[@]} -gt 0 ] || { echo "no test matches '$tests'" >&2; exit 2; }
mapfile -t targets < <(printf '%s\n' "${names[@]}" | target_of)
make_targets snug_cli "${targets[@]}" ||
    { tail -20 "$root/build.log"; echo "the tree does not build without a fault" >&2; exit 1; }
ctest --test-dir "$build" -R "$tests" -j "$(nproc)" --timeout 300 >"$root/test.log" 2>&1 ||
    { tail -20 "$root/test.log"; echo "a test fails without a fault" >&2; exit 1; }
sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .* \([0-9.]*\) sec.*/\2 \1/p' "$root/test.log" | sort -n >"$root/times"

# "limit name" of each test: those of the file's own folder first, then the quickest, so that most faults are noticed in
# a moment; five times as long as without a fault, and it hangs.
order_for() {
    local folder
    folder=$(basename "$(dirname "$1")")
    awk -v own="$folder/" '{ print (index($2, own) == 1 ? 0 : 1), $1, int(10 + 5 * $1), $2 }' "$root/times" |
        sort -k1,1n -k2,2n | cut -d' ' -f3-
}

# One test as ctest would run it, stopped at the first of its functions that fails: the pipe closes behind it.
try_one() { # limit name
    local rc
    (cd "$tree" && OMP_NUM_THREADS=2 timeout "$1" "$build/$(target_of <<<"$2")" 2>&1) | grep -q '^\[  FAILED'
    rc=("${PIPESTATUS[@]}")
    case "${rc[*]}" in "0 1" | "77 1") return 0 ;; esac
    echo "$2" >>"$root/failed"
    return 255
}
export -f try_one target_of
export build root tree

# Programs are linked a few at a time, more as it goes on: most are never needed. The first failure stops the rest.
try_all() { # file
    local begin=0 batch=4 order some
    rm -f "$root/failed"
    mapfile -t order < <(order_for "$1")
    while [ $begin -lt ${#order[@]} ]; do
        some=("${order[@]:begin:batch}")
        mapfile -t targets < <(printf '%s\n' "${some[@]#* }" | target_of)
        make_targets "${targets[@]}" || { echo "linking" >"$root/failed"; return 1; }
        # shellcheck disable=SC2016 # its own shell expands it
        printf '%s\n' "${some[@]}" | xargs -P "$(nproc)" -L 1 bash -c 'try_one "$@"' _ 2>/dev/null || return 1
        begin=$((begin + batch)) batch=$((batch * 2))
    done
}

wanted() { # number
    local part
    [ -n "$only" ] || return 0
    for part in $only; do
        if [ "$1" -ge "${part%-*}" ] && [ "$1" -le "${part#*-}" ]; then return 0; fi
    done
    return 1
}

sum_of_program() { sha256sum "$build/snug" | cut -d' ' -f1; }
whole=$(sum_of_program)
noticed=0 missed=0 void=0 same=0 number=-1
while IFS= read -r fault; do
    number=$((number + 1))
    wanted $number || continue
    git checkout --quiet -- .
    python3 "$tool" apply "$number" "$seed" "$count" "$@"
    if ! make_targets snug_cli; then
        void=$((void + 1))
    elif [ "$(sum_of_program)" = "$whole" ]; then
        same=$((same + 1))
    elif try_all "${fault%%:*}"; then
        missed=$((missed + 1))
        echo "missed   $number	$fault"
        git diff -U0 | sed -n '/^[-+] /p'
    else
        noticed=$((noticed + 1))
        echo "noticed  $number	$fault	by $(head -1 "$root/failed")"
    fi
done < <(python3 "$tool" list "$seed" "$count" "$@")
echo "$noticed of $((noticed + missed)) faults noticed, $void did not compile, $same left the program the same"
[ $missed -eq 0 ]
