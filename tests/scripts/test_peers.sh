#!/bin/sh
# bench/peers.sh with programs of our own: turns are taken, the ratio is the
# median of the pairs, and what goes wrong has its exit code.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/scripts/lib.sh
. "$root/tests/scripts/lib.sh"

# Both note their turn.  In round n quern makes 10n tokens per second; its
# peer makes 20, 20, 120: pairwise 0.5, 1, 0.25, while the ratio of the two
# medians would be 1.
fake quern <<FAKE
echo "quern \$*" >>"$scratch/turns"
n=\$(grep -c ^quern "$scratch/turns")
echo '{"schema":"quern.bench/1","test":"pp512","tokens_per_s":'\${n}0'}'
echo '{"schema":"quern.bench/1","test":"tg64","tokens_per_s":6}'
FAKE
fake llama-bench <<FAKE
echo "llama \$*" >>"$scratch/turns"
n=\$(grep -c ^llama "$scratch/turns")
[ "\$n" -lt 3 ] && rate=20 || rate=120
echo "a line that is no result"
echo '{"n_prompt": 512, "n_gen": 0, "avg_ts": '\$rate'}'
echo '{"n_prompt": 0, "n_gen": 64, "avg_ts": 4.0}'
FAKE
echo weights >"$scratch/model.gguf"

compare() {
    rm -f "$scratch/turns"
    run "$root/bench/peers.sh" --quern "$scratch/bin/quern" \
        --llama-bench "$scratch/bin/llama-bench" \
        --model "$scratch/model.gguf" --rounds 3 --threads=7 "$@"
}

row() { # TEST QUERN LLAMA RATIO
    grep -Eq "^$1 +$2 +$3 +$4 " "$scratch/out"
}

compare
check "exit 0" [ "$rc" -eq 0 ]
check "takes turns" [ "$(cut -c 1 "$scratch/turns" | tr -d '\n')" = qlqlql ]
check "same file and threads for quern" grep -q \
    "^quern bench $scratch/model.gguf -p 512 -n 64 -r 3 --threads 7 --json$" \
    "$scratch/turns"
check "same file and threads for llama-bench" grep -q \
    "^llama -m $scratch/model.gguf -p 512 -n 64 -r 3 -t 7 -o jsonl$" \
    "$scratch/turns"
check "the median of the pairs" row pp512 20.0 20.0 0.500
check "the second test" row tg64 6.0 4.0 1.500

compare --min-ratio 0.5
check "ratio met: exit 0" [ "$rc" -eq 0 ]
compare --min-ratio 0.51
check "ratio missed: exit 9" [ "$rc" -eq 9 ]
check "ratio missed: names the test" grep -q "pp512 0.500" "$scratch/err"
check "ratio missed: not the other one" not grep -q "tg64" "$scratch/err"

echo weights >"$scratch/other.gguf"
compare --threads 1,2 --model "$scratch/other.gguf,$scratch/model.gguf" \
    --results "$scratch/results"
check "two models, two counts: exit 0" [ "$rc" -eq 0 ]
check "each model with each count" [ "$(grep -c '^setup' "$scratch/out")" -eq 4 ]
check "quern gets the first file" \
    grep -q "^quern bench $scratch/other.gguf .*--threads 2" "$scratch/turns"
check "llama.cpp gets the second" \
    not grep -q "^llama -m $scratch/other.gguf" "$scratch/turns"
check "results have every cell" [ "$(grep -c '"ratio"' "$scratch/results")" -eq 8 ]

compare --rounds 0
check "no rounds: exit 2" [ "$rc" -eq 2 ]
compare --min-ratio much
check "no number: exit 2" [ "$rc" -eq 2 ]
compare --model "$scratch/missing"
check "missing model: exit 3" [ "$rc" -eq 3 ]
compare --llama-bench "$scratch/missing"
check "missing peer: exit 3" [ "$rc" -eq 3 ]

fake quern <<'FAKE'
echo '{"test":"pp512","tokens_per_s":10}'
FAKE
compare
check "a test is missing: exit 1" [ "$rc" -eq 1 ]
fake quern <<'FAKE'
echo '{"test":"pp512"}'
FAKE
compare
check "a key is missing: exit 1" [ "$rc" -eq 1 ]
fake quern <<'FAKE'
echo "it broke" >&2
exit 4
FAKE
compare
check "quern fails: exit 1" [ "$rc" -eq 1 ]
check "quern fails: its reason" grep -q "it broke" "$scratch/err"

finish
