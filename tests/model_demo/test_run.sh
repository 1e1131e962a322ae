#!/bin/sh
# The commands on the demo model: known answers, streaming, signals, limits.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/model_demo/lib.sh
. "$root/tests/model_demo/lib.sh"

# ---- known answers ----

# Each prompt of the goldens through the command line.  A text is compared up
# to the first step at which another token may win.
cat >"$scratch/goldens.py" <<'PYTHON'
import json, subprocess, sys
quern, model, goldens = sys.argv[1:]
cases = json.load(open(goldens, encoding="utf-8"))["cases"]
clear = 0
for case in cases:
    flags = ["--dtype", "f32", "--kv", "f32", "--temperature", "0", "--json",
             "--logprobs", "0", "--max-tokens", str(len(case["greedy_ids"]))]
    if not case["chat"]:
        flags.append("--raw")
    elif case["system"] is not None:
        flags += ["--system", case["system"]]
    p = subprocess.run([quern, "run", model, case["prompt"], *flags],
                       stdin=subprocess.DEVNULL, capture_output=True,
                       check=True)
    d = json.loads(p.stdout)
    assert d["usage"]["prompt_tokens"] == len(case["prompt_ids"]), case["prompt"]
    ids = [t["id"] for t in d["logprobs"]]
    for made, wanted, step in zip(ids, case["greedy_ids"], case["steps"]):
        if step["margin"] < 0.02:
            break
        assert made == wanted, (case["prompt"], made, wanted, d["text"])
        clear += 1
assert clear > 100, clear
PYTHON
check "answers as in the goldens" python3 "$scratch/goldens.py" "$quern" \
    "$model" "$root/tests/vectors/goldens/smollm2_greedy.json"

# ---- streaming ----

cat >"$scratch/stream.py" <<'PYTHON'
import os, subprocess, sys, time
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE)
pieces, first = 0, None
while os.read(p.stdout.fileno(), 65536):
    pieces += 1
    first = first or time.monotonic()
last = time.monotonic()
assert p.wait() == 0
assert pieces >= 10 and last - first > 0.05, (pieces, last - first)
PYTHON
check "text comes as it is made" python3 "$scratch/stream.py" "$quern" run \
    "$model" "Tell me a story." --temperature 0 --max-tokens 40

q run "$model" "Write three lines of emoji and 日本語." --seed 3 --json \
    --stream --max-tokens 80
check "pieces are whole characters" json "len(d) > 20 and
    ''.join(p['text'] for p in d[:-1]) == d[-1]['text']"

# ---- repeating ----

# Two chunks of prompt and some decoding, by one thread and by two.
python3 -c 'print("The sea was calm. " * 150)' >"$scratch/prompt"
q run "$model" --raw -f "$scratch/prompt" --seed 11 --max-tokens 40 --json \
    --threads 1
keep_json
check "the prompt has two chunks" json "d['usage']['prompt_tokens'] > 600"
q run "$model" --raw -f "$scratch/prompt" --seed 11 --max-tokens 40 --json \
    --threads 2
check "a seed gives the same text for any number of threads" json \
    "d['text'] == first['text'] and len(d['text']) > 20"

# ---- limits ----

python3 -c 'print("word " * 9000)' >"$scratch/long"
fails 4 "does not fit the context of 8192" run "$model" -f "$scratch/long"
check "with the length of the prompt" grep -Eq 'prompt of 90[0-9]{2} tokens' \
    "$scratch/err"
fails 2 "--ctx: the model allows at most 8192, found 8193" \
    run "$model" hi --ctx 8193

q run "$model" "Count from 1 to 20." --temperature 0 --stop "7." --json
check "a stop text" json "d['finish_reason'] == 'stop' and
    '6. 6' in d['text'] and '7' not in d['text']"

# ---- the other commands ----

q show "$model" --json
check "show" json "d['architecture'] == 'llama' and d['format'] == 'gguf' and
    d['context'] == 8192 and d['layers'] == 30 and
    d['tokenizer']['tokens'] == 49152 and d['licence'] == 'apache-2.0' and
    d['capabilities'] == ['completion', 'chat']"
q bench "$model" -p 64 -n 8 -r 2 --json
check "bench" json "[c['test'] for c in d] == ['pp64', 'tg8'] and
    all(c['tokens_per_s'] > 1 for c in d)"

# ---- Ctrl-C ----

run python3 "$root/tests/cli/on_terminal.py" -i 1 "$quern" run "$model" \
    "Tell me a long story." --max-tokens 2000 --ignore-eos
check "Ctrl-C: exit 130" code_is 130
check "Ctrl-C: counts on stderr" grep -Eq \
    '^prompt [0-9]+ tokens .* answer [0-9]+ tokens' "$scratch/err"

finish
