# A thin door to CMake: each target is one or two commands.
BUILD ?= build
JOBS ?= $(shell nproc)

# What bench/ops/ops.py is told besides, such as --filter softmax.
OPS_ARGS ?=

.PHONY: build demo check check-differential check-sanitizers check-arm check-tokenizers bench bench-quick bench-programs bench-demo bench-models bench-batch bench-memory bench-start bench-kernels bench-ops bench-accuracy bench-embeddings bench-overhead bench-gemm bench-kv bench-text bench-convert bench-server fuzz format install clean deps

build: deps
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release
	cmake --build $(BUILD) -j $(JOBS)

deps:
	@scripts/install-deps.sh

demo: build
	@scripts/demo.sh $(BUILD)/quern

check: build
	@scripts/fetch-model.sh >/dev/null || [ -n "$$QUERN_SKIP_MODEL_TESTS" ] || \
	  echo "make check: no demo model; the tests labelled 'model' will fail"
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	@tests/differential/check.sh $(BUILD) $(JOBS)

# The same calls of libmlxc.so and of MLX (tests/differential); part of check.
check-differential: build
	@tests/differential/check.sh $(BUILD) $(JOBS)

# The kernels and their tests for aarch64, under qemu-user.
check-arm:
	@scripts/check-arm.sh $(BUILD)/arm

# Tokenizers beside those of their authors (docs/tokenizers.md), TOKENIZER_TEXTS
# random texts for each kind and splitter; half an hour.
TOKENIZER_TEXTS ?= 20000
TOKENIZER_SEED ?= 1
TOKENIZER_ARGS = --count $(TOKENIZER_TEXTS) --seed $(TOKENIZER_SEED)
check-tokenizers: deps
	venv=$$(scripts/venv.sh) && \
	  "$$venv/bin/python" tests/tools/compare_tokenizers.py $(TOKENIZER_ARGS) --kinds && \
	  "$$venv/bin/python" tests/tools/compare_splitters.py $(TOKENIZER_ARGS) && \
	  "$$venv/bin/python" tests/tools/compare_gguf_tokenizers.py $(TOKENIZER_ARGS)

# The unit tests under ASan + UBSan, then under TSan.
check-sanitizers: deps
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(JOBS)

# Everything that has a target, beside the machine's limits; a quarter of an hour
# on a quiet machine.  Writes docs/benchmarks.md.  PARTS (bench/parts.py)
# measures those again and leaves the others as they were; bench-quick shows a
# rough picture and writes build/benchmarks-quick.md.
PARTS ?=
BENCH = python3 bench/bench.py --build $(BUILD)
BENCH_TARGETS = quern-bench-kernels quern-bench-meters quern-bench-gemm

bench: bench-programs
	$(BENCH) $(if $(PARTS),--only $(PARTS)) --write docs/benchmarks.md

bench-quick: bench-programs
	$(BENCH) $(if $(PARTS),--only $(PARTS)) --quick --write $(BUILD)/benchmarks-quick.md

# One part, shown only.
BENCH_PARTS = demo models batch memory start kernels
$(BENCH_PARTS:%=bench-%): bench-%: bench-programs
	$(BENCH) --only $*

bench-programs: build
	cmake --build $(BUILD) -j $(JOBS) --target $(BENCH_TARGETS)

# Every operation beside MLX and PyTorch; what an operation costs at least.
bench-ops: build
	@scripts/install-deps.sh --bench
	cmake --build $(BUILD) --target quern-bench-meters
	venv=$$(scripts/venv.sh --bench) && \
	  "$$venv/bin/python" bench/ops/ops.py --build $(BUILD) $(OPS_ARGS)

# Each compute mode, and llama.cpp, beside float64 arithmetic (docs/accuracy.md).
bench-accuracy: build
	cmake --build $(BUILD) --target quern-bench-logits
	venv=$$(scripts/venv.sh) && llama=$$(bench/accuracy/llama.sh) && \
	  "$$venv/bin/python" bench/accuracy/accuracy.py --build $(BUILD) \
	  --llama-logits "$$llama" $(ACCURACY_ARGS)

# Vectors of texts beside float64 arithmetic and sentence-transformers;
# EMBEDDINGS_ARGS: --texts N, --write docs/accuracy.md.
bench-embeddings: build
	venv=$$(scripts/venv.sh --goldens) && \
	  "$$venv/bin/python" bench/accuracy/embeddings.py --build $(BUILD) $(EMBEDDINGS_ARGS)

# Dense products beside OpenBLAS; GEMM_ARGS: --quick, parts of rows' names.
bench-gemm: build
	cmake --build $(BUILD) --target quern-bench-gemm
	bench/gemm/gemm.sh --build $(BUILD) $(GEMM_ARGS)

# Packed KV caches and token masks beside this machine's memory; fails where a
# line misses its limit.  KV_ARGS: attention, tokens, or a number of tokens.
bench-kv: build
	cmake --build $(BUILD) --target quern-bench-kv
	$(BUILD)/quern-bench-kv $(KV_ARGS)

# Tokenizers beside the package `tokenizers` (docs/speed.md).
bench-text: build
	cmake --build $(BUILD) --target quern-bench-text
	venv=$$(scripts/venv.sh) && model=$$(scripts/fetch-model.sh) && \
	  "$$venv/bin/python" bench/text.py --build $(BUILD) --model "$$model"

# The memory of quern convert for a model of 2 GB, beside its bound; 6 GB of disk.
bench-convert: build
	python3 bench/convert.py --build $(BUILD)

# `quern serve` beside llama-server and mlx_lm.server, a quarter of an hour
# on a quiet machine.  Writes docs/benchmarks-server.md; SERVER_ARGS=--quick shows
# a rough picture.
SERVER_ARGS ?= --write docs/benchmarks-server.md
bench-server: build
	cmake --build $(BUILD) --target quern-bench-meters
	bench/server.sh --build $(BUILD) $(SERVER_ARGS)

bench-overhead: build
	@scripts/install-deps.sh --bench
	bench/overhead/overhead.sh --build $(BUILD)

# FUZZ_SECONDS for each target; corpora grow in build/libfuzzer/corpus.  Then random
# programs over the C ABI, FUZZ_CALLS calls with and without enough memory.
FUZZ_SECONDS ?= 60
FUZZ_CALLS ?= 1000000
FUZZ_SEED ?= 1
fuzz:
	@scripts/install-deps.sh --dev
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	fuzz/run.sh build/libfuzzer $(FUZZ_SECONDS)
	build/libfuzzer/fuzz/abi --calls $(FUZZ_CALLS) --seed $(FUZZ_SEED)
	build/libfuzzer/fuzz/abi --calls $(FUZZ_CALLS) --seed $(FUZZ_SEED) --no-memory

format:
	@scripts/install-deps.sh --dev
	git ls-files '*.c' '*.h' '*.inc' | xargs clang-format -i

install: build
	cmake --install $(BUILD)

clean:
	cmake --build $(BUILD) --target clean
