#!/bin/sh
# How command lines are read: flags, values, ranges, pairs, help.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

# ---- the program alone, help ----

q
check "no command: exit 2" code_is 2
check "no command: summary on stderr" err_has "usage: quern COMMAND"
check "no command: nothing on stdout" out_empty
check "the summary fits a screen" [ "$(wc -l <"$scratch/err")" -le 24 ]

for words in help --help -h; do
    q $words
    check "$words: exit 0" code_is 0
    check "$words: on stdout" out_has "usage: quern COMMAND"
    check "$words: nothing on stderr" err_empty
done
for command in run bench show version help; do
    q "$command" --help
    check "$command --help: exit 0" code_is 0
    check "$command --help: usage" out_has "usage: quern $command"
    check "$command --help: flags" out_has "--help"
    check "$command --help: two examples" \
        [ "$(grep -c '^  .*quern '"$command" "$scratch/out")" -ge 2 ]
    check "$command --help: no line over 80 columns" \
        not grep -q '^.\{81\}' "$scratch/out"
    check "$command --help: no blanks at the end of a line" \
        not grep -q ' $' "$scratch/out"
    cp "$scratch/out" "$scratch/long"
    q help "$command"
    check "help $command is the same" cmp -s "$scratch/out" "$scratch/long"
    q "$command" -h --json
    check "$command -h --json" json "d['schema'] == 'quern.help/1' and
        [c['name'] for c in d['commands']] == ['$command']"
done
q help --json
check "help --json lists the commands" json "[c['name'] for c in
    d['commands']] [-1:] == ['help'] and
    {'run', 'bench', 'get', 'list', 'gc', 'convert', 'quantize', 'show',
    'version'} <= {c['name'] for c in d['commands']}"
check "help --json lists flags" json "any(f['name'] == 'temperature' and
    f['kind'] == 'number' for f in d['commands'][0]['flags'])"
q run --help --temperature
check "help does not excuse a bad flag" code_is 2

# ---- commands ----

fails 2 "unknown command 'rnu'; did you mean 'run'?" rnu
fails 2 "unknown command 'frobnicate'" frobnicate --with flags
fails 2 "unknown command 'frob'" help frob
fails 2 "unexpected argument 'x'" help run x
fails 2 "unexpected argument 'x'" version x
fails 2 "unexpected argument 'x'" show "$tiny" x
fails 2 "unexpected argument 'y'" run "$tiny" x y
fails 2 "no model was given" run
fails 2 "expected SOURCE DEST" convert x
fails 2 "expected bash|zsh|fish" completion
fails 2 "no model was given" bench
fails 2 "--json takes no value" show --json=
fails 2 "unknown flag --bogus" --bogus
q --json version
check "flags before the command" json "d['schema'] == 'quern.version/1'"

# ---- flags ----

fails 2 "unknown flag --temprature; did you mean --temperature?" \
    run "$tiny" hi --temprature 0
fails 2 "unknown flag --temper" run "$tiny" hi --temper 0 # no abbreviations
fails 2 "unknown flag --no-strem; did you mean --no-stream?" \
    run "$tiny" hi --no-strem
fails 2 "unknown flag --no-seed" run "$tiny" hi --no-seed
fails 2 "unknown flag --tensors" run "$tiny" hi --tensors
fails 2 "unknown flag -x" run "$tiny" hi -x
fails 2 "unknown flag -x" bench "$tiny" -qx
fails 2 "unknown flag --a\\x1bb" run "$tiny" hi "$(printf -- '--a\033b')"
fails 2 "--stats takes no value" run "$tiny" hi --stats=1
fails 2 "--no-stats takes no value" run "$tiny" hi --no-stats=1
fails 2 "--seed: expected a value" run "$tiny" hi --seed
fails 2 "-p: expected a value" bench "$tiny" -p
fails 2 "--seed 2: the flag was given before" run "$tiny" hi --seed 1 --seed=2
fails 2 "--stats and --no-stats exclude each other" \
    run "$tiny" hi --stats --no-stats

q run "$tiny" -- --max-tokens
check "words behind -- are no flags" code_is 0
q run --max-tokens=2 "$tiny" --temperature 0 --json hi
check "flags may stand anywhere" json "d['usage']['completion_tokens'] == 2"
q run "$tiny" hi --max-tokens 1 --json --no-json
check "a flag taken back in the same line is refused" code_is 2
q run "$tiny" hi --max-tokens 1 --no-json --no-stats
check "--no- forms are taken" code_is 0
q bench "$tiny" -qp4 -n0 -r1 --json
check "clusters and joined values" json "d['test'] == 'pp4' and d['runs'] == 1"
q run "$tiny" hi -hq
check "a cluster may hold -h" code_is 0

# ---- values ----

for value in -0.1 5.1 nan inf 0x1 ' 1' 1x '' 1e400 one; do
    fails 2 "expected a number from 0 to 5" \
        run "$tiny" hi --temperature "$value"
done
for value in 0 -1 1.5 x; do
    fails 2 "--top-p $value: expected a number above 0, at most 1" \
        run "$tiny" hi --top-p "$value"
done
for value in -2 2147483648 1.0 x 99999999999999999999; do
    fails 2 "--top-k $value: expected a whole number from -1 to 2147483647" \
        run "$tiny" hi --top-k "$value"
