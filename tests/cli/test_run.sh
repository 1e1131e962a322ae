#!/bin/sh
# quern run on a tiny random model: where prompts come from, what is printed,
# how it ends.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

greedy="--temperature 0 --max-tokens 8"

# Runs with the words after a greedy setting.
run_greedy() {
    # shellcheck disable=SC2086 # a list of flags
    q run "$tiny" $greedy "$@"
}

prompt_tokens() {
    json "d['usage']['prompt_tokens'] == $1"
}

# ---- where the prompt comes from ----

# In the tiny vocabulary each byte of "ab" is a token of its own.
run_greedy --raw --json ab
check "argument" prompt_tokens 2
cp "$scratch/out" "$scratch/argument"
printf ab >"$scratch/prompt"
run_greedy --raw --json -f "$scratch/prompt"
check "file" prompt_tokens 2
# shellcheck disable=SC2086
q_with ab run "$tiny" $greedy --raw --json
check "standard input" prompt_tokens 2
# shellcheck disable=SC2086
q_with ab run "$tiny" $greedy --raw --json -f -
check "standard input as a file" prompt_tokens 2
# shellcheck disable=SC2086
q_with b run "$tiny" $greedy --raw --json a
keep_json
run_greedy --raw --json "$(printf 'a\n\nb')"
check "argument, blank line, standard input" json \
    "d['usage'] == first['usage'] and d['text'] == first['text']"
rm "$scratch/kept"
# shellcheck disable=SC2086
q_with b run "$tiny" $greedy --raw --json --no-stdin ab
check "--no-stdin leaves it out" prompt_tokens 2
# shellcheck disable=SC2086
q_with "" run "$tiny" $greedy --raw --json ab
check "empty standard input adds nothing" prompt_tokens 2

q run "$tiny" ab --json --max-tokens 1
keep_json
same_prompt() {
    json "d['usage'] == first['usage']"
}
printf 'ab\n' >"$scratch/prompt"
q run "$tiny" -f "$scratch/prompt" --json --max-tokens 1
check "the last newline of a file is no part of a message" same_prompt
q_with "$(printf 'ab\r\n.')" run "$tiny" --json --max-tokens 1
check "only the last one" json "d['usage'] != first['usage']"
q_with 'ab
' run "$tiny" --json --max-tokens 1
check "nor that of standard input" same_prompt
rm "$scratch/kept"
run_greedy --raw --json -f "$scratch/prompt"
check "--raw takes it" prompt_tokens 3
printf ab >"$scratch/prompt"

fails 2 "no prompt: standard input is empty" run "$tiny"
fails 2 "no prompt: give it as an argument" run "$tiny" --no-stdin
fails 2 "--file $scratch/prompt and the argument 'x' exclude each other" \
    run "$tiny" x -f "$scratch/prompt"
fails 2 "--file and --stdin exclude each other" \
    run "$tiny" --stdin -f "$scratch/prompt"
fails 3 "$scratch/nowhere" run "$tiny" -f "$scratch/nowhere"
fails 1 "$scratch" run "$tiny" -f "$scratch"
fails 2 "prompt: not valid UTF-8 at byte 1" run "$tiny" "$(printf 'a\377')"
printf 'a\000b' >"$scratch/nul"
fails 2 "prompt: it has a NUL byte" run "$tiny" -f "$scratch/nul"
fails 2 "--system: not valid UTF-8 at byte 0" \
    run "$tiny" hi --system "$(printf '\303')"
fails 2 "the prompt is empty" run "$tiny" --raw ""
q run "$tiny" "" --max-tokens 1
check "an empty message is a message" code_is 0
head -c 600 /dev/zero | tr '\0' z >"$scratch/long"
fails 4 "the prompt of 600 tokens does not fit the context of 256" \
    run "$tiny" --raw -f "$scratch/long"
fails 4 "the prompt of 20 tokens does not fit the context of 10" \
    run "$tiny" --raw --ctx 10 zzzzzzzzzzzzzzzzzzzz

# ---- text ----

run_greedy --raw ab
check "exit 0" code_is 0
check "nothing on stderr" err_empty
cp "$scratch/out" "$scratch/text"
run_greedy --raw ab --no-stream
check "--no-stream prints the same" cmp -s "$scratch/out" "$scratch/text"
run_greedy --raw ab --json
check "JSON has the same text" json \
    "d['text'].encode() == open('$scratch/text', 'rb').read()"
check "no newline of ours behind it" \
    json "not open('$scratch/text', 'rb').read().endswith(b'\\n')"

# ---- JSON ----

check "fields" json "d['schema'] == 'quern.run/1' and set(d) >= {'text',
    'reasoning', 'finish_reason', 'usage', 'timings', 'seed', 'model'}"
check "usage adds up" json "d['usage'] == {'prompt_tokens': 2,
    'completion_tokens': 8, 'total_tokens': 10, 'cached_tokens': 0,
    'reasoning_tokens': 0}"
