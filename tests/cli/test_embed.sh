#!/bin/sh
# quern embed, on the tiny model of the fixtures: one that needs --pooling.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

lines_are() {
    [ "$(wc -l <"$scratch/out")" -eq "$1" ]
}
bytes_are() {
    [ "$(wc -c <"$scratch/out")" -eq "$1" ]
}

q embed "$tiny" one two
check "not an embedder: exit 4" code_is 4
check "and says what to do" err_has "name a pooling"

q embed "$tiny" one two --pooling mean
check "exit 0" code_is 0
check "a line for each text" lines_are 2
cp "$scratch/out" "$scratch/both"

q embed "$tiny" two --pooling mean
tail -n 1 "$scratch/both" >"$scratch/second"
check "the same alone" cmp -s "$scratch/out" "$scratch/second"

printf 'one\r\ntwo\n' >"$scratch/lines"
q embed "$tiny" -f "$scratch/lines" --pooling mean
check "lines of a file" cmp -s "$scratch/out" "$scratch/both"
q_with 'one
two' embed "$tiny" --pooling mean
check "lines of standard input" cmp -s "$scratch/out" "$scratch/both"

seq 150 >"$scratch/many"
q embed "$tiny" -f "$scratch/many" --pooling mean --progress json
check "many texts" lines_are 150
check "how far it has come" err_has '"done":128,"total":150,"unit":"texts"'
tail -n 1 "$scratch/out" >"$scratch/second"
q embed "$tiny" 150 --pooling mean
check "the last as if alone" cmp -s "$scratch/out" "$scratch/second"
q embed "$tiny" one two --pooling mean --format f32
check "float32" bytes_are 256
q embed "$tiny" one two --pooling mean --format f32 --dim 5
check "the first numbers" bytes_are 40

q embed "$tiny" one two --pooling last --json
check "JSON" json "d['schema'] == 'quern.embed/1' and d['dim'] == 32 and
    len(d['embeddings']) == 2 and
    all(abs(sum(x * x for x in v) - 1) < 1e-6 for v in d['embeddings'])"
q embed "$tiny" one --pooling last --json --no-normalize
check "not normalized" json \
    "abs(sum(x * x for x in d['embeddings'][0]) - 1) > 1e-3"

q embed "$tiny" one --pooling mean --dim 33
check "too many numbers: exit 2" code_is 2
check "names the range" err_has "1..32"
q embed "$tiny" one --pooling max
check "unknown pooling: exit 2" code_is 2
q embed "$tiny" one -f "$scratch/lines"
check "two sources: exit 2" code_is 2
q embed "$tiny" one --json --format f32
check "JSON and float32: exit 2" code_is 2
q_with '' embed "$tiny" --pooling mean
check "no line: exit 2" code_is 2
q embed "$scratch/none" one
check "no model: exit 3" code_is 3
long=$(printf 'x %.0s' $(seq 400))
q embed "$tiny" "$long" --pooling mean
check "too long: exit 4" code_is 4
check "with both numbers" err_has "but a text may have 256"
q embed "$tiny" "$long" --pooling mean --truncate
check "cut: exit 0" code_is 0

finish
