#!/bin/sh
# quern run: speculation, saved prompts, thoughts, and the spellings of mlx-lm.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

q4=$root/tests/vectors/cases/fixtures/models/tiny_q4
h64=$root/tests/vectors/cases/fixtures/models/tiny_h64
seeded="--seed 7 --max-tokens 24"

# Runs on the tiny model with the words, and compares with the first text.
answer() {
    # shellcheck disable=SC2086 # a list of flags
    q run "$tiny" abcabcabc $seeded "$@"
}

same_text() {
    cmp -s "$scratch/out" "$scratch/first"
}

# ---- speculation ----

answer
cp "$scratch/out" "$scratch/first"
check "some text" [ -s "$scratch/first" ]
answer --ngram
check "n-grams give the same text" same_text
answer --draft-model "$tiny"
check "a draft model gives the same text" same_text
answer --draft-model "$q4" --num-draft 7
check "another one, too" same_text
answer --draft-model "$tiny" --temperature 0 --json
check "guesses are counted" json "d['speculation']['drafted'] > 0 and
    d['speculation']['accepted'] > 0 and not d['speculation']['stopped']"
answer --ngram --stats
check "and told" err_has "guesses right"
fails 2 "--draft-model and --ngram exclude each other" \
    run "$tiny" x --draft-model "$q4" --ngram
fails 2 "--num-draft needs" run "$tiny" x --num-draft 3
fails 2 "from 1 to 16" run "$tiny" x --ngram --num-draft 17
fails 3 "/nowhere" run "$tiny" x --draft-model /nowhere

# ---- prompts that were saved ----

cached() {
    json "d['usage']['cached_tokens'] == $1"
}

answer --save-prompt-cache "$scratch/saved" --json
keep_json
check "nothing is cached at first" cached 0
answer --prompt-cache "$scratch/saved" --json
check "all but a token is, then" json \
    "d['usage']['cached_tokens'] == d['usage']['prompt_tokens'] - 1"
check "and the text is the same" json "d['text'] == first['text']"
# shellcheck disable=SC2086
q run "$tiny" abcabcabd $seeded --prompt-cache "$scratch/saved" --json
check "another prompt uses its beginning" json \
    "0 < d['usage']['cached_tokens'] < d['usage']['prompt_tokens'] - 1"
fails 4 "model: expected" run "$q4" abc --prompt-cache "$scratch/saved"
fails 4 "kv_dtype: expected f32, found f16" \
    run "$tiny" abc --kv f32 --prompt-cache "$scratch/saved"
fails 4 "compat: expected mlx-lm, found nothing" \
    run "$tiny" abc --compat mlx-lm --prompt-cache "$scratch/saved"
answer --compat mlx-lm --save-prompt-cache "$scratch/as-mlx" --json
check "a profile's own file" code_is 0
answer --compat mlx-lm --prompt-cache "$scratch/as-mlx" --json
check "serves under it" json \
    "d['usage']['cached_tokens'] == d['usage']['prompt_tokens'] - 1"
fails 4 "compat: expected nothing, found mlx-lm" \
    run "$tiny" abc --prompt-cache "$scratch/as-mlx"
# Blocks as floats are computed in another way, too.
python3 "$root/tests/cli/make_gguf.py" "$tiny" "$scratch/tiny.gguf"
q run "$scratch/tiny.gguf" abc --max-tokens 2 --save-prompt-cache "$scratch/packed"
check "of a GGUF file" code_is 0
fails 4 "dtype: expected auto dense f32, found auto" \
    run "$scratch/tiny.gguf" abc --gguf-dequant f32 --prompt-cache "$scratch/packed"
