#!/bin/sh
# `quern fit --remote`: of a model of the hub its headers, and nothing else.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
# shellcheck source=tests/cli/hub.sh
. "$root/tests/cli/hub.sh"
export XDG_CACHE_HOME="$scratch/machine" TMPDIR="$scratch/tmp"
mkdir "$TMPDIR"

# make_model FOLDER HIDDEN: weights of zeros in two files with an index.
make_model() {
    python3 - "$1" "$2" <<'PYTHON'
import json, os, struct, sys

folder, hidden = sys.argv[1], int(sys.argv[2])
vocab, layers, inner = 8192, 2, 2 * hidden
os.makedirs(folder)
config = {"model_type": "llama", "hidden_size": hidden, "vocab_size": vocab,
          "num_hidden_layers": layers, "intermediate_size": inner,
          "num_attention_heads": hidden // 64, "num_key_value_heads": 2,
          "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
          "tie_word_embeddings": True, "rope_theta": 10000.0}
with open(os.path.join(folder, "config.json"), "w") as f:
    json.dump(config, f)
shapes = {"model.embed_tokens.weight": [vocab, hidden],
          "model.norm.weight": [hidden]}
for i in range(layers):
    at = f"model.layers.{i}."
    for name, shape in {"self_attn.q_proj": [hidden, hidden],
                        "self_attn.k_proj": [128, hidden],
                        "self_attn.v_proj": [128, hidden],
                        "self_attn.o_proj": [hidden, hidden],
                        "mlp.gate_proj": [inner, hidden],
                        "mlp.up_proj": [inner, hidden],
                        "mlp.down_proj": [hidden, inner],
                        "input_layernorm": [hidden],
                        "post_attention_layernorm": [hidden]}.items():
        shapes[at + name + ".weight"] = shape
names, where = sorted(shapes), {}
for part in (1, 2):
    file = f"model-0000{part}-of-00002.safetensors"
    # A header that is longer than what is asked for at first.
    header, offset = {"__metadata__": {"note": "x" * 200000}}, 0
    for name in names[part - 1::2]:
        size = 2
        for n in shapes[name]:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shapes[name],
                        "data_offsets": [offset, offset + size]}
        offset += size
        where[name] = file
    text = json.dumps(header).encode()
    with open(os.path.join(folder, file), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + offset)
with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
    json.dump({"weight_map": where}, f)
PYTHON
}

files=$scratch/model
make_model "$files" 512
cp "$tiny/tokenizer.json" "$files"
hub_start

# No tokenizer: what the table of its words takes is as the model says.
q fit "$files" --ctx 1k,4k --parallel 2 --kv affine8 --memory 8G --json
check "a model that is here" code_is 0
keep_json
q fit t/m --remote --ctx 1k,4k --parallel 2 --kv affine8 --memory 8G --json
check "one of the hub: exit 0" code_is 0
check "the same parts" json "[m['fit'] for m in d['models']] ==
    [m['fit'] for m in first['models']]"
check "only configuration, index and headers" asked "all(
    x['path'].startswith('/api/') or x['path'].endswith('.json') or
    x['range'] in ('bytes=0-65535', 'bytes=65536-201999') or
    int(x['range'].split('-')[1]) < 300000 for x in r)"
check "no tokenizer" asked "not any('tokenizer' in x['path'] for x in r)"
check "nothing stays" [ -z "$(ls "$TMPDIR")" ]
check "nor gets into the cache" [ ! -e "$QUERN_CACHE" ]
q fit t/m --remote --cached
check "for people" grep -Eq '^model +t/m   llama  16.00 bpw' "$scratch/out"

# A server without ranges sends all of it, and is stopped.
hub '"range":"ignore","weights":"model-00001-of-00002.safetensors"'
q fit t/m --remote --ctx 1k,4k --parallel 2 --kv affine8 --memory 8G --json
check "without ranges: the same" json "[m['fit'] for m in d['models']] ==
    [m['fit'] for m in first['models']]"
# One that cuts is asked again.
hub '"close_after":100000,"weights":"model-00001-of-00002.safetensors"'
q fit t/m --remote --ctx 1k,4k --parallel 2 --kv affine8 --memory 8G --json
check "cut: the same" json "[m['fit'] for m in d['models']] ==
    [m['fit'] for m in first['models']]"
hub '"sizes":false,"redirect":"cdn"'
q fit t/m --remote --ctx 1k,4k --parallel 2 --kv affine8 --memory 8G --json
check "sizes from headers, files elsewhere: the same" json \
    "[m['fit'] for m in d['models']] == [m['fit'] for m in first['models']]"
hub '"range":"wrong","weights":"model-00002-of-00002.safetensors"'
fails 6 "another range" fit t/m --remote --cached
check "nothing stays after a failure" [ -z "$(ls "$TMPDIR")" ]

hub '"token":"secret"'
fails 8 "licence" fit t/m --remote --cached
hub
fails 3 "no model 'o/other'" fit o/other --remote --cached
fails 3 "no such" fit t/m --cached
run env HF_HUB_OFFLINE=1 "$quern" fit t/m --remote --cached
check "offline: exit 6" code_is 6
fails 2 "exclude each other" fit --all --remote

# ---- what is wrong there ----

printf '\377\377\377\377\377\377\377\177rubbish' \
    >"$files/model-00001-of-00002.safetensors"
hub
fails 4 "model-00001-of-00002.safetensors" fit t/m --remote --cached
files=$scratch/foreign
make_model "$files" 128
sed -i 's/"llama"/"no_such_family"/' "$files/config.json"
hub
fails 4 "no_such_family" fit t/m --remote --cached

# ---- GGUF ----

files=$scratch/gguf
mkdir "$files"
python3 "$root/tests/cli/make_gguf.py" "$tiny" "$files/m-F32.gguf"
head -c 3000000 /dev/zero >>"$files/m-F32.gguf"
hub '"weights":"m-F32.gguf"'
q fit "$files/m-F32.gguf" --memory 8G --json
keep_json
q fit t/m --remote --memory 8G --json
check "GGUF: the same parts" json \
    "d['models'][0]['fit'] == first['models'][0]['fit']"
check "its front alone" asked "all(x['range'] == 'bytes=0-65535'
    for x in r if 'gguf' in x['path'])"
cp "$files/m-F32.gguf" "$files/m-Q8_0.gguf"
hub
fails 2 "m-Q8_0.gguf" fit t/m --remote --cached
q fit t/m:F32 --remote --cached
check "one is chosen" code_is 0

finish
