#!/bin/sh
# quern show and quern version.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

row() { # NAME VALUE, a line of the summary
    grep -q "^$1  *$2\$" "$scratch/out"
}

q show "$tiny"
check "exit 0" code_is 0
check "nothing on stderr" err_empty
check "format" row format mlx
check "architecture" row architecture llama
check "quantization" row quantization "F32, 32.00 bits per weight"
check "parameters" row parameters "29.2 k in 20 tensors, 0.1 MiB"
check "layers" row layers "2 x 32 wide, feed-forward 64"
check "attention" row attention "2 heads of 16, 1 for keys and values"
check "context" row context "256 tokens, 0.1 KiB each in an f16 cache"
check "vocabulary" row vocabulary "332 logits, tied embeddings"
check "template" row "chat template" yes
check "capabilities" row capabilities "completion chat"
check "tokenizer" row tokenizer "bpe, 332 tokens"
check "special tokens" row "  end" "324  <|im_end|>"

q show "$tiny" --json
check "JSON" json "d['schema'] == 'quern.show/1' and d['path'] == '$tiny' and
    d['format'] == 'mlx' and d['architecture'] == 'llama' and
    d['parameters'] == 29216 and d['weight_bytes'] == 116864 and
    d['tensor_count'] == 20 and d['context'] == 256 and
    d['vocab_size'] == 332 and d['tied_embeddings'] is True"
check "JSON: capabilities" json "d['capabilities'] == ['completion', 'chat'] and
    d['has_chat_template'] and d['chat_template_error'] is None"
check "JSON: special tokens" json "d['tokenizer'] == {'kind': 'bpe',
    'tokens': 332, 'bos': None, 'unk': None,
    'pad': {'id': 325, 'text': '<|endoftext|>'}, 'end_ids': [324, 325]}"
check "JSON: parts only when asked for" json \
    "'tensors' not in d and 'chat_template' not in d"
q show "$tiny" --json --tensors --template
check "JSON: tensors" json "len(d['tensors']) == 20 and
    sum(t['bytes'] for t in d['tensors']) == 116864 and {'name':
    'model.embed_tokens.weight', 'type': 'F32', 'shape': [332, 32],
    'bytes': 42496} in d['tensors']"
check "JSON: template" json "'<|im_start|>' in d['chat_template']"

q show "$tiny" --tensors
check "--tensors: a line each" [ "$(wc -l <"$scratch/out")" -eq 20 ]
check "--tensors: type, shape, bytes, name" grep -Eq \
    '^F32 +332 x 32 +42496  model.embed_tokens.weight$' "$scratch/out"
q show "$tiny" --template
check "--template prints the source alone" grep -q '^{% for m in messages' \
    "$scratch/out"
q show "$tiny" --tokenizer
check "--tokenizer" row tokenizer "bpe, 332 tokens"
check "--tokenizer alone" not row format mlx

q show "$root/tests/vectors/cases/fixtures/models/tiny_q4"
check "packed weights" grep -q '^quantization .*4' "$scratch/out"

# ---- what a directory may hold ----

cp -r "$tiny" "$scratch/model"
chmod -R u+w "$scratch/model"
: >"$scratch/model/LICENSE.txt"
printf -- '---\ntags: x\nlicense: "apache-2.0"\n---\nlicense: mit\n' \
    >"$scratch/model/README.md"
q show "$scratch/model"
check "licence" row licence "apache-2.0, file LICENSE.txt"
q show "$scratch/model/model.safetensors" --json
check "licence beside a file" json "d['licence'] == 'apache-2.0' and
    d['licence_file'] == 'LICENSE.txt'"
printf 'license: mit\n' >"$scratch/model/README.md"
q show "$scratch/model" --json
check "only front matter counts" json "d['licence'] is None"

printf '%s' '{% if tools %}{{ tools }}[TOOL_CALLS]{% endif %}{% if enable_thinking %}' \
    '{% endif %}{{ messages }}' >"$scratch/model/chat_template.jinja"
q show "$scratch/model" --json
check "what a template knows" json \
    "d['capabilities'] == ['completion', 'chat', 'tools', 'thinking']"
printf '%s' '{% if tools %}{{ tools }}{% endif %}' \
    >"$scratch/model/chat_template.jinja"
q show "$scratch/model" --json
check "tools without a known way to call them" json \
    "d['capabilities'] == ['completion', 'chat']"
printf '%s' '[TOOL_CALLS]' >"$scratch/model/chat_template.jinja"
q show "$scratch/model" --json
check "a way to call without tools" json \
    "d['capabilities'] == ['completion', 'chat']"
printf '%s' '{{ mytools.enable_thinking_x }}' \
    >"$scratch/model/chat_template.jinja"
q show "$scratch/model" --json
check "whole words only" json "d['capabilities'] == ['completion', 'chat']"
printf '%s' '{{ raise_exception("no") }}' >"$scratch/model/chat_template.jinja"
q show "$scratch/model" --json
check "a template that refuses a conversation is usable" json \
    "d['chat_template_error'] is None"
printf '%s' '{% endfor %}' >"$scratch/model/chat_template.jinja"
q show "$scratch/model"
check "a template that can't be read" row "chat template" "not usable"
check "why" grep -q 'line 1' "$scratch/out"
check "no chat then" row capabilities completion
q show "$scratch/model" --template
check "its source can be seen" out_has '{% endfor %}'
rm "$scratch/model/chat_template.jinja"
sed 's/"chat_template"/"other"/' "$tiny/tokenizer_config.json" \
    >"$scratch/model/tokenizer_config.json"
q show "$scratch/model"
check "no template" row "chat template" none
fails 4 "the model has no chat template" show "$scratch/model" --template

# A file that ends behind its header.
size=$(python3 -c 'import struct, sys
print(8 + struct.unpack("<Q", open(sys.argv[1], "rb").read(8))[0])' \
    "$tiny/model.safetensors")
head -c "$size" "$tiny/model.safetensors" >"$scratch/model/model.safetensors"
fails 4 "model.safetensors" show "$scratch/model"

# The family of scripts is in no release.
fails 4 "model type 'scripted' is not supported" \
    show "$tiny/../scripted"

# ---- version ----

q version
check "version" grep -Eq '^quern [0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{7,}(-dirty)?\))?$' \
    "$scratch/out"
check "MLX C API" row "MLX C API" 0.32.2
check "backends" row backends "cpu (.*)"
cp "$scratch/out" "$scratch/long"
q --version
check "--version is the same" cmp -s "$scratch/out" "$scratch/long"
q version --json
check "JSON" json "d['schema'] == 'quern.version/1' and d['version'] and
    'commit' in d and d['backends'] == ['cpu'] and d['isa'] and
    d['engine'] == '(built in)' and d['mlx_c_api'] == '0.32.2'"
q --version --json
check "--version --json" json "d['schema'] == 'quern.version/1'"

finish