q run "$scratch/tiny.gguf" abc --max-tokens 2 --gguf-dequant bf16
check "its weights as floats" code_is 0
fails 2 "one of" run "$scratch/tiny.gguf" abc --gguf-dequant f64
fails 4 "no GGUF file" run "$tiny" abc --gguf-dequant f32
# A configuration is for all models.
printf 'gguf_dequant = "f32"\n' >"$scratch/dense.toml"
q run "$tiny" abc --max-tokens 2 --config "$scratch/dense.toml"
check "others are not meant" code_is 0
q fit "$tiny" "$scratch/tiny.gguf" --config "$scratch/dense.toml"
check "nor where it is asked whether they fit" code_is 0
fails 4 "found auto" run "$scratch/tiny.gguf" abc --config "$scratch/dense.toml" \
    --prompt-cache "$scratch/packed"
fails 4 "device 0 alone" run "$tiny" abc --device 2
fails 4 "there is one device" run "$tiny" abc --tensor-parallel 2
fails 2 "from 1 to 1024" run "$tiny" abc --tensor-parallel 0
q run "$tiny" abc --max-tokens 2 --device 0 --tensor-parallel 1
check "what there is" code_is 0
fails 2 "expected one of mlx-lm" run "$tiny" abc --compat llama.cpp
if [ "$(uname -m)" = x86_64 ]; then
    # What was computed with other instructions has other last bits.
    QUERN_ISA=scalar
    export QUERN_ISA
    fails 4 "isa: expected scalar, found" \
        run "$tiny" abc --prompt-cache "$scratch/saved"
    unset QUERN_ISA
fi
fails 3 "no such file" run "$tiny" abc --prompt-cache "$scratch/nothing"
head -c 300 "$scratch/saved" >"$scratch/cut"
fails 4 "$scratch/cut" run "$tiny" abc --prompt-cache "$scratch/cut"
answer --save-prompt-cache /nowhere/at/all
check "a place that is none" code_is 3
check "its name" err_has /nowhere/at/all

# ---- prompts that mlx-lm has saved ----

# A file in its form, of one of ours: tensors N.0 and N.1, classes of layers.
as_mlx() { # FROM TO CLASS
    python3 - "$@" <<'PYTHON'
import json, struct, sys

source, target, name = sys.argv[1:]
data = open(source, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + size]), data[8 + size:]
out, parts, at = {"__metadata__": {"1.model": "x"}}, [], 0
for layer in range(2):
    out["__metadata__"]["2.%d" % layer] = name
    out["__metadata__"]["0.%d" % layer] = ""
    for which, plane in enumerate(("keys", "values")):
        entry = head["layers.%d.%s" % (layer, plane)]
        begin, end = entry["data_offsets"]
        parts.append(body[begin:end])
        out["%d.%d" % (layer, which)] = dict(
            entry, data_offsets=[at, at + end - begin])
        at += end - begin
text = json.dumps(out).encode()
text += b" " * (-len(text) % 8)
open(target, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
PYTHON
}

continued="--raw --kv f32 --temperature 0 --max-tokens 12"
# shellcheck disable=SC2086
{
    q run "$tiny" abcab --raw --kv f32 --temperature 0 --max-tokens 1 \
        --save-prompt-cache "$scratch/ours"
    as_mlx "$scratch/ours" "$scratch/mlx" KVCache
    q run "$tiny" abcabcab $continued
    cp "$scratch/out" "$scratch/first"
    q run "$tiny" cab $continued --prompt-cache "$scratch/mlx"
    check "what mlx-lm has saved is continued" same_text
    q run "$tiny" cab $continued --prompt-cache "$scratch/mlx" --ngram --json
    check "its tokens count as cached" json "d['usage']['cached_tokens'] == 5
        and d['usage']['prompt_tokens'] == 8"
    q run "$tiny" Hello --kv f32 --prompt-cache "$scratch/mlx" --json \
        --max-tokens 2
    check "a message goes on from its content" json \
        "5 < d['usage']['prompt_tokens'] < 30"
    q run "$tiny" cab $continued --prompt-cache "$scratch/mlx" \
        --save-prompt-cache "$scratch/again"
    check "and can't be saved" err_has "whose tokens are not known"
    as_mlx "$scratch/ours" "$scratch/mlx" RotatingKVCache
    fails 4 "a RotatingKVCache without offset" run "$tiny" cab \
        $continued --prompt-cache "$scratch/mlx"
    as_mlx "$scratch/ours" "$scratch/mlx" ArraysCache
    fails 4 "expected a KVCache, QuantizedKVCache or RotatingKVCache, found ArraysCache" \
        run "$tiny" cab $continued --prompt-cache "$scratch/mlx"
}

