#!/bin/sh
# bench/server.sh with servers of our own: both get the same model, threads,
# context and rows, no prompt is known to a server but the prefix, and every
# target is told with met or MISSED.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/scripts/lib.sh
. "$root/tests/scripts/lib.sh"

for name in quern llama; do
    fake $name <<FAKE
FAKE_NAME=$name exec python3 -B "$root/tests/scripts/fake_chat_server.py" "\$@"
FAKE
done
echo weights >"$scratch/model.gguf"
FAKE_LOG=$scratch/calls
export FAKE_LOG

measure() {
    : >"$FAKE_LOG"
    run "$root/bench/server.sh" --build "$scratch/bin" --llama-server \
        "$scratch/bin/llama" --model "$scratch/model.gguf" --threads 3 \
        --parallel 5 --quick "$@"
}

measure --clients 1,3 --write "$scratch/document"
check "exit 0" [ "$rc" -eq 0 ]
check "quern's flags" grep -q "^quern serve $scratch/model.gguf --port [0-9]*\
 --threads 3 --ctx 2048 --parallel 5 --prefix-cache 256MiB" "$FAKE_LOG"
check "the same for llama-server" grep -q "^llama -m $scratch/model.gguf .*\
-t 3 -tb 3 -c 10240 -np 5 --cache-ram 256" "$FAKE_LOG"
check "as many requests" [ "$(grep -c '^quern [0-9]* [0-9]* None' "$FAKE_LOG")" \
    -eq "$(grep -c '^llama [0-9]' "$FAKE_LOG")" ]
check "a prefix of 500 words" grep -q "^llama 500 8 None" "$FAKE_LOG"
check "overhead: once more with a thread less" grep -q "^quern serve \
$scratch/model.gguf --port [0-9]* --threads 2 --ctx 2048" "$FAKE_LOG"
check "overhead: nothing is kept" grep -q "^quern 47 64 False" "$FAKE_LOG"
check "rows for each number of clients" \
    [ "$(grep -c '^| tokens/s, [13] clients' "$scratch/document")" -eq 2 ]
check "shows what it writes" grep -q "^| tokens/s, 3 clients" "$scratch/out"
check "counts targets" grep -q " of 7 targets met; $scratch/document" \
    "$scratch/out"

FAKE_FAILS=llama measure --clients 1
check "a request fails: exit 1" [ "$rc" -eq 1 ]
check "a request fails: whose" grep -q "llama: 1 requests failed.*500" \
    "$scratch/err"
measure --llama-server "$scratch/missing"
check "no such program: exit 3" [ "$rc" -eq 3 ]
run "$root/bench/llama_program.sh" llama-run
check "no such target: exit 2" [ "$rc" -eq 2 ]

# What the document says of numbers that are known.
python3 - >"$scratch/results" <<'PY'
import json
def server(rate, first, start, size):
    load = {"tokens_per_s": rate, "ttft_ms_p50": first, "gap_ms_p50": 5}
    return {"start": {"seconds": start}, "load 1": load, "load 8": load,
            "prefix": load, "memory": {"bytes": size}}
def over(share):
    return {"overhead": share, "request_s": 1 + share, "bench_s": 1,
            "prompt": 90}
quern = {**server(150, 30, .31, 130e6), "overhead": over(.02),
         "overhead beside": over(.005)}
print(json.dumps({
    "quick": False, "date": "d", "commit": "c", "seconds": 9, "others": 0.5,
    "rounds": [{"quern": quern, "llama": server(rate, 60, 1, 200e6)}
               for rate in (50, 100, 1000)],
    "mlx": {"missing": "it is not there"},
    "machine": {"processor": "P", "processors": 2, "system": "S",
                "memory": 2**34, "limits": {}}, "versions": {},
    "setup": {"model": "m", "threads": 2, "context": 2048, "parallel": 16,
              "kept_mib": 256, "rounds": 3}}))
PY
run python3 "$root/bench/server_report.py" "$scratch/results"
check "report: exit 0" [ "$rc" -eq 0 ]
line() {
    grep -qxF -- "$1" "$scratch/out"
}
check "the median of the ratios, met" line "| tokens/s, 1 clients | 150.0 |\
 100.0 | 1.50 | 0.15 to 3.00 | at least 1.30 | met |"
check "missed" line "| tokens/s, 8 clients | 150.0 | 100.0 | 1.50 |\
 0.15 to 3.00 | at least 2.00 | **MISSED** |"
check "less is better" line "| first token, 8 clients, ms | 30.0 | 60.0 |\
 0.50 | 0.50 to 0.50 | at most 0.60 | met |"
check "no target" line "| between tokens, 1 clients, ms | 5.0 | 5.0 | 1.00 |\
 1.00 to 1.00 |  |  |"
check "bytes" line "| resident, MB | 130 | 200 | 0.65 | 0.65 to 0.65 |\
 at most 0.60 | **MISSED** |"
check "start" grep -q "| 0.31 | at most 0.30 | \*\*MISSED\*\* |" "$scratch/out"
check "overhead" grep -q "| 2.0 | at most 3.0 | met |" "$scratch/out"
check "overhead with a thread less: no target" \
    grep -q "a thread less.* | 0.5 |  |  | 90 tokens" "$scratch/out"
check "how many" line "4 of 8 targets met."
check "not quiet" grep -qF "**not quiet**" "$scratch/out"
check "what is not measured" line "Not measured: it is not there."

finish
