#!/bin/sh
# Asks the demo model a question and prints the answer as it is made, then
# the speed.  `make demo` builds quern first.
#
#   demo.sh [QUERN [QUESTION]]    default build/quern and a question of ours
#
# Exit codes: those of fetch-model.sh and of quern; 3 when QUERN is missing.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
quern=${1:-$root/build/quern}
question=${2:-Explain what a lighthouse is, in two sentences.}

if [ ! -x "$quern" ]; then
    echo "demo: no such program: $quern (make build makes it)" >&2
    exit 3
fi
model=$("$root/scripts/fetch-model.sh")

# The greedy answer is the same on every machine.  --stats writes tokens per
# second to stderr, behind the answer.
printf '> %s\n\n' "$question"
"$quern" run "$model" "$question" --temperature 0 --max-tokens 128 --stats
