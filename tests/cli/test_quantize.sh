#!/bin/sh
# quern quantize by a text: widths for a number of bits per weight, and scales
# of columns (awq).  test_convert.sh has the rest of the command.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

text=$scratch/text
for word in one house many water road letter; do
    printf 'The %s was there before, and "%s" is what they called it: 12%s.\n' \
        "$word" "$word" "$word"
done >"$text"

# divergence MODEL SOURCE: the mean over the text.
divergence() {
    "$quern" eval "$1" --task kl --ref "$2" --data "$text" --json --dtype f32 \
        --no-record | python3 -c '
import json, sys
print(json.load(sys.stdin)["metrics"]["kl"])'
}

less() { # A B: A < B
    python3 -c 'import sys
a, b = map(float, sys.argv[1:])
sys.exit(not a < b and f"{a} is not below {b}")' "$1" "$2"
}

same() {
    cmp -s "$1/model.safetensors" "$2/model.safetensors"
}

# ---- a number of bits ----

q quantize "$tiny" "$scratch/six" --group-size 32 --target-bpw 6 --json
check "the built-in text" code_is 0
check "as many bits as asked for" json "abs(d['bits_per_weight'] - 6) <= 0.05"
for target in 4.2 5.15 7.5 10.1; do
    q quantize "$tiny" "$scratch/t$target" --group-size 32 --target-bpw \
        "$target" --calibration "$text" --json
    check "$target bits" json "abs(d['bits_per_weight'] - $target) <= 0.05"
    [ "$target" != 5.15 ] || check "widths differ" json \
        "len({m['form'] for m in d['modules']}) > 2"
done
check "it runs" [ -n "$("$quern" run "$scratch/t5.15" Hello --raw \
    --max-tokens 4 --ignore-eos | tr -d "\000")" ]
q quantize "$tiny" "$scratch/three" --group-size 32 --bits 3 --json
check "one width has as many bits as a target above" json \
    "abs(d['bits_per_weight'] - 5.15) < 0.05"
check "chosen widths are better than one" less \
    "$(divergence "$scratch/t5.15" "$tiny")" \
    "$(divergence "$scratch/three" "$tiny")"
check "more bits are better" less "$(divergence "$scratch/t7.5" "$tiny")" \
    "$(divergence "$scratch/t5.15" "$tiny")"
q quantize "$tiny" "$scratch/again" --group-size 32 --target-bpw 5.15 \
    --calibration "$text" --override '*.v_proj=8' --json
check "overrides stay what they are" json \
    "('v_proj', 'affine 8-bit g32', 2) in
     {(m['kind'], m['form'], m['count']) for m in d['modules']}"
q quantize "$tiny" "$scratch/again" --group-size 32 --target-bpw 5.15 \
    --calibration "$text" --overwrite
check "the same each time" same "$scratch/again" "$scratch/t5.15"

fails 4 "12 bits per weight can't be reached: 4.15 to 10.12 can" quantize \
    "$tiny" "$scratch/x" --group-size 32 --target-bpw 12 --calibration "$text"
fails 4 "can't be reached" quantize "$tiny" "$scratch/x" --group-size 32 \
    --target-bpw 3
fails 2 "exclude each other" quantize "$tiny" "$scratch/x" --target-bpw 4 \
    --bits 4
fails 2 "exclude each other" quantize "$tiny" "$scratch/x" --target-bpw 4 \
    --recipe mixed_3_6
fails 2 "needs mode affine" quantize "$tiny" "$scratch/x" --target-bpw 4 \
    --mode mxfp4
fails 2 "for a target or method awq" quantize "$tiny" "$scratch/x" \
    --calibration "$text"
fails 2 "--target-bpw: needs quantize" convert "$tiny" "$scratch/x" \
    --target-bpw 4
fails 3 "" quantize "$tiny" "$scratch/x" --target-bpw 6 --calibration \
    "$scratch/none"
: >"$scratch/empty"
fails 4 "has no tokens" quantize "$tiny" "$scratch/x" --target-bpw 6 \
    --group-size 32 --calibration "$scratch/empty"
check "nothing is left of what failed" [ ! -e "$scratch/x" ]

# ---- awq ----

# A few channels with large values, as trained models have them.
python3 - "$tiny" "$scratch/peaks" <<'PYTHON'
import json, os, shutil, struct, sys
source, target = sys.argv[1:]
shutil.copytree(source, target)
os.chmod(target, 0o755)
path = target + "/model.safetensors"
os.chmod(path, 0o644)
data = bytearray(open(path, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
for name, t in header.items():
    if "layernorm" in name:
        assert t["dtype"] == "F32"
        for i in (3, 17, 30):
            at = 8 + size + t["data_offsets"][0] + 4 * i
            value = struct.unpack("<f", data[at:at + 4])[0]
            data[at:at + 4] = struct.pack("<f", 12 * value)
open(path, "wb").write(data)
PYTHON
q quantize "$scratch/peaks" "$scratch/peaks-rtn" --group-size 32 --bits 4 \
    --method rtn --override '*embed_tokens=none'
check "rtn" code_is 0
q quantize "$scratch/peaks" "$scratch/peaks-awq" --group-size 32 --bits 4 \
    --method awq --calibration "$text" --override '*embed_tokens=none'
check "awq" code_is 0
check "awq is nearer to the source" less \
    "$(divergence "$scratch/peaks-awq" "$scratch/peaks")" \
    "$(divergence "$scratch/peaks-rtn" "$scratch/peaks")"
check "a plain affine model" python3 -c "
import json
a = json.load(open('$scratch/peaks-awq/config.json'))['quantization']
assert a['bits'] == 4 and a['group_size'] == 32 and a['mode'] == 'affine', a"
# What is scaled and what is divided must belong together: wrong factors would
# make another model, however many bits there are.
q quantize "$scratch/peaks" "$scratch/eight" --group-size 32 --bits 8 \
    --method awq --calibration "$text" --override '*embed_tokens=none'
check "with 8 bits it is the source again" less \
    "$(divergence "$scratch/eight" "$scratch/peaks")" 0.05
check "although norms are others" python3 - "$scratch" <<'PYTHON'
import json, struct, sys
def norm(folder):
    data = open(sys.argv[1] + folder + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    t = json.loads(data[8:8 + size])["model.layers.0.input_layernorm.weight"]
    a, b = (8 + size + x for x in t["data_offsets"])
    return data[a:b]
assert norm("/eight") != norm("/peaks")
PYTHON
q quantize "$scratch/peaks" "$scratch/both" --group-size 32 --target-bpw 6 \
    --method awq --calibration "$text" --json
check "both" json "abs(d['bits_per_weight'] - 6) <= 0.05"

fails 2 "awq needs mode affine" quantize "$tiny" "$scratch/x" --method awq \
    --mode mxfp8
cp -r "$tiny" "$scratch/other"
chmod -R u+w "$scratch/other"
sed -i 's/"llama"/"olmo2"/' "$scratch/other/config.json"
fails 4 "does not know the norms of olmo2" quantize "$scratch/other" \
    "$scratch/x" --method awq --group-size 32
check "nothing is left of it" [ ! -e "$scratch/x" ]
finish
