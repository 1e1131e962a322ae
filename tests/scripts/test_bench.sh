#!/bin/sh
# bench/report.py on results of our own: every cell with a target is counted,
# what misses it or was not measured is listed; bench/bench.py keeps the parts
# that it does not measure, and goes on where one can't be.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/scripts/lib.sh
. "$root/tests/scripts/lib.sh"

cat >"$scratch/results" <<'JSON'
{"quick": false,
 "machine": {"processor": "A Processor", "processors": 2, "system": "Linux",
  "memory": 17179869184, "limits": {
   "1": {"read": 15.04e9, "flops": 118e9, "dot8": 236e9},
   "2": {"read": 25e9, "flops": 236e9, "dot8": 0}}},
 "versions": {"quern": "quern 9.9"},
 "parts": {
  "demo": {"date": "2030-01-02 03:04", "commit": "abc", "seconds": 61.2,
   "others": 0.04, "data": {"rounds": 5, "reps": 3, "cells": [
    {"model": "demo.gguf", "peer_model": "demo.gguf", "threads": 2,
     "test": "pp512", "quern": 1149.2, "llama": 330.1, "ratio": 3.504,
     "least": 3.4, "most": 3.6, "share": 0.815},
    {"model": "demo.gguf", "peer_model": "demo.gguf", "threads": 1,
     "test": "tg64", "quern": 90, "llama": 80, "ratio": 1.125, "least": 1.0,
     "most": 1.2}]}},
  "models": {"date": "2030-01-02 03:05", "commit": "abc", "seconds": 5,
   "others": 1.3, "data": {"rounds": 3, "reps": 1, "cells": [
    {"model": "mlx", "peer_model": "q4_0.gguf", "threads": 2, "test": "tg64",
     "quern": 30, "llama": 20, "ratio": 1.5, "least": 1.4, "most": 1.6,
     "peak_bytes": 1345000000, "file_bytes": 1000000000, "kv_bytes": 5000000,
     "share": 0.5}]}},
  "batch": {"date": "d", "commit": "c", "seconds": 1, "others": 0, "data": {
   "rows": [{"model": "demo.gguf", "one": 100, "eight": 310, "ratio": 3.1},
            {"model": "mlx", "missing": "quern: no batches"}]}},
  "memory": {"date": "d", "commit": "c", "seconds": 1, "others": 0, "data": {
   "rows": [{"prompt": 40, "answer": 64, "peak": 120e6, "file": 98e6,
             "kv": 2e6, "llama_peak": 130e6},
            {"prompt": 1471, "answer": 64, "peak": 189e6, "file": 98e6,
             "kv": 35e6}]}},
  "start": {"date": "d", "commit": "c", "seconds": 1, "others": 0, "data": {
   "prompt": 40, "runs": 10,
   "quern": {"median": 0.2, "least": 0.19, "most": 0.3},
   "llama": {"median": 0.5, "least": 0.4, "most": 0.6}}},
  "gemm": {"date": "d", "commit": "c", "seconds": 1, "others": 0, "data": {
   "text": "CPU, avx512, 1 thread: 118 GFLOP/s\nxw M512 N64 K32            f32  103.3 GF  87 %  bf16  110.3 GF  93 %  f16  111.3 GF  94 %  blas  110.5 GF  93 %  f32/blas 0.95  bf16/f32 1.20  f16/f32 1.00\n"}},
  "kernels": {"date": "d", "commit": "c", "seconds": 1, "others": 0,
   "missing": "it broke"}}}
JSON

cell() { # FRAGMENT: a line of the document
    grep -qF -- "$1" "$scratch/out"
}

missed() { # PART CELL MEASURED WANTED: in the list at the front
    sed '/^## Machine/q' "$scratch/out" | grep -qF -- "| $1 | $2 | $3 | $4 |"
}

run python3 "$root/bench/report.py" "$scratch/results"
check "exit 0" [ "$rc" -eq 0 ]
check "counts targets" cell "6 of 12 targets met."
check "machine" cell "A Processor, 2 CPUs, 16.0 GiB, Linux"
check "limits" cell "limits of 1 thread: reading memory 15.0 GB/s, float32 118 GFLOP/s, 8-bit multiply-adds 236 G/s"
check "no limit" cell "8-bit multiply-adds none"
check "a cell that meets" cell \
    "| demo.gguf | prompt of 512 | 2 | 1,149 | 330 | 3.50 | 3.40 to 3.60 | 3 | 82 % |  |"