check "timings are times" json "d['finish_reason'] == 'length' and
    0 < d['timings']['prompt_s'] <= d['timings']['ttft_s'] and
    d['timings']['decode_tokens_per_s'] > 0"
keep_json
run_greedy --raw ab --json --stream
check "pieces and a summary" json "len(d) > 2 and
    ''.join(p['text'] for p in d[:-1]) == first['text'] == d[-1]['text'] and
    all(p['event'] == 'piece' for p in d[:-1]) and
    d[-1]['event'] == 'summary'"
check "every line says what it is" \
    json "all(p['schema'] == 'quern.run/1' for p in d)"

run_greedy --raw ab --json --logprobs 3
check "log probabilities" json "len(d['logprobs']) == 8 and
    all(t['logprob'] < 0 and len(t['top']) == 3 for t in d['logprobs'])"
check "greedy takes the likeliest" json "all(t['id'] == t['top'][0]['id'] and
    t['logprob'] == t['top'][0]['logprob'] >= t['top'][1]['logprob']
    for t in d['logprobs'])"
check "tokens have bytes" json "all(bytes(x['bytes']).decode('utf-8',
    'replace') == x['token'] for t in d['logprobs'] for x in [t] + t['top'])"
check "their text is the answer" json "b''.join(bytes(t['bytes'])
    for t in d['logprobs']).decode('utf-8', 'replace') == d['text']"
keep_json
run_greedy --raw ab --json --logprobs 3 --stream
check "pieces bring all log probabilities" json "[t for p in d[:-1]
    for t in p['logprobs']] == first['logprobs'] == d[-1]['logprobs']"
run_greedy --raw ab --json --logprobs 0
check "--logprobs 0" json "all(t['top'] == [] and t['logprob'] < 0
    for t in d['logprobs'])"

# ---- sampling ----

q run "$tiny" --raw ab --json --seed 7 --max-tokens 20 --ignore-eos
keep_json
check "the seed is reported" json "d['seed'] == 7"
q run "$tiny" --raw ab --json --seed 7 --max-tokens 20 --ignore-eos --threads 1
check "a seed repeats its text" json "d['text'] == first['text']"
q run "$tiny" --raw ab --json --seed 8 --max-tokens 20 --ignore-eos
check "another seed, another text" json "d['text'] != first['text']"
q run "$tiny" --raw ab --json --max-tokens 20 --ignore-eos
keep_json
q run "$tiny" --raw ab --json --max-tokens 20 --ignore-eos \
    --seed "$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["seed"])' "$scratch/kept")"
check "a drawn seed can be given again" json "d['text'] == first['text']"

# ---- where it ends ----

q run "$tiny" --raw ab --json --temperature 0 --max-tokens 100000 --ignore-eos
check "the context ends the answer" json "d['finish_reason'] == 'length' and
    d['usage']['total_tokens'] == 257 or d['usage']['total_tokens'] == 256"
