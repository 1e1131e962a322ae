#!/bin/sh
# quern fit, and the admission of a load by the same numbers.
# tests/runtime/test_fit.c holds the parts to what is allocated.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
export XDG_CACHE_HOME="$scratch/cache"

q fit "$tiny" --cached
check "exit 0 when it fits" code_is 0
check "weights" grep -Eq '^weights +1' "$scratch/out"
check "verdict" out_has "fits, up to the model's context of 256"
check "no speeds unless they were measured" sh -c "! grep -q '^speed' '$scratch/out'"
q fit "$tiny" --ctx 64,128 --parallel 4 --kv f32 --json --cached
check "JSON" json "d['schema'] == 'quern.fit/1' and len(d['models']) == 2 and
    d['machine']['estimated'] is False"
check "a row for each length" json "[m['fit']['context'] for m in d['models']]
    == [64, 128] and all(m['fit']['parallel'] == 4 for m in d['models'])"
check "parts add up" json "all(sum(m['fit']['parts'].values()) ==
    m['fit']['required_bytes'] for m in d['models'])"
# 2 layers, one head of 16, keys and values in floats, for 128 tokens, which is
# what is allocated at least.
check "KV" json "[m['fit']['kv_bytes_per_token'] for m in d['models']] ==
    [256, 256] and [m['fit']['parts']['kv'] for m in d['models']] ==
    [4 * 128 * 256] * 2"

q fit "$tiny" --memory 8M --json
check "too large: exit 5" code_is 5
check "too large" json "not d['models'][0]['fit']['fits'] and
    d['machine']['estimated'] and d['machine']['memory_bytes'] == 8 << 20"
printf '{"memory": "1TiB", "bandwidth_gb_per_s": 100, "gflops": 5000}' \
    >"$scratch/spec"
q fit "$tiny" --device-spec "$scratch/spec" --json
check "another machine: rate is 0.8 bandwidth / bytes read" json "abs(
    d['models'][0]['fit']['decode_tokens_per_s'] /
    (0.8 * 100e9 / d['models'][0]['fit']['parts']['weights']) - 1) < 1e-6"
printf '{"memory": "much"}' >"$scratch/spec"
fails 2 "expected a size" fit "$tiny" --device-spec "$scratch/spec"
fails 3 "no such" fit "$scratch/none" --cached
fails 2 "at most 256" fit "$tiny" --ctx 257 --cached
fails 2 "kv" fit "$tiny" --kv f17 --cached
fails 2 "exclude each other" fit "$tiny" --memory 1G --device-spec x
fails 2 "no model was given" fit
fails 2 "expected a model, or --all" fit "$tiny" --all

# ---- the cache ----

hub=$scratch/hub
snapshot=$hub/models--org--Tiny/snapshots/0123456789abcdef
mkdir -p "$snapshot" "$hub/models--org--Tiny/refs"
cp "$tiny"/* "$snapshot"
printf 0123456789abcdef >"$hub/models--org--Tiny/refs/main"
QUERN_CACHE=$hub q fit --all --cached
check "--all" grep -Eq '^org/Tiny +[0-9.]+ [KM]iB .*fits' "$scratch/out"
QUERN_CACHE=$hub q fit org/Tiny --cached
check "by id" out_has "llama  32.00 bpw"
QUERN_CACHE=$scratch/empty q fit --all --cached
check "an empty cache: a head alone" [ "$(wc -l <"$scratch/out")" -eq 1 ]

# ---- what was measured is kept ----

q fit "$tiny"
check "measured" out_has "tokens/s decoding"
check "kept" [ -s "$scratch/cache/quern/machine.json" ]
q fit "$tiny" --cached
check "and used again" out_has "tokens/s decoding"
printf 'rubbish' >"$scratch/cache/quern/machine.json"
q fit "$tiny" --cached
check "rubbish in its place is nothing" code_is 0

finish