check "a cell that misses" cell \
    "| demo.gguf | decoding 64 | 1 | 90.0 | 80.0 | 1.12 | 1.00 to 1.20 | 1.4 | ? | **missed** |"
check "its place at the front" missed "The demo model beside llama.cpp" \
    "demo.gguf, decoding 64, 1 thread" 1.12 "at least 1.40"
check "the other file" cell "| 20.0 (q4_0.gguf) | 1.50 |"
check "memory over file" missed "Models of 1B shape beside llama.cpp" \
    "mlx, memory over file" 1.30 "at most 1.10"
check "what was refused" missed "Eight sequences at once" mlx "not measured" \
    "quern: no batches"
check "batch met" cell "| demo.gguf | 100 | 310 | 3.10 | 3 |  |"
check "memory missed" missed Memory "prompt of 1471, answer of 64" "189 MB" \
    "at most 173 MB"
check "start met" not missed "Start to first token" "prompt of 40" "0.200 s" \
    "at most 0.250 s"
check "products" missed "Dense products beside OpenBLAS" \
    "xw, 512 x 32 x 64" 1.20 "at least 1.50"
check "rates of products" cell \
    "| xw, 512 x 32 x 64 | 103.3 GF | 110.3 GF | 111.3 GF | 110.5 GF | 0.95 | 1.20 | **missed** bf16/f32 |"
check "a part that failed" missed "Kernels beside the machine's limits" \
    "all of it" "not measured" "it broke"
check "others on the machine" cell "| 1.30 **not quiet** |"
check "quiet" cell "| 61 | 0.04 |"
check "not quick" not cell "quick run"

# Many cells of a group: one line in the list, each marked in the table.
python3 - "$scratch/results" <<'PY'
import json, sys
results = json.load(open(sys.argv[1]))
gemm = results["parts"]["gemm"]["data"]
line = gemm["text"].splitlines()[1] + "\n"
gemm["text"] += "".join(line.replace("1.20", f"1.{i}0") for i in range(5))
json.dump(results, open(sys.argv[1], "w"))
PY
run python3 "$root/bench/report.py" "$scratch/results"
check "a group in one line" missed "Dense products beside OpenBLAS" \
    "bf16/f32, 1 thread: 6 of 6 cells, marked below" \
    "from 1.00 (xw, 512 x 32 x 64)" "at least 1.50"
check "each is marked" [ "$(grep -c '\*\*missed\*\* bf16/f32' "$scratch/out")" -eq 6 ]

# bench.py with programs of our own.
build=$scratch/build
mkdir "$build"
fake quern <<'FAKE'
echo "quern 9.9"
FAKE
fake kernels <<'FAKE'
echo "dot avx2 $* 1.0 GB/s"
FAKE
cp "$scratch/bin/quern" "$build/quern"
cp "$scratch/bin/kernels" "$build/quern-bench-kernels"
cp "$scratch/results" "$build/bench-quick.json"
measure() {
    run python3 "$root/bench/bench.py" --build "$build" --quick \
        --only "$1" --write "$scratch/document"
}
measure kernels
check "measures: exit 0" [ "$rc" -eq 0 ]
check "measures: shows the part" cell "dot avx2 nodes 1.0 GB/s"
check "measures: writes it" grep -q "^dot avx2 nodes" "$scratch/document"
check "measures: keeps the rest" grep -q "| 1,149 |" "$scratch/document"
check "measures: a quick run" grep -q "quick run" "$scratch/document"

echo 'echo "no kernels here" >&2; exit 3' >"$scratch/bin/kernels"
cp "$scratch/bin/kernels" "$build/quern-bench-kernels"
sed -i '1i #!/bin/sh' "$build/quern-bench-kernels"
measure kernels
check "can't measure: exit 1" [ "$rc" -eq 1 ]
check "can't measure: says why" \
    grep -q "all of it | not measured .*no kernels here" "$scratch/document"
measure everything
check "no such part: exit 2" [ "$rc" -eq 2 ]

finish
