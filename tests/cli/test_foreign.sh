#!/bin/sh
# Models that AWQ, GPTQ and compressed-tensors packed say what their values in
# floats say, loaded as they are and converted.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

echo "Hello there, this is a short text of some words, and then it ends." \
    >"$scratch/text"
for kind in awq gptq int4 nvfp4; do
    packed=$scratch/$kind plain=$scratch/$kind-plain
    python3 "$root/tests/cli/make_foreign.py" "$tiny" $kind "$packed" "$plain"
    q eval "$packed" --task kl --ref "$plain" --data "$scratch/text" --json \
        --dtype f32 --kv f32
    check "$kind" code_is 0
    check "$kind: the same probabilities" json \
        "d['metrics']['kl'] < 1e-7 and d['metrics']['top1'] == 1"
    q convert "$packed" "$scratch/mlx" --overwrite
    check "$kind: converted" code_is 0
    q eval "$scratch/mlx" --task kl --ref "$plain" --data "$scratch/text" \
        --json --dtype f32 --kv f32
    check "$kind: the same after that" json \
        "d['metrics']['kl'] < 1e-7 and d['metrics']['top1'] == 1"
    q run "$packed" Hello --raw --temperature 0 --max-tokens 4 --ignore-eos
    check "$kind: with products in 8 bits" code_is 0
done

q show "$scratch/gptq"
check "show counts what is packed" grep -Eq \
    '^quantization +affine 4-bit g32, .*' "$scratch/out"
check "and its parameters" grep -Eq '^parameters +29.2 k ' "$scratch/out"
python3 "$root/tests/cli/make_foreign.py" "$tiny" gptq-act "$scratch/act" \
    "$scratch/act-plain"
fails 4 "act-order is not supported" run "$scratch/act" Hello --raw
for change in 's/"bits": 4/"bits": 3/' 's/"group_size": 32/"group_size": 16/'; do
    rm -rf "$scratch/bad"
    cp -r "$scratch/gptq" "$scratch/bad"
    sed "$change" "$scratch/gptq/config.json" >"$scratch/bad/config.json"
    fails 4 "expected 4 bits in groups of 32, 64 or 128" run "$scratch/bad" Hello --raw
done
sed 's/"gptq"/"magic"/' "$scratch/gptq/config.json" >"$scratch/bad/config.json"
fails 4 "quantization method 'magic' is not supported" run "$scratch/bad" Hello --raw
sed 's/"gptq"/"awq"/' "$scratch/gptq/config.json" >"$scratch/bad/config.json"
fails 4 "does not divide" run "$scratch/bad" Hello --raw

finish
