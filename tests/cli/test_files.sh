#!/bin/sh
# Model files that can't be run: one line, the right exit code, never a crash.
# What is in the line: the file and the place, what was expected and found.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
cd "$scratch"

gguf() { # FILE [KEY=VALUE]...
    python3 "$root/tests/cli/make_gguf.py" "$tiny" "$@"
}

# A fresh copy of the tiny model in ./dir.
fresh() {
    rm -rf dir
    cp -r "$tiny" dir
    chmod -R u+w dir
}

# Both commands that read models say the same.
both() { # CODE TEXT MODEL
    fails "$1" "$2" show "$3"
    fails "$1" "$2" run "$3" hi
}

# ---- a GGUF file has the meaning of the directory it came from ----

gguf good.gguf general.license=mit general.name=Tiny
q run "$tiny" --raw abq --temperature 0 --max-tokens 24 --json
keep_json
q run good.gguf --raw abq --temperature 0 --max-tokens 24 --json
check "the same answer" json "d['text'] == first['text']"
q show good.gguf --json
check "what it says of itself" json "d['format'] == 'gguf' and
    d['name'] == 'Tiny' and d['licence'] == 'mit' and
    d['parameters'] == 29216"

# ---- GGUF files that are wrong ----

: >empty.gguf
both 4 "empty.gguf: GGUF byte 0: expected 4 bytes of a magic number" empty.gguf
printf 'GGML\003\000\000\000' >magic.gguf
both 4 "magic.gguf" magic.gguf
printf 'GGUF\011\000\000\000aaaaaaaaaaaaaaaa' >version.gguf
both 4 "version" version.gguf
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\177%s' \
    '1111111111111111' >counts.gguf
both 4 "counts.gguf" counts.gguf
size=$(wc -c <good.gguf)
for part in 1 2 3 10 50 90 99; do
    head -c $((size * part / 100)) good.gguf >cut.gguf
    both 4 "cut.gguf: GGUF" cut.gguf
done
head -c $((size - 1)) good.gguf >cut.gguf
both 4 "cut.gguf: GGUF tensor" cut.gguf
gguf family.gguf general.architecture=qwen9
both 4 "model type 'qwen9' is not supported (llama" family.gguf
gguf family.gguf general.architecture=
both 4 "general.architecture: key general.architecture is missing" family.gguf
gguf key.gguf llama.block_count=
both 4 "key.gguf: llama.block_count: key llama.block_count is missing" key.gguf
gguf key.gguf llama.block_count=two
both 4 'expected an integer, found string' key.gguf
gguf key.gguf tokenizer.ggml.pre=foo
both 4 "key.gguf: tokenizer.ggml.pre: splitter 'foo' is not supported" key.gguf
gguf key.gguf tokenizer.ggml.model=bar
both 4 "key.gguf: tokenizer.ggml.model: tokenizer 'bar'" key.gguf
gguf key.gguf "tokenizer.chat_template={% if %}"
q show key.gguf
check "a template that can't be read is no error of show" code_is 0
fails 4 "line 1" run key.gguf hi
q run key.gguf --raw hi --max-tokens 1
check "nor of --raw" code_is 0

# Any byte of the header may be any other byte.
cat >flip.py <<'PYTHON'
import subprocess, sys
quern, good, bad = sys.argv[1:4]
data = bytearray(open(good, "rb").read())
state, codes = 1, {}
for _ in range(int(sys.argv[4])):
    state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
    at, value = (state >> 33) % 8000, state >> 25 & 255
    kept, data[at] = data[at], value
    open(bad, "wb").write(data)
    data[at] = kept
    p = subprocess.run([quern, "run", bad, "--raw", "ab", "--max-tokens", "2"],
                       stdin=subprocess.DEVNULL, capture_output=True)
    lines = p.stderr.count(b"\n")
    if p.returncode not in (0, 2, 4, 5) or lines != (p.returncode > 0):
        print(f"byte {at} = {value}: exit {p.returncode}", p.stderr[:2000])
        sys.exit(1)
    codes[p.returncode] = codes.get(p.returncode, 0) + 1
assert codes[4] > 20, codes
PYTHON
check "flipped bytes" python3 flip.py "$quern" good.gguf flip.gguf 150

# ---- what is no model ----

both 4 "expected a .gguf file, a .safetensors file or a directory" flip.py
both 4 "expected a .gguf file" "$tiny/config.json"
both 3 "dir.gguf: no such file" dir.gguf
ln -s /nowhere/x.gguf link.gguf
both 3 "link.gguf: no such file" link.gguf
mkfifo pipe.gguf
both 1 "expected a regular file" pipe.gguf
mkdir folder folder.gguf
both 3 "config.json is missing" folder
both 3 "config.json is missing" folder.gguf

# ---- directories that are wrong ----

