#!/bin/sh
# The demonstration behind `make demo`: real text from the `fortunes` packages, a plan, a training run,
# a sample of what the model writes.
set -eu
build=${1:-build}
mkdir -p "$build/demo"
text=$build/demo/text.txt
find /usr/share/games/fortunes -type f ! -name '*.dat' ! -name '*.u8' -size +1k -print0 |
    sort -z | xargs -0 cat >"$text"
echo "text: $(wc -c <"$text") bytes of fortunes"
run() { echo; echo "\$ snug $*"; "$build/snug" "$@"; }
run plan configs/demo.yaml
run train configs/demo.yaml "output_dir=$build/demo/out" overwrite_output_dir=true
od -An -v -tu1 -w1 "$text" | sort -n | uniq -c | awk '
    { n += $1; count[NR] = $1 }
    END { for (i in count) h -= count[i] / n * log(count[i] / n)
          printf "\nentropy of single bytes of this text: %.3f nats; a model that learns nothing else ends there\n", h }'
run generate configs/demo.yaml "output_dir=$build/demo/out" --checkpoint last \
    --prompt 'A computer is ' --max-new-tokens 110 --temperature 0.7 --seed 3
echo
