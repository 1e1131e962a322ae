#!/bin/sh
# The configuration file, aliases of models, and the model of a command that was
# given none.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
unset XDG_CONFIG_HOME XDG_STATE_HOME
export QUERN_CACHE="$scratch/cache"
config=$scratch/config.toml

# configured TEXT ARGUMENT...: quern with this file.
configured() {
    printf '%s\n' "$1" >"$config"
    shift
    q "$@" --config "$config"
}

# bad LINE TEXT CONTENT: the file is refused with the line and the text.
bad() {
    printf '%b\n' "$3" >"$config"
    q version --config "$config"
    check "refused: $3" code_is 2
    check "place of: $3" err_has "$config:$1: "
    check "message of: $3" err_has "$2"
    check "nothing on stdout: $3" out_empty
}

bad 1 "unknown key 'nothing'" 'nothing = 1'
bad 2 "did you mean 'max-tokens'" '# x\nmax_token = 1'
bad 2 "unknown key 'temperature'" '[bench]\ntemperature = 1'
bad 2 "unknown table 'rum'; did you mean 'run'" '[rum]\nctx = 1'
bad 1 "threads: expected a whole number, found a string" 'threads = "four"'
bad 1 "stats: expected true or false" 'stats = 1'
bad 1 "stop: expected an array of strings" 'stop = 1'
bad 1 "--threads 0: expected a whole number from 1 to 512" 'threads = 0'
bad 1 "--backend tpu: expected one of" 'backend = "tpu"'
bad 1 "ctx: expected a whole number or a string such as '4k'" 'ctx = true'
bad 3 "line 2 has it" '[run]\nseed = 1\nseed = 2'
bad 1 "expected a value" 'threads = '
bad 2 "unknown key 'refs' of a model; did you mean 'ref'" \
    '[models.x]\nrefs = "y"'
bad 2 "expected a key 'ref'" '[models.x]\nctx = 5'
bad 3 "ctx: expected a number of tokens" '[models.x]\nref = "y"\nctx = 0'
bad 1 "unknown key 'config'" 'config = "other"'

printf 'api_key = "secret"\n' >"$config"
chmod 644 "$config"
q version --config "$config"
check "a key that others can read" code_is 2
check "is told with its line" err_has "$config:1: the file holds a key"
chmod 600 "$config"
q version --config "$config"
check "a key that nobody else can read" code_is 0
rm "$config"
q version --config "$config"
check "a file that is not there" code_is 2
q version --config "$config" --json
check "is an error in JSON" json "d['error']['code'] == 'argument'"

# ---- precedence ----

threads() { # EXPECTED
    check "threads: $1" json "d['threads'] == $1"
}
bench="bench $tiny -p 4 -n 0 -r 1 --json"
# shellcheck disable=SC2086
configured 'threads = 1' $bench
threads 1
# shellcheck disable=SC2086
configured 'threads = 1
[bench]
threads = 2' $bench
threads 2
# shellcheck disable=SC2086
configured '[run]
threads = 2' $bench --threads 1
threads 1
# shellcheck disable=SC2086
run env QUERN_THREADS=1 "$quern" $bench --config "$config"
threads 1
printf 'threads = 2\n' >"$config"
# shellcheck disable=SC2086
run env QUERN_THREADS=1 "$quern" $bench --config "$config"
threads 1
# shellcheck disable=SC2086
run env QUERN_CONFIG="$config" "$quern" $bench
threads 2
mkdir -p "$scratch/.config/quern" "$scratch/xdg/quern"
printf 'threads = 1\n' >"$scratch/.config/quern/config.toml"
# shellcheck disable=SC2086
q $bench
threads 1
# shellcheck disable=SC2086
q $bench --config "$config"
threads 2
printf 'threads = 2\n' >"$scratch/xdg/quern/config.toml"
# shellcheck disable=SC2086
run env XDG_CONFIG_HOME="$scratch/xdg" "$quern" $bench
threads 2
rm "$scratch/.config/quern/config.toml"