run_greedy --raw ab --json
keep_json
stop=$(python3 -c 'import json, sys
text = json.load(open(sys.argv[1]))["text"]
print(text[-1])' "$scratch/kept")
run_greedy --raw ab --json --stop "never" --stop "$stop"
check "a stop text ends the answer and is cut" json \
    "d['finish_reason'] == 'stop' and
    d['text'] == first['text'][:first['text'].index('$stop')]"
fails 2 "--stop '': expected 1 to 256 bytes" run "$tiny" hi --stop ""
fails 2 "--stop: not valid UTF-8" run "$tiny" hi --stop "$(printf '\377')"
fails 2 "expected 1 to 256 bytes, found 257" \
    run "$tiny" hi --stop "$(head -c 257 "$scratch/long")"
set --
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do
    set -- "$@" --stop "s$n"
done
fails 2 "--stop: expected at most 16, found 17" run "$tiny" hi "$@"

# ---- templates ----

q run "$tiny" hi --json --max-tokens 1
keep_json
q run "$tiny" hi --json --max-tokens 1 --chat-template chatml
check "the tiny model's template is ChatML" json "d['usage'] == first['usage']"
q run "$tiny" hi --json --max-tokens 1 --system x
check "--system is a message more" json \
    "d['usage']['prompt_tokens'] > first['usage']['prompt_tokens']"
printf '%s' '{{ messages[0].content }}' >"$scratch/template"
q run "$tiny" ab --json --max-tokens 1 --chat-template "$scratch/template"
check "--chat-template FILE" prompt_tokens 2
fails 3 "$scratch/nowhere" run "$tiny" hi --chat-template "$scratch/nowhere"
printf '%s' '{% if %}' >"$scratch/template"
fails 4 "line 1" run "$tiny" hi --chat-template "$scratch/template"
printf '%s' '{{ raise_exception("no such talk") }}' >"$scratch/template"
fails 2 "no such talk" run "$tiny" hi --chat-template "$scratch/template"
mkdir "$scratch/bare"
cp "$tiny"/*.json "$tiny"/*.safetensors "$scratch/bare"
sed 's/"chat_template"/"other"/' "$tiny/tokenizer_config.json" \
    >"$scratch/bare/tokenizer_config.json"
fails 4 "the model has no chat template" run "$scratch/bare" hi
check "--raw is hinted at" err_has "hint: --raw"
q run "$scratch/bare" --raw hi --max-tokens 1
check "--raw needs none" code_is 0
q run "$tiny" --json --max-tokens 1 '<|im_end|>'
keep_json
q run "$tiny" --json --max-tokens 1 '<|im_end|>' --trust-content
check "a message can't spell special tokens unless it is trusted" json \
    "d['usage']['prompt_tokens'] < first['usage']['prompt_tokens']"

# ---- --stats, levels, progress ----

run_greedy --raw ab --stats
check "--stats is one line" err_lines 1
check "prompt, answer and seed are in it" grep -Eq \
    '^prompt 2 tokens \(0 cached\), .* answer 8 tokens, .*; seed [0-9]+$' \
    "$scratch/err"
many=$(($(nproc) + 1))
# shellcheck disable=SC2016 # the inner shell's arguments
run sh -c '"$@" 2>&1' sh "$quern" run "$tiny" --raw ab --seed 3 --stats
check "it begins a line of its own beside the answer" \
    grep -q '^prompt 2 tokens' "$scratch/out"
q run "$tiny" hi --max-tokens 1 --threads "$many"
check "more threads than processors: a warning" err_has "warning: $many threads"
check "one" err_lines 1
q run "$tiny" hi --max-tokens 1 --threads "$many" -q
check "-q: no warnings" err_empty
run_greedy --raw ab --progress json
check "progress as JSON" grep -q '^{"event":"progress","phase":"prompt",'\
'"done":2,"total":2,"unit":"tokens","rate":[0-9.]*,"eta_s":0.000}$' \
    "$scratch/err"
run_greedy --raw ab --progress plain
check "what is over in an instant has no progress" err_empty

# ---- backends and types ----

for flags in "--dtype f32 --kv f32" "--dtype f16 --kv f16" "--dtype bf16" \
    "--dtype f32 --kv bf16" "--kv f16 --backend cpu"; do
    # shellcheck disable=SC2086
    run_greedy --raw ab $flags
    check "$flags: exit 0" code_is 0
done
# Wide enough for packed caches; where packing starts does not change what a
# prompt of two tokens begins with.
wide=$(dirname "$tiny")/tiny_h64
for flags in "--kv affine8" "--kv affine4" "--kv turbo" "--kv turbo:k4v4" \
    "--kv affine8 --kv-quant-start 1" "--kv turbo --kv-quant-start 4k"; do
    # shellcheck disable=SC2086
    q run "$wide" $greedy --raw ab $flags
    check "$flags: exit 0" code_is 0
    # shellcheck disable=SC2086
    q run "$wide" $greedy --raw ab $flags --json
    check "$flags: an answer" json "d['usage']['completion_tokens'] > 0"
done
# Layers with a sliding window stay in floats, and the user is told.
cp -r "$wide" "$scratch/windows"
chmod -R u+w "$scratch/windows"
sed -i 's/"model_type": "llama"/"model_type": "mistral", "sliding_window": 5/' \
    "$scratch/windows/config.json"
# shellcheck disable=SC2086
q run "$scratch/windows" $greedy --raw abababab --kv turbo
check "windows: exit 0" code_is 0
check "windows: a warning" err_has \
    "kv turbo:k8v3: 2 of 2 layers have a sliding window and store f16"
cp "$scratch/out" "$scratch/windows.out"
# shellcheck disable=SC2086
q run "$scratch/windows" $greedy --raw abababab --kv f16
check "windows: what float16 gives" cmp "$scratch/out" "$scratch/windows.out"
check "windows: no warning without turbo" err_empty
fails 4 "backend cuda" run "$tiny" hi --backend cuda
fails 4 "backend mlx" run "$tiny" hi --backend mlx

# ---- standard output that fails ----

run sh -c '"$1" run "$2" hi --ignore-eos >&-' sh "$quern" "$tiny"
check "closed stdout: exit 1" code_is 1
check "closed stdout: no message" err_empty
if [ -w /dev/full ]; then
    run sh -c '"$1" run "$2" hi >/dev/full' sh "$quern" "$tiny"
    check "full disk: exit 1" code_is 1
    check "full disk: says why" err_has "standard output: No space left"
fi
run python3 -c 'import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
sys.exit(subprocess.call(sys.argv[1:], stdout=writer))' \
    "$quern" run "$tiny" hi
check "a reader that has left: exit 1" code_is 1
check "a reader that has left: no message" err_empty

finish
