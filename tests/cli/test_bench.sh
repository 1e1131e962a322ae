#!/bin/sh
# quern bench: tables, JSON lines, grids, limits, comparisons.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

q bench "$tiny" -p 8 -n 4 -r 2
check "exit 0" code_is 0
check "nothing on stderr" err_empty
check "machine" grep -Eq \
    '^backend cpu \(.*, [0-9]+ threads?\)   memory bandwidth [0-9.]+ GB/s$' \
    "$scratch/out"
check "head" grep -Eq '^test +batch +tokens/s +ms/token +peak$' "$scratch/out"
check "prompt row" grep -Eq \
    '^pp8 +1 +[0-9.]+ \+- +[0-9.]+% +[0-9.]+ +[0-9]+ MiB   ttft [0-9.]+ s$' \
    "$scratch/out"
check "decode row" grep -Eq '^tg4 @ d0 +1 .* GB/s, [0-9]+% of bandwidth$' \
    "$scratch/out"

q bench "$tiny" -p 8 -n 4 -r 3 --json
check "a line per cell" json "[c['test'] for c in d] == ['pp8', 'tg4']"
check "fields" json "all(c['schema'] == 'quern.bench/1' and c['runs'] == 3 and
    c['depth'] == 0 and c['batch'] == 1 and c['peak_bytes'] > 0 and
    c['spread_percent'] >= 0 for c in d)"
check "rates agree" json "all(abs(c['tokens_per_s'] * c['ms_per_token'] - 1000)
    < 1 for c in d)"
check "first token of a prompt" json \
    "abs(d[0]['ttft_s'] * d[0]['tokens_per_s'] - 8) < 1e-6"
check "bandwidth of decoding" json "d[1]['weight_gb_per_s'] > 0 and
    d[1]['bandwidth_gb_per_s'] > 0"
check "the machine is described" json "all(c['cpu'] and c['isa'] and
    c['machine'] and c['threads'] >= 1 and c['memory_bytes'] > 0 and
    c['version'] for c in d)"

q bench "$tiny" -p 2,3 -n 1,2 -d 0,5 -r 1 --warmup 0 --json
check "lists make a grid" json "[(c['test'], c['depth']) for c in d] == [
    ('pp2', 0), ('pp3', 0), ('pp2', 5), ('pp3', 5),
    ('tg1', 0), ('tg2', 0), ('tg1', 5), ('tg2', 5)]"
q bench "$tiny" -p 3 -n 2 -b 1,4 -r 1 --json
check "a row for each batch" json "[(c['test'], c['batch']) for c in d] ==
    [('pp3', 1), ('pp3', 4), ('tg2', 1), ('tg2', 4)]"
q bench "$tiny" -p 0,3 -n 0 -r 1 --json
check "0 leaves a test out" json "d['test'] == 'pp3'"
q bench "$tiny" "$tiny/model.safetensors" -p 3 -n 0 -r 1 --json
check "several models" json "[c['model'] for c in d] ==
    ['$tiny', '$tiny/model.safetensors']"
q bench "$tiny" -p 250 -n 6 -d 6 -r 1
check "depth and tokens may fill the context" code_is 0

fails 2 "depth and tokens together are 257, the context is 256" \
    bench "$tiny" -p 0 -n 57 -d 200
fails 2 "depth and tokens together are 40, the context is 32" \
    bench "$tiny" --ctx 32 -p 40 -n 0
fails 2 "--prompt 0 --decode 0: nothing to measure" bench "$tiny" -p 0 -n 0
fails 2 "--batch: expected at most 1024, found 2000" bench "$tiny" -b 1,2000
fails 2 "--batch 0:" bench "$tiny" -b 0
for list in "" "," "1," ",1" "1,,2" -1 x 1.5 99999999999; do
    fails 2 "--prompt ${list:-''}: expected whole numbers from 0 to" \
        bench "$tiny" -p "$list"
done
fails 2 "--repeat 0: expected a whole number from 1 to 1000" \
    bench "$tiny" -r 0
fails 2 "--warmup -1:" bench "$tiny" --warmup -1
fails 3 "no such file" bench "$tiny/none.gguf"

q bench "$tiny" -p 4 -n 0 -r 2 --warmup 1 --progress json
check "progress counts runs" [ "$(grep -c '"phase":"bench".*"total":3,' \
    "$scratch/err")" -eq 3 ]

# ---- --compare ----

