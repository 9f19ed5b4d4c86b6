#!/bin/sh
# Writes tests/golden/plans/plans.txt anew: the plans that tests/search/test_golden_plans.c compares with. After a change
# of the search that is meant; `git diff` then says what it makes of each plan, and belongs into the review.
#
#   tools/make_golden_plans.sh [BUILD]    the build folder; build where none is named
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ -f "$build/build.ninja" ] || cmake --preset release -B "$build" >/dev/null
cmake --build "$build" --target search_test_golden_plans
mkdir -p tests/golden/plans
"$build/search_test_golden_plans" --write tests/golden/plans/plans.txt
git --no-pager diff --stat -- tests/golden/plans