done
for value in -1 9223372036854775808 1k; do
    fails 2 "expected a whole number from 0 to 9223372036854775807" \
        run "$tiny" hi --seed "$value"
done
for value in 0 1000000001 4kk 4t k 1.5k; do
    fails 2 "--max-tokens $value: expected a whole number from 1 to 1000000000" \
        run "$tiny" hi --max-tokens "$value"
done
fails 2 "--typical-p 0:" run "$tiny" hi --typical-p 0
fails 2 "--min-p 2:" run "$tiny" hi --min-p 2
fails 2 "--xtc-probability 2:" run "$tiny" hi --xtc-probability 2
fails 2 "--xtc-threshold 0.6: expected a number from 0 to 0.5" \
    run "$tiny" hi --xtc-threshold 0.6
fails 2 "--repetition-penalty -1:" run "$tiny" hi --repetition-penalty -1
fails 2 "--presence-penalty 2.5: expected a number from -2 to 2" \
    run "$tiny" hi --presence-penalty 2.5
fails 2 "--frequency-penalty -3:" run "$tiny" hi --frequency-penalty -3
fails 2 "--repetition-context-size -1:" \
    run "$tiny" hi --repetition-context-size -1
fails 2 "--logprobs 21: expected a whole number from 0 to 20" \
    run "$tiny" hi --logprobs 21
fails 2 "--threads 0: expected a whole number from 1 to 512" \
    run "$tiny" hi --threads 0
fails 2 "--threads 513:" bench "$tiny" --threads 513
fails 2 "--kv: expected f32, f16, bf16, affine4, affine8, turbo or turbo:kXvY, found affine3" \
    run "$tiny" hi --kv affine3
fails 2 "--kv: expected turbo:kXvY, found turbo:k8" run "$tiny" hi --kv turbo:k8
fails 4 "kv: turbo:k3v3: keys have 2, 4, 5 or 8 bits, found 3" \
    run "$tiny" hi --kv turbo:k3v3
fails 4 "kv: turbo:k8v3: head_dim is 64, 128, 256 or 512, found 16" \
    run "$tiny" hi --kv turbo
fails 4 "kv: affine8: head_dim is a multiple of 32, found 16" \
    run "$tiny" hi --kv affine8
fails 2 "--kv-quant-start" run "$tiny" hi --kv-quant-start -1
fails 2 "--dtype f8: expected one of" run "$tiny" hi --dtype f8
fails 2 "--backend gpu: expected one of auto|cpu|cuda|mlx" \
    run "$tiny" hi --backend gpu
fails 2 "--progress loud: expected one of" run "$tiny" hi --progress loud
fails 2 "--ctx: the model allows at most 256, found 4096" \
    run "$tiny" hi --ctx 4k
fails 2 "--ctx 0:" run "$tiny" hi --ctx 0

q run "$tiny" hi --max-tokens 1 --temperature .5 --top-p 1e-12 --top-k -1 \
    --min-p 0.05 --typical-p 0.9 --xtc-probability 0.5 --xtc-threshold 0.1 \
    --repetition-penalty 1.1 --repetition-context-size 4k \
    --presence-penalty -2 --presence-context-size 0 --frequency-penalty 2 \
    --frequency-context-size 5 --seed 9223372036854775807 --json
check "the ends of the ranges are taken" json "d['seed'] == 2**63 - 1"

# ---- pairs ----

fails 2 "--raw and --system exclude each other" run "$tiny" hi --raw --system x
fails 2 "--raw and --chat-template exclude each other" \
    run "$tiny" hi --raw --chat-template chatml
fails 2 "--raw and --trust-content exclude each other" \
    run "$tiny" hi --raw --trust-content
fails 2 "--quiet and --verbose exclude each other" run "$tiny" hi -qv
fails 2 "--quiet and --stats exclude each other" run "$tiny" hi -q --stats
fails 2 "--quiet and --progress exclude each other" \
    bench "$tiny" -q --progress bar
fails 2 "--logprobs needs --json" run "$tiny" hi --logprobs 2
fails 2 "--max-regression needs --compare" bench "$tiny" --max-regression 3
fails 2 "--xtc-threshold needs --xtc-probability" \
    run "$tiny" hi --xtc-threshold 0.1
fails 2 "--presence-context-size needs --presence-penalty" \
    run "$tiny" hi --presence-context-size 3
fails 2 "--frequency-context-size needs --frequency-penalty" \
    run "$tiny" hi --frequency-context-size 3
fails 2 "--min-tokens 5: expected at most --max-tokens 4" \
    run "$tiny" hi --min-tokens 5 --max-tokens 4
q run "$tiny" hi --max-tokens 1 --no-raw --system x
check "--no-raw excludes nothing" code_is 0

# ---- errors as JSON ----

for line in "run --bogus --json" "run --json" "rnu --json" "--json --bogus" \
    "bench $tiny -p x --json" "show --json /nowhere.gguf"; do
    # shellcheck disable=SC2086 # the words of a command line
    q $line
    check "$line: one error object" json "d['schema'] == 'quern.error/1' and
        set(d['error']) == {'code', 'message', 'where', 'hint'}"
    check "$line: the message is on stderr too" err_has "$(
        python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["error"]["message"])' "$scratch/out"
    )"
done
q show --json /nowhere.gguf
check "the class is in the object" json "d['error']['code'] == 'not_found' and
    d['error']['hint']"
q run --bogus -- --json
check "behind -- the word is no flag" out_empty

finish
