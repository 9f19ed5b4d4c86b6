#!/bin/bash
# Do the tests notice? Puts small faults into chosen files, one at a time, builds, runs the tests that execute the line,
# and lists the faults that no test noticed.
#
#   tools/mutate.sh [-n COUNT] [-s SEED] [-t TESTS] [-o NUMBERS] [-a] FILE ...
#
#   -n   how many faults, drawn at random from all that fit (20)
#   -s   seed of the draw (1): the same seed gives the same faults
#   -t   a regular expression over the names of tests: folder/test_thing (all but cuda and fuzz)
#   -o   only these of the draw, as "3 17 40" or "0-49": to try survivors again, or half at a time
#   -a   under AddressSanitizer, as the tests run once more in CI: for survivors that leak or read past an end
#
# Works on a copy of what is committed, under build-mutate; the checkout is not touched. First every function of every
# test is run by itself to see which lines it executes and how long it takes; that is kept for the same sources. A fault
# that does not compile does not count, nor does one that leaves the program the same, byte for byte. The last line says
# how many of the others were noticed; the exit status is 0 when all were.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tools/mutate.py "$@"