configured '[run]
system = "x"' run "$tiny" hi --raw --max-tokens 1
check "a flag wins over what it excludes" code_is 0
configured '[run]
raw = true
system = "x"' run "$tiny" hi
check "two that exclude each other" code_is 2
check "with the line" err_has "$config:3: system and raw exclude each other"
configured '[run]
logprobs = 3' run "$tiny" hi --max-tokens 1
check "a value that needs a flag waits for it" code_is 0
configured 'json = true' version
check "json = true" json "d['schema'] == 'quern.version/1'"
configured 'dtype = "auto"' quantize "$tiny" "$scratch/packed" -q
check "a name that flags of two commands share" code_is 0
printf 'x{{ messages[0].content }}' >"$scratch/mine.jinja"
configured '[run]
chat_template = "mine.jinja"
stop = ["a", "b"]
max_tokens = "1k"' run "$tiny" hi --json --max-tokens 1
check "a path is relative to the file" code_is 0

# ---- names of models ----

mkdir -p "$scratch/models"
cp -r "$tiny" "$scratch/models/one"
names='[models.first]
ref = "models/one"
ctx = 64
alias = ["eins", "uno"]
[models.other]
ref = "./models/none.gguf"
[models."with adapter"]
ref = "models/one"
adapter = "lora"'
configured "$names" show first --json
check "a name stands for its model" json \
    "d['path'] == '$scratch/models/one'"
configured "$names" show uno --json
check "so does an alias" json "d['path'] == '$scratch/models/one'"
configured "$names" show other
check "a model that is not there" code_is 3
check "by the path beside the file" err_has "$scratch/./models/none.gguf"
configured "$names" run eins --max-tokens 1 \
    "$(python3 -c "print('word ' * 200)")"
check "its context holds" code_is 4
check "with its number" err_has "64"
configured "$names" run eins --max-tokens 1 --ctx 256 --raw \
    "$(python3 -c "print('w' * 100)")"