line() { # TEST TOKENS_PER_S
    printf '{"schema":"quern.bench/1","test":"%s","depth":0,"batch":1,%s}\n' \
        "$1" "\"model\":\"/elsewhere/tiny/\",\"tokens_per_s\":$2"
}
line pp4 1e-3 >"$scratch/slow"
q bench "$tiny" -p 4 -n 0 -r 1 --json --compare "$scratch/slow"
check "faster than before: exit 0" code_is 0
check "the change is told" json "d['earlier_tokens_per_s'] == 1e-3 and
    d['change_percent'] > 100"
q bench "$tiny" -p 4 -n 0 -r 1 --compare "$scratch/slow"
check "the change is in the row" grep -Eq '^pp4 .* \+[0-9.]+%$' "$scratch/out"
{
    line pp4 1
    echo
    line pp4 1e12
} >"$scratch/fast"
q bench "$tiny" -p 4 -n 0 -r 1 --compare "$scratch/fast"
check "slower than the last result: exit 9" code_is 9
check "which one, and by how much" grep -q \
    '^quern: bench: pp4 at depth 0: .* slower than 1000000000000.0; at most 5%' \
    "$scratch/err"
q bench "$tiny" -p 4 -n 0 -r 1 --compare "$scratch/fast" --max-regression 100%
check "a limit of 100% allows anything" code_is 0
q bench "$tiny" -p 4,5 -n 0 -r 1 --compare "$scratch/slow"
check "a test without an earlier result: a warning" err_has \
    "warning: pp5: nothing to compare with"
check "and exit 0" code_is 0
q bench "$tiny" -p 5 -n 0 -r 1 --compare "$scratch/slow"
check "no test in common: exit 2" code_is 2
check "no test in common: said" err_has "it has none of these tests"
for limit in x -1 101 "" 5%%; do
    fails 2 "--max-regression $limit: expected a percentage from 0 to 100" \
        bench "$tiny" --compare "$scratch/slow" --max-regression "$limit"
done
fails 3 "$scratch/none" bench "$tiny" --compare "$scratch/none"
echo "[" >>"$scratch/slow"
fails 4 "$scratch/slow: line 2" bench "$tiny" --compare "$scratch/slow"
echo '{"schema":"quern.run/1"}' >"$scratch/slow"
fails 4 "expected a quern.bench/1 object" \
    bench "$tiny" --compare "$scratch/slow"
echo '{"schema":"quern.bench/1"}' >"$scratch/slow"
fails 4 "expected test, model and tokens_per_s" \
    bench "$tiny" --compare "$scratch/slow"

# ---- what is kept ----

runs=$HOME/.local/state/quern/runs.jsonl
rm -f "$runs"
q bench "$tiny" -p 4 -n 0 -r 1
check "a run is kept" [ "$(wc -l <"$runs")" -eq 1 ]
check "with the time" grep -Eq \
    '^\{"time":"20[0-9-]*T[0-9:]*Z","schema":"quern.bench/1"' "$runs"
check "for nobody else" [ "$(stat -c %a "$runs")" = 600 ]
q bench "$tiny" -p 4 -n 0 -r 1 --no-record
check "--no-record" [ "$(wc -l <"$runs")" -eq 1 ]
echo "half a li" >>"$runs"
q bench --history
check "--history" grep -Eq '^20.* tiny .* pp4 @ d0 x 1  [0-9.]+ tokens/s' \
    "$scratch/out"
check "what is no line of ours is left out" [ "$(wc -l <"$scratch/out")" -eq 1 ]
fails 2 "--history and --prompt exclude each other" bench --history -p 4
fails 2 "--history and the argument" bench "$tiny" --history
q bench --history --json
check "--history --json" json "d['test'] == 'pp4'"
XDG_STATE_HOME=$scratch/none q bench --history
check "none yet" code_is 0

# ---- guesses ----

q bench "$tiny" -p 0 -n 16 -d 0,9 -b 1,3 -r 1 --draft-model "$tiny" --json \
    --no-record
check "the model itself guesses right" json "[x['test'] for x in d] ==
    ['tg16+draft'] * 4 and all(x['accepted'] > 10 * x['batch'] and
    'weight_gb_per_s' not in x for x in d)"
q bench "$tiny" -p 4 -n 16 -r 1 --ngram --no-record
check "a prompt has no guesses" grep -q "^pp4  *1 " "$scratch/out"
check "what follows has" grep -q "^tg16+ngram.* guesses right$" "$scratch/out"
fails 2 "depth and tokens together are 257" bench "$tiny" -p 0 -n 256 --ngram

finish
