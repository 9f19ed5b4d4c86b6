#!/bin/sh
# run.sh BUILD: every torture, one after the other; a quarter of an hour on two cores. Each prints its
# faults with the command that shows them, and a line "N runs, M faults".
set -u
here=$(dirname "$0")
failed=0
for script in kills io_errors allocations numbers combinations; do
    "$here/$script.py" "${1:-build}" || failed=1
done
"${1:-build}/search_test_random_graphs" 1000 || failed=1 # make test plans for fewer
exit $failed
