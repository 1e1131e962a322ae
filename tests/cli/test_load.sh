#!/bin/sh
# quern bench --server: several clients of an OpenAI server at a time.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
here=$root/tests/cli

serve() { # KIND
    : >"$scratch/log"
    : >"$scratch/port"
    python3 "$here/load_server.py" "$1" "$scratch/log" >"$scratch/port" &
    server=$!
    wait_until [ -s "$scratch/port" ]
    url=http://127.0.0.1:$(cat "$scratch/port")
}

stop() {
    kill "$server"
    wait "$server" 2>/dev/null || true
}

# The requests that the server has seen make the Python expression $1 true; `r`
# is the list of [path, body, how many at work].
requests() {
    python3 - "$scratch/log" "$1" <<'PYTHON'
import json, sys
r = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
if not eval("(" + sys.argv[2] + ")"):
    sys.exit(str(r)[:600])
PYTHON
}

serve stream
q bench --server "$url" some-model --concurrency 1,4 -r 3 -p 20 -n 8 --json
check "two numbers of clients" code_is 0
check "every request is answered" json "[x['answered'] for x in d] == [3, 12]
    and [x['concurrency'] for x in d] == [1, 4] and all(x['errors'] == {}
    for x in d)"
check "tokens are counted" json "[x['tokens'] for x in d] == [24, 96]"
check "times of first tokens" json "all(0.03 <= x['ttft_s']['p50'] <=
    x['ttft_s']['p95'] <= x['ttft_s']['p99'] < 2 for x in d)"
check "and between tokens" json "all(0.005 <= x['inter_token_s']['p50'] <=
    x['inter_token_s']['p95'] <= x['inter_token_s']['p99'] < 2 for x in d)"
check "throughput" json "all(abs(x['tokens'] / x['seconds'] -
    x['tokens_per_s']) < 1e-6 for x in d) and d[1]['tokens_per_s'] >
    d[0]['tokens_per_s']"
check "the machine" json "d[0]['processors'] > 0 and d[0]['cpu'] and
    d[0]['schema'] == 'quern.bench/1'"
check "one to warm up, then three for each client" requests "len(r) == 16"
check "at most so many at a time" requests \
    "max(x[2] for x in r[:4]) == 1 and 2 <= max(x[2] for x in r) <= 4"
check "what is asked" requests "all(x[0] == '/v1/chat/completions' and
    x[1]['stream'] is True and x[1]['max_tokens'] == 8 and
    x[1]['model'] == 'some-model' for x in r)"
check "prompts of so many words, each another from the first on" requests \
    "{len(x[1]['messages'][0]['content'].split()) for x in r} == {20} and
     len({x[1]['messages'][0]['content'].split()[0] for x in r}) == 16"
q bench --server "$url/v1" --concurrency 2 -r 1 -p 4 --warmup 0
check "a table" out_has "clients"
check "with what was seen" grep -q "^2  *2 " "$scratch/out"
q bench --history
check "servers are in the history, too" grep -q \
    "http://127.*  2 clients  [0-9.]* tokens/s  ttft p50 [0-9.]* ms" \
    "$scratch/out"
q bench --server "$url" --concurrency 2 -r 3 -p 4 --progress json
check "requests that are done" err_has '"done":7,"total":7,"unit":"requests"'
stop

serve mixed
q bench --server "$url" --concurrency 3 -r 3 --warmup 0 -p 4 --json
check "errors don't end it" code_is 0
check "and are counted by kind" json \
    "d['errors'] == {'http 503': 3, 'cut short': 3} and d['answered'] == 3"
stop
serve error
q bench --server "$url" --concurrency 1 -r 2 --warmup 0 -p 4 --json
check "nothing is answered" code_is 6
check "it says why" err_has "no request was answered (error event)"
stop
q bench --server "$url" --concurrency 2 -r 1 --warmup 0
check "no server" code_is 6
check "it says so" err_has "no request was answered (connect)"

fails 2 "expected http" bench --server ftp://x
fails 2 "needs" bench "$tiny" --concurrency 4
fails 2 "exclude each other" bench --server "$url" -d 4
fails 2 "concurrency" bench --server "$url" --concurrency 0
fails 2 "expected one number" bench --server "$url" -p 1,2
fails 2 "one name" bench --server "$url" a b
finish
