#!/bin/sh
# What quern fit says of the demo model beside what a run takes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/model_demo/lib.sh
. "$root/tests/model_demo/lib.sh"

i=0
while [ $i -lt 220 ]; do
    printf 'The quick brown fox jumps over it. '
    i=$((i + 1))
done >"$scratch/prompt"
q run "$model" -f "$scratch/prompt" --raw --max-tokens 1 --ctx 2048 --json
check "a run" json "d['usage']['prompt_tokens'] > 1500"
keep_json
q fit "$model" --ctx 2048 --json --cached
# Pages of the program that were never touched are the difference.
check "its peak is what was predicted, within a tenth" json \
    "abs(d['models'][0]['fit']['required_bytes'] /
         first['timings']['peak_bytes'] - 1) < 0.1"

finish