wrong() { # CODE TEXT, about ./dir as the caller has changed it
    both "$1" "$2" dir
    fresh
}
fresh
echo '{' >dir/config.json
wrong 4 "dir/config.json: JSON byte 2"
printf '%s' '{"model_type":"llama","model_type":"llama"}' >dir/config.json
wrong 4 "dir/config.json"
python3 -c 'print("[" * 100000)' >dir/config.json
wrong 4 "dir/config.json: JSON byte 128"
printf '{"a":"\377"}' >dir/config.json
wrong 4 "dir/config.json: JSON byte 6"
echo '{"model_type":"qwen9"}' >dir/config.json
wrong 4 "model type 'qwen9' is not supported (llama"
sed -i 's/"hidden_size": 32/"hidden_size": "32"/' dir/config.json
wrong 4 "\$.hidden_size: expected"
sed -i 's/"hidden_size": 32/"hidden_size": 1e30/' dir/config.json
wrong 4 "\$.hidden_size"
sed -i 's/"num_attention_heads": 2/"num_attention_heads": 0/' dir/config.json
wrong 4 "num_attention_heads"
sed -i 's/^{/{"model_file":"code.py",/' dir/config.json
wrong 4 "models that bring their own code are refused"
sed -i 's/^{/{"auto_map":{"x":"code.py"},/' dir/config.json
q run dir hi --max-tokens 1
check "auto_map is ignored" code_is 0
# A token beyond the model's is the model's fault where a text has it.
fresh
python3 - <<'END'
import json
with open("dir/tokenizer.json") as file:
    d = json.load(file)
d["added_tokens"].append({**d["added_tokens"][0], "id": 5000, "content": "<far>", "special": False})
with open("dir/tokenizer.json", "w") as file:
    json.dump(d, file)
END
q run dir --raw hi --max-tokens 1
check "texts without it work" code_is 0
far="the tokenizer has token 5000, '<far>', but the model only 0..331"
fails 4 "$far" run dir --raw "hi<far>"
echo "hi<far>" >far.txt
fails 4 "$far" eval dir --task perplexity --data far.txt
fresh
rm dir/model.safetensors
wrong 3 "dir: no model*.safetensors here"
mv dir/model.safetensors dir/pytorch_model.bin
wrong 4 "quern convert"
rm dir/tokenizer.json
wrong 3 "dir/tokenizer.json: tokenizer.json is missing"
mv dir/tokenizer.json dir/tokenizer.model
wrong 4 "dir/tokenizer.model: a tokenizer in this form is not read"
echo '[]' >dir/tokenizer.json
wrong 4 "dir/tokenizer.json: expected an object"
sed -i 's/"type": *"BPE"/"type": "XPE"/' dir/tokenizer.json
wrong 4 "dir/tokenizer.json: model.type: model 'XPE' is not supported"
echo '[' >dir/tokenizer_config.json
wrong 4 "dir/tokenizer_config.json: JSON byte 2"
echo '{"temperature":7}' >dir/generation_config.json
wrong 4 "dir/generation_config.json: temperature: expected 0..5, found 7"
echo '{"do_sample":"no"}' >dir/generation_config.json
wrong 4 "dir/generation_config.json: do_sample: expected true or false"

# ---- safetensors ----

weights=dir/model.safetensors
printf '\001\002' >$weights
wrong 4 "$weights: safetensors"
printf '\377\377\377\377\377\377\377\377{' >$weights
wrong 4 "$weights: safetensors"
printf '\020\000\000\000\000\000\000\000{"a":' >$weights
wrong 4 "$weights: safetensors"
size=$(wc -c <$weights)
for part in 1 2 20 99; do
    head -c $((size * part / 100)) "$tiny/model.safetensors" >$weights
    wrong 4 "$weights: safetensors"
done
printf x >>$weights
wrong 4 "$weights: safetensors"
sed -i 's/"hidden_size": 32/"hidden_size": 48/' dir/config.json
fails 4 "expected shape [332, 48], found [332, 32]" run dir hi
fresh
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' dir/config.json
fails 4 "9 tensors are missing: model.layers.2.input_layernorm.weight" \
    run dir hi
fresh
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' dir/config.json
fails 4 "9 tensors are not used by this architecture" run dir hi
q run dir hi --lenient-weights --max-tokens 1
check "--lenient-weights goes on" code_is 0
check "with a warning" err_has "warning: 9 tensors are not used"
fresh
echo '{"weight_map":{"model.norm.weight":"../x.safetensors"}}' \
    >dir/model.safetensors.index.json
wrong 4 "dir/model.safetensors.index.json"
echo '{"weight_map":{"model.norm.weight":"a.safetensors"}}' \
    >dir/model.safetensors.index.json
wrong 3 "a.safetensors"

# A name in a file can't write to the terminal or add a line to the message.
python3 - <<'PYTHON'
import json, struct
header = json.dumps({"a\u001b[2J\nb": {"dtype": "F99", "shape": [1],
                                       "data_offsets": [0, 4]}}).encode()
open("dir/model.safetensors", "wb").write(
    struct.pack("<Q", len(header)) + header + b"1234")
PYTHON
both 4 '\x1b[2J\x0ab' dir

finish