# Those that mlx-lm itself wrote (tools/goldens/caches.py), and what it says
# behind them.
continues() { # NAME FLAG...
    foreign=$1
    shift
    model=$(python3 -c "import json
print(json.load(open('$root/tests/vectors/kv/mlx.json'))['$foreign']['model'])")
    q run "$(dirname "$tiny")/$model" abc --raw --dtype f32 --temperature 0 \
        --max-tokens 12 --ignore-eos --json --logprobs 0 \
        --prompt-cache "$root/tests/vectors/kv/$foreign.safetensors" "$@"
    python3 -c "import json
rows = json.load(open('$root/tests/vectors/kv/mlx.json'))
json.dump(rows['$foreign'], open('$scratch/kept', 'w'))"
    check "$foreign is continued" json "[t['id'] for t in d['logprobs']] ==
        first['tokens'] and d['usage']['cached_tokens'] == len(first['ids'])"
}
continues mlx-plain --kv f32
continues mlx-plain --kv f16
continues mlx-affine8 --kv affine8
continues mlx-affine4 --kv affine4
continues mlx-rotating --kv f32 --max-kv-size 64
kv=$root/tests/vectors/kv
# shellcheck disable=SC2086
{
    fails 4 "expected 100 tokens of which the first 4 stay" run "$tiny" abc \
        $continued --max-kv-size 100 --prompt-cache "$kv/mlx-rotating.safetensors"
    fails 4 "a RotatingKVCache of 8 tokens that has seen 11" run "$tiny" abc \
        $continued --max-kv-size 8 --prompt-cache "$kv/mlx-turned.safetensors"
    fails 4 "found a RotatingKVCache of 64 and 4" run "$tiny" abc \
        $continued --prompt-cache "$kv/mlx-mixed.safetensors"
    fails 4 "layer 0 is a QuantizedKVCache, which is not how it is stored here" \
        run "$h64" abc --raw --prompt-cache "$kv/mlx-affine8.safetensors"
    fails 4 "0.0.0: expected [1, 1, tokens, 8]" run "$h64" abc --raw \
        --kv affine4 --prompt-cache "$kv/mlx-affine8.safetensors"
}

# ---- spellings of mlx-lm ----

q run "$tiny" abcabcabc --temperature 0.3 --seed 3 --max-tokens 9
cp "$scratch/out" "$scratch/first"
q run --model "$tiny" --prompt abcabcabc --temp 0.3 --seed 3 --max-tokens 9
check "--model, --prompt, --temp" same_text
q run --model "$tiny" -p abcabcabc --temp 0.3 --seed 3 --max-tokens 9 --ngram \
    --num-draft-tokens 2
check "-p, --num-draft-tokens" same_text
q run "$tiny" ab --ignore-chat-template --json --max-tokens 1
check "--ignore-chat-template" json "d['usage']['prompt_tokens'] == 2"
q run "$h64" ab --kv affine8 --temperature 0 --max-tokens 9 --kv-quant-start 4
cp "$scratch/out" "$scratch/first"
q run "$h64" ab --kv-bits 8 --kv-group-size 64 --quantized-kv-start 4 \
    --temp 0 --max-tokens 9
check "--kv-bits, --kv-group-size, --quantized-kv-start" same_text
fails 2 "--kv and --kv-bits exclude each other" \
    run "$tiny" x --kv f16 --kv-bits 8
fails 2 "code of models is never run" run "$tiny" x --trust-remote-code
q run --prompt x --max-tokens 1
check "--prompt for the model that was used last" code_is 0
fails 2 "--raw and --no-think exclude each other" run "$tiny" x --raw --no-think

finish
