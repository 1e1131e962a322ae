#!/bin/sh
# quern convert and quern quantize.  tests/convert/check_mlx.py compares all
# modes and types with MLX; here are results that were found equal, stored.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

# SHA-256 of the data of model.safetensors, without its header.
digest_is() { # FOLDER DIGEST
    found=$(python3 - "$1" <<'PYTHON'
import hashlib, struct, sys
data = open(sys.argv[1] + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
assert size % 8 == 0
print(hashlib.sha256(data[8 + size:]).hexdigest()[:16])
PYTHON
)
    [ "$found" = "$2" ] || {
        echo "digest $found, expected $2"
        return 1
    }
}

# same_tensors A B: same names, types, shapes, bytes.
same_tensors() {
    python3 - "$1" "$2" <<'PYTHON'
import glob, json, struct, sys
def read(folder):
    out = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                a, b = (8 + size + x for x in t["data_offsets"])
                out[name] = (t["dtype"], t["shape"], data[a:b])
    return out
a, b = map(read, sys.argv[1:])
assert a == b, (set(a) ^ set(b), [n for n in a if a[n] != b.get(n)])
PYTHON
}

greedy() { # MODEL
    "$quern" run "$1" "Hello there" --raw --temperature 0 --max-tokens 12 \
        --ignore-eos --dtype f32
}

# ---- quantize ----

for row in "affine 4 3f2230c686779683" "affine 3 d8e3414189f1f06f" \
    "mxfp4 4 359ba880943cec61" "mxfp8 8 2c184a4c9564936e"; do
    # shellcheck disable=SC2086 # words
    set -- $row
    q quantize "$tiny" "$scratch/q" --mode "$1" --bits "$2" --group-size 32 \
        --overwrite
    check "$1 $2" code_is 0
    check "$1 $2: the bytes are MLX's" digest_is "$scratch/q" "$3"
done
q quantize "$tiny" "$scratch/q" --mode nvfp4 --overwrite
check "the mode's own width and group" digest_is "$scratch/q" bb7135c3dfbb01d6
check "it runs" [ -n "$(greedy "$scratch/q" | tr -d "\000")" ]
check "no half-made sibling stays" [ "$(find "$scratch" -name 'q.part*' |
    wc -l)" -eq 0 ]

q quantize "$tiny" "$scratch/json" --group-size 32 --json --report \
    "$scratch/report"
check "JSON" json "d['schema'] == 'quern.quantize/1' and d['files'] == 1 and
    d['architecture'] == 'llama' and d['parameters'] == 29216 and
    d['not_divided'] == [] and 6.1 < d['bits_per_weight'] < 6.2 and
    {'kind': 'q_proj', 'form': 'affine 4-bit g32', 'count': 2,
     'parameters': 2048, 'bytes': 1536} in d['modules']"
check "--report is the same" cmp -s "$scratch/out" "$scratch/report"
check "and says how far the result is from the source" json \
    "0 < d['quality']['kl'] < d['quality']['kl_p99'] and
     0 < d['quality']['top1'] <= 1"
check "config.json" python3 -c "
import json
c = json.load(open('$scratch/json/config.json'))
q = {'group_size': 32, 'bits': 4, 'mode': 'affine'}
assert c['quantization'] == q == c['quantization_config'], c
assert c['hidden_size'] == 32"
check "the other files come along" cmp -s "$tiny/tokenizer.json" \
    "$scratch/json/tokenizer.json"

q quantize "$tiny" "$scratch/wide" --group-size 64 --json
check "rows that the group does not divide stay floats" json \
    "'model.embed_tokens.weight' in d['not_divided'] and
     'model.layers.0.mlp.down_proj.weight' not in d['not_divided']"
q quantize "$tiny" "$scratch/over" --group-size 32 --override '*.v_proj=8' \
    --override '*.1.*=none' --override 'model.layers.1.mlp.up_proj=6:32' --json
check "overrides, the last counts" json "
    {(m['kind'], m['form'], m['count']) for m in d['modules']} >=
    {('v_proj', 'affine 8-bit g32', 1), ('v_proj', 'F32', 1),
     ('up_proj', 'affine 6-bit g32', 1), ('up_proj', 'affine 4-bit g32', 1)}"
check "overrides in config.json" python3 -c "
import json
q = json.load(open('$scratch/over/config.json'))['quantization']
assert q['model.layers.0.self_attn.v_proj']['bits'] == 8, q
assert q['model.layers.1.mlp.up_proj']['bits'] == 6, q"
check "it runs" [ -n "$(greedy "$scratch/over" | tr -d "\000")" ]
q quantize "$tiny" "$scratch/mixed" --group-size 32 --recipe mixed_3_6 --json
check "a recipe" json "
    {(m['kind'], m['form'], m['count']) for m in d['modules']} >=
    {('v_proj', 'affine 6-bit g32', 1), ('down_proj', 'affine 6-bit g32', 1),
     ('q_proj', 'affine 3-bit g32', 2), ('embed_tokens', 'affine 3-bit g32', 1)}"
q quantize "$tiny" "$scratch/head" --group-size 32 --keep-head --json
check "--keep-head: the embedding of tied models" json "('embed_tokens', 'F32')
    in {(m['kind'], m['form']) for m in d['modules']}"

four=$root/tests/vectors/cases/fixtures/models/tiny_q4
fails 2 "is quantized already" quantize "$four" "$scratch/again"
q quantize "$four" "$scratch/again" --group-size 32 --bits 3 --requantize
check "--requantize" code_is 0
check "it warns" err_has "quantized already"
fails 2 "matches no module" quantize "$tiny" "$scratch/x" --override 'nope*=4'
fails 2 "expected GLOB=" quantize "$tiny" "$scratch/x" --override '*=4x'
fails 2 "no 7 bits" quantize "$tiny" "$scratch/x" --bits 7
fails 2 "no 4 bits in groups of 16" quantize "$tiny" "$scratch/x" \
    --group-size 16
fails 2 "no 3 bits" quantize "$tiny" "$scratch/x" --mode mxfp4 --bits 3
fails 2 "no 5 bits in groups of 48" quantize "$tiny" "$scratch/x" \
    --override '*=5:48'
fails 3 "no such" quantize "$scratch/none" "$scratch/x"
check "nothing is left of what failed" [ ! -e "$scratch/x" ]

# ---- convert ----

q convert "$tiny" "$scratch/copy"
check "a copy" same_tensors "$tiny" "$scratch/copy"
q convert "$four" "$scratch/same"
check "packed modules are kept" same_tensors "$four" "$scratch/same"
q convert "$four" "$scratch/plain" --dequantize --dtype f32
check "unpacked" code_is 0
greedy "$four" >"$scratch/a"
greedy "$scratch/plain" >"$scratch/b"
check "unpacked says the same" cmp -s "$scratch/a" "$scratch/b"
q convert "$tiny" "$scratch/half" --dtype bf16 --json
check "--dtype" json "{m['form'] for m in d['modules']} == {'BF16'}"
q convert "$tiny" "$scratch/cut" --shard-size 1M
check "a model below the size of a file is one" [ -f \
    "$scratch/cut/model.safetensors" ]

fails 2 "exists already" convert "$tiny" "$scratch/copy"
q convert "$tiny" "$scratch/copy" --overwrite --dtype f16
check "--overwrite" code_is 0
check "the new one is there" grep -q F16 "$scratch/copy/model.safetensors"
mkdir "$scratch/other"
: >"$scratch/other/letter"
fails 2 "no model directory" convert "$tiny" "$scratch/other" --overwrite
check "what is no model stays" [ -f "$scratch/other/letter" ]
fails 2 "lies in the source" convert "$scratch/copy" "$scratch/copy/in"
fails 2 "lies in the source" convert "$scratch/copy" "$scratch/copy" --overwrite
fails 3 "no folder" convert "$tiny" "$scratch/a/b/c"
fails 2 "exclude each other" convert "$tiny" "$scratch/x" --quantize \
    --dequantize
fails 2 "--bits: needs quantize" convert "$tiny" "$scratch/x" \
    --bits 4
q convert "$tiny" "$scratch/both" --quantize --group-size 32 --bits 4
check "--quantize is quern quantize" digest_is "$scratch/both" 3f2230c686779683

# Several files: a model that is made larger than one.
python3 - "$tiny" "$scratch/large" <<'PYTHON'
import json, os, shutil, struct, sys
source, target = sys.argv[1:]
shutil.copytree(source, target)
os.chmod(target, 0o755)
config = json.load(open(source + "/config.json"))
config["vocab_size"] = 20000
os.chmod(target + "/config.json", 0o644)
json.dump(config, open(target + "/config.json", "w"))
data = open(source + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__", None)
out, body = {}, b""
for name, t in header.items():
    a, b = (8 + size + x for x in t["data_offsets"])
    raw = data[a:b]
    if name == "model.embed_tokens.weight":
        raw, t["shape"][0] = (raw * 100)[:20000 * 128], 20000
    out[name] = dict(t, data_offsets=[len(body), len(body) + len(raw)])
    body += raw
text = json.dumps(out).encode()
os.chmod(target + "/model.safetensors", 0o644)
open(target + "/model.safetensors", "wb").write(
    struct.pack("<Q", len(text)) + text + body)
PYTHON
q convert "$scratch/large" "$scratch/cut" --overwrite --shard-size 1M --json
check "files of a size" json "d['files'] == 2"
check "their index" [ -f "$scratch/cut/model.safetensors.index.json" ]
check "the same tensors" same_tensors "$scratch/large" "$scratch/cut"
check "it runs" [ -n "$(greedy "$scratch/cut" | tr -d "\000")" ]

# A failure in the middle leaves nothing.
rc=0
(ulimit -f 64; trap '' XFSZ; exec "$quern" convert "$scratch/large" \
    "$scratch/full") >"$scratch/out" 2>"$scratch/err" || rc=$?
check "a disk that is full" [ "$rc" -ne 0 ]
check "nothing stays" [ "$(find "$scratch" -maxdepth 1 -name 'full*' |
    wc -l)" -eq 0 ]

# What can't be packed.
python3 - "$scratch/large" <<'PYTHON'
import struct, sys
path = sys.argv[1] + "/model.safetensors"
data = bytearray(open(path, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
data[8 + size + 4 * 40:8 + size + 4 * 41] = struct.pack("<f", float("nan"))
open(path, "wb").write(data)
PYTHON
fails 4 "NaN at index 40" quantize "$scratch/large" "$scratch/x" --group-size 32

# ---- from GGUF ----

python3 "$root/tests/cli/make_gguf.py" "$tiny" "$scratch/tiny.gguf"
q convert "$scratch/tiny.gguf" "$scratch/mlx"
check "from GGUF" code_is 0
check "rows of heads are in plain order again" same_tensors "$tiny" \
    "$scratch/mlx"
greedy "$scratch/tiny.gguf" >"$scratch/a"
greedy "$scratch/mlx" >"$scratch/b"
check "it says the same" cmp -s "$scratch/a" "$scratch/b"
python3 "$root/tests/cli/make_gguf.py" "$tiny" "$scratch/odd.gguf" \
    general.architecture=odd
fails 4 "'odd' is not supported" convert "$scratch/odd.gguf" "$scratch/x"
check "nothing is left of it" [ ! -e "$scratch/x" ]

# ---- to GGUF ----

q convert "$tiny" "$scratch/made.gguf" --to gguf --json
check "to GGUF" code_is 0
check "its types" json "{(m['kind'], m['form']) for m in d['modules']} >=
    {('q_proj', 'F32'), ('norm', 'F32')} and d['inexact'] == []"
greedy "$tiny" >"$scratch/a"
greedy "$scratch/made.gguf" >"$scratch/b"
check "it says the same" cmp -s "$scratch/a" "$scratch/b"
q convert "$scratch/made.gguf" "$scratch/back"
check "and back again" same_tensors "$tiny" "$scratch/back"
printf '{"text": "Hello world", "ids": [259, 269]}\n' >"$scratch/ids"
q eval "$scratch/made.gguf" --task tokenizer --data "$scratch/ids" --json
check "its tokenizer" json "d['metrics']['equal'] == 1"
q quantize "$tiny" "$scratch/q4" --group-size 32 --overwrite
q convert "$tiny" "$scratch/f16" --dtype f16 --overwrite
q quantize "$scratch/f16" "$scratch/q4" --group-size 32 --overwrite
q convert "$scratch/q4" "$scratch/q4.gguf" --to gguf --exact --json
check "4-bit groups with float16 scales are Q4_1, exactly" json "('q_proj',
    'Q4_1') in {(m['kind'], m['form']) for m in d['modules']}"
q convert "$scratch/q4.gguf" "$scratch/q4-back" --overwrite
q convert "$scratch/q4" "$scratch/p1" --dequantize --dtype f32 --overwrite
q convert "$scratch/q4-back" "$scratch/p2" --dequantize --dtype f32 --overwrite
greedy "$scratch/p1" >"$scratch/a"
greedy "$scratch/p2" >"$scratch/b"
check "which say the same" cmp -s "$scratch/a" "$scratch/b"
fails 4 "is a GGUF file already" convert "$scratch/q4.gguf" "$scratch/x.gguf" \
    --to gguf
fails 2 "ends in .gguf" convert "$tiny" "$scratch/made" --to gguf
fails 2 "quantize a directory first" convert "$tiny" "$scratch/x.gguf" \
    --to gguf --quantize
q quantize "$tiny" "$scratch/q6" --bits 6 --group-size 32 --overwrite
fails 4 "can't be kept exactly" convert "$scratch/q6" "$scratch/x.gguf" \
    --to gguf --exact
check "nothing is left of what failed" [ ! -e "$scratch/x.gguf" ]

# ---- what was killed ----

# What nobody writes any more goes, and nothing else does.
mkdir -p "$scratch/left.part-abcdef/deep" "$scratch/left.part-ghijkl" \
    "$scratch/left.part-notours"
: >"$scratch/left.part-abcdef/deep/model.safetensors"
: >"$scratch/left.part-mnopqr.gguf"
flock "$scratch/left.part-ghijkl" -c "touch '$scratch/locked'; \
    while [ ! -f '$scratch/done' ] && [ -d '$scratch' ]; do sleep 0.05; done" &
wait_until [ -f "$scratch/locked" ]
q convert "$tiny" "$scratch/left"
check "converted beside leftovers" code_is 0
touch "$scratch/done"
wait
check "a folder that was left is gone" [ ! -e "$scratch/left.part-abcdef" ]
check "a file, too" [ ! -e "$scratch/left.part-mnopqr.gguf" ]
check "what is written stays" [ -d "$scratch/left.part-ghijkl" ]
check "and what is none of ours" [ -d "$scratch/left.part-notours" ]

finish