check "a flag wins over it" code_is 0
configured "$names" run "with adapter" hi
check "an adapter is not ignored" code_is 4
cd "$scratch/models"
mkdir first
cp "$tiny"/* first
configured "$names" show first --json
check "a path wins over a name" json "d['path'] == 'first'"
configured "$names
[run]
model = 'first'" run --prompt hi --max-tokens 1 --json
check "a file may name the model" json "d['model'] == 'first'"
cd "$scratch"

# ---- no model given ----

rm -rf "$scratch/.local"
q run --max-tokens 1
check "no model at all" code_is 2
check "three commands are shown" [ \
    "$(grep -c '^hint: quern get ' "$scratch/err")" -eq 3 ]
cp "$scratch/err" "$scratch/hints"
q fit "$tiny" --cached --json
# Memory may have changed by a row's worth since.
check "from the largest that fits on" python3 - "$root/src/cli/offers.def" \
    "$scratch/hints" "$scratch/out" <<'END'
import json
import re
import sys
table, hints, fit = (open(path).read() for path in sys.argv[1:])
rows = [(ref, int(mib)) for ref, mib in re.findall(r'QN_OFFER\("(.+?)", (\d+)\)', table)]
refs = [ref for ref, _ in rows]
shown = re.findall("hint: quern get (.+)", hints)
usable = json.loads(fit)["machine"]["usable_bytes"] >> 20
first = refs.index(shown[0])
assert shown == refs[first:first + 3], shown
assert rows == sorted(rows, key=lambda row: -row[1])
fits = [i for i, (_, mib) in enumerate(rows) if mib <= usable] + [len(rows)]
assert abs(first - min(fits[0], len(rows) - 3)) <= 1, (first, usable)
END
q_with hi run "$tiny" --max-tokens 1
check "a model that was used" code_is 0
q_with hi run --max-tokens 1 --json
check "is used again" json "d['model'].endswith('models/tiny')"
q eval --task tokenizer --data /nowhere
check "eval takes it, too" code_is 3
q fit --json
check "so does fit" json "d"
check "its note is a path" grep -q "^/.*models/tiny$" \
    "$scratch/.local/state/quern/last-model"

snapshot() { # NAME: a model of the cache
    snapshot_dir=$QUERN_CACHE/models--acme--$1/snapshots/1111
    mkdir -p "$snapshot_dir" "$QUERN_CACHE/models--acme--$1/refs"
    cp "$tiny"/* "$snapshot_dir"
    printf 1111 >"$QUERN_CACHE/models--acme--$1/refs/main"
}
snapshot one
q_with hi run --max-tokens 1 --json
check "the only model of the cache comes first" json \
    "d['model'].startswith('$QUERN_CACHE')"
snapshot two
q_with hi run acme/two --max-tokens 1
q_with hi run --max-tokens 1 --json
check "of several, the one that was used last" json \
    "'acme--two' in d['model']"
run env XDG_STATE_HOME="$scratch/state" "$quern" bench -p 4 -n 0 -r 1
check "another state knows none" code_is 2

# ---- the list ----

mkdir -p "$QUERN_CACHE/models--broken--m/snapshots/3333"
ln -s ../../blobs/gone "$QUERN_CACHE/models--broken--m/snapshots/3333/model.safetensors"
q list
check "the list" code_is 0
check "has a line for each" [ "$(wc -l <"$scratch/out")" -eq 4 ]
check "a broken one is incomplete" grep -q '^broken/m .*incomplete$' \
    "$scratch/out"
q list --json --sort size
check "as JSON" json "[m['id'] for m in d['models']] == ['acme/one', 'acme/two',
    'broken/m'] and d['models'][0]['runnable'] and
    d['models'][0]['architecture'] == 'llama' and
    d['models'][2]['reason'] == 'incomplete' and d['models'][0]['last_use'] > 0"
run env QUERN_CACHE=/nowhere "$quern" list
check "an empty cache has a header" [ "$(wc -l <"$scratch/out")" -eq 1 ]
check "and is no error" code_is 0
run env QUERN_CACHE=/nowhere "$quern" list --json
check "in JSON, no models" json "d['models'] == []"

# What is no folder is no cache, and no empty one either; paths need none.
printf x >"$scratch/file"
for at in "$scratch/file" "$scratch/file/below"; do
    for words in "list" "gc" "show acme/one" "run acme/one x" "get acme/one" \
        "bench acme/one" "serve acme/one --port 0" "fit acme/one"; do
        # shellcheck disable=SC2086
        run env QUERN_CACHE="$at" "$quern" $words
        check "$words: a cache that is no folder" code_is 2
        check "$words: and which" err_has "QUERN_CACHE: the model cache $at is"
    done
done
run env QUERN_CACHE="$scratch/file" "$quern" show "$tiny"
check "a path needs no cache" code_is 0

# ---- gc ----

mkdir -p "$QUERN_CACHE/models--acme--one/blobs"
printf 12345 >"$QUERN_CACHE/models--acme--one/blobs/x.incomplete"
q gc
check "gc shows" out_has "acme/one"
check "what could go" out_has "5 B could be freed"
check "and removes nothing" [ -f "$QUERN_CACHE/models--acme--one/blobs/x.incomplete" ]
check "and says so" err_has "--yes"
q gc --yes --keep acme/one
check "--keep" out_has "0 B freed"
q gc --yes --json
check "--yes removes" json "d['bytes'] == 5 and d['items'][0]['removed']"
check "really" [ ! -e "$QUERN_CACHE/models--acme--one/blobs/x.incomplete" ]
q gc --older-than 1h --yes
check "a model that was used stays" [ -d "$QUERN_CACHE/models--acme--two" ]
touch -d '2 days ago' "$QUERN_CACHE/.locks/models--acme--two/use.lock"
q gc --older-than 1d --yes
check "an old one goes" [ ! -e "$QUERN_CACHE/models--acme--two" ]
fails 2 "--older-than x: expected a duration" gc --older-than x

finish
