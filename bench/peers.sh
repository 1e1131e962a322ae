#!/bin/sh
# Compares quern with llama.cpp on one model file and this machine.
#
# llama.cpp is built once, natively, from the source package of
# llama-cpp-python (its vendor/llama.cpp, target llama-bench) and kept in the
# cache folder.  The two then take turns, quern first, for a number of rounds;
# both get the same file, threads and repetitions.  Neighbours in time see the
# same machine, so the ratio of each round is taken before the median: a slow
# minute hurts both sides of a pair and leaves the ratio alone.
#
#   --rounds N           pairs (default 5)
#   --reps N             repetitions of a test within a round (default 3)
#   --threads N          for both (default: the CPUs this process may use)
#   --model FILE         default: the demo model (scripts/fetch-model.sh)
#   --quern PATH         default: build/quern
#   --llama-bench PATH   use this one, build nothing
#   --min-ratio X        exit 9 when a median ratio is below X
#   --build-only         build llama-bench, print its path, run nothing
#
# Exit codes: 0; 1 a program failed or printed something unexpected; 2 usage;
# 3 no such file; 6 the source package cannot be had; 7 it is not the expected
# one; 9 the wanted ratio was not met.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
package=llama-cpp-python
version=$("$root/bench/llama_source.sh" --version)

say() {
    printf 'peers: %s\n' "$*" >&2
}

die() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

rounds=5
reps=3
threads=
model=
quern=$root/build/quern
bench=
min_ratio=0
build_only=0

while [ $# -gt 0 ]; do
    flag=$1
    case $flag in
    --*=*)
        value=${flag#*=}
        flag=${flag%%=*}
        shift
        set -- "$flag" "$value" "$@"
        ;;
    esac
    case $flag in
    --rounds | --reps | --threads | --model | --quern | --llama-bench | \
        --min-ratio)
        [ $# -ge 2 ] || die 2 "$flag needs a value"
        value=$2
        shift 2
        ;;
    --build-only)
        build_only=1
        shift
        continue
        ;;
    -h | --help)
        sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
    *) die 2 "unknown argument '$flag'" ;;
    esac
    case $flag in
    --rounds | --reps | --threads)
        case $value in
        *[!0-9]* | '' | 0*) die 2 "$flag: '$value' is not a count" ;;
        esac
        ;;
    --min-ratio)
        printf '%s\n' "$value" | grep -Eq '^[0-9]+([.][0-9]+)?$' ||
            die 2 "$flag: '$value' is not a ratio"
        ;;
    esac
    case $flag in
    --rounds) rounds=$value ;;
    --reps) reps=$value ;;
    --threads) threads=$value ;;
    --model) model=$value ;;
    --quern) quern=$value ;;
    --llama-bench) bench=$value ;;
    --min-ratio) min_ratio=$value ;;
    esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- llama-bench -----------------------------------------------------------

cache=${XDG_CACHE_HOME:-$HOME/.cache}/quern/peers

build_llama_bench() {
    say "building llama-bench from $package $version, once (a few minutes)"
    "$root/scripts/install-deps.sh" --bench ||
        die 1 "packages are missing"
    "$root/bench/llama_source.sh" "$work" || exit $?
    log=$cache/build.log
    if ! {
        cmake -S "$work/src/vendor/llama.cpp" -B "$work/build" \
            -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
            -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_SERVER=OFF &&
            cmake --build "$work/build" --target llama-bench -j "$(nproc)"
    } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die 1 "llama-bench does not build, see $log"
    fi
    cp "$work/build/bin/llama-bench" "$bench.part"
    mv -f "$bench.part" "$bench"
}

if [ -n "$bench" ]; then
    [ -x "$bench" ] || die 3 "no such program: $bench"
else
    # A native build runs only on processors like the one that made it.
    cpu=$( (uname -m && grep -m 2 -E '^(model name|flags|Features)' \
        /proc/cpuinfo) 2>/dev/null | cksum | cut -d ' ' -f 1)
    bench=$cache/llama-bench-$version-$cpu
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock 9
    [ -x "$bench" ] || build_llama_bench 9>&-
    exec 9>&-
fi
if [ "$build_only" = 1 ]; then
    printf '%s\n' "$bench"
    exit 0
fi

# --- the runs --------------------------------------------------------------

[ -x "$quern" ] || die 3 "no such program: $quern"
[ -n "$model" ] || model=$("$root/scripts/fetch-model.sh")
[ -f "$model" ] || die 3 "no such file: $model"
[ -n "$threads" ] || threads=$(nproc)

# one NAME ROUND COMMAND...: appends what the command prints to $work/NAME,
# each object on a line of its own behind the round's number.
one() {
    name=$1
    round=$2
    shift 2
    "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || {
        code=$?
        tail -n 5 "$work/stderr" >&2
        die 1 "round $round: $name failed ($code): $*"
    }
    sed -n "s/^{/$round\t{/p" "$work/stdout" >>"$work/$name"
}

# Before the first pair, so that neither side pays for reading the file.
cat "$model" >/dev/null

round=1
while [ "$round" -le "$rounds" ]; do
    say "round $round of $rounds"
    one quern "$round" "$quern" bench "$model" -p 512 -n 64 -r "$reps" \
        --threads "$threads" --json
    one llama "$round" "$bench" -m "$model" -p 512 -n 64 -r "$reps" \
        -t "$threads" -o jsonl
    round=$((round + 1))
done

# --- the table -------------------------------------------------------------

echo "model    $(basename "$model")  sha256 $(sha256sum <"$model" | cut -c 1-16)"
echo "machine  $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)," \
    "$(nproc) CPUs, $(uname -srm)"
echo "setup    $threads threads, $rounds rounds of $reps repetitions, in turns"
python3 - "$work/quern" "$work/llama" "$rounds" "$min_ratio" <<'PY'
import json
import statistics
import sys

quern_file, llama_file, rounds, min_ratio = sys.argv[1:]
rounds, min_ratio = int(rounds), float(min_ratio)


def read(path, cell):
    """Tokens per second of each test: one value for each round, in order."""
    out = {}
    for line in open(path):
        number, text = line.split("\t", 1)
        test, rate = cell(json.loads(text))
        out.setdefault(test, {})[int(number)] = float(rate)
    return out


def llama_cell(row):
    prompt, made = row["n_prompt"], row["n_gen"]
    return f"pp{prompt}" if prompt else f"tg{made}", row["avg_ts"]


def fail(text):
    sys.exit("peers: " + text)


try:
    quern = read(quern_file, lambda row: (row["test"], row["tokens_per_s"]))
    llama = read(llama_file, llama_cell)
except (KeyError, TypeError, ValueError, OSError) as problem:
    fail(f"unexpected output: {problem!r}")

print(f"{'test':<8}{'quern tok/s':>14}{'llama.cpp tok/s':>18}"
      f"{'ratio':>8}   lowest..highest")
missed = []
for test in ("pp512", "tg64"):
    ours, theirs = quern.get(test, {}), llama.get(test, {})
    if len(ours) != rounds or len(theirs) != rounds:
        fail(f"{test}: {len(ours)} and {len(theirs)} results, "
             f"expected {rounds} of each")
    if min(theirs.values()) <= 0:
        fail(f"{test}: llama-bench reports no speed")
    ratios = [ours[r] / theirs[r] for r in sorted(ours)]
    ratio = statistics.median(ratios)
    print(f"{test:<8}{statistics.median(ours.values()):>14.1f}"
          f"{statistics.median(theirs.values()):>18.1f}{ratio:>8.3f}"
          f"   {min(ratios):.3f}..{max(ratios):.3f}")
    if ratio < min_ratio:
        missed.append(f"{test} {ratio:.3f}")
if missed:
    print(f"peers: below the wanted ratio {min_ratio:g}: {', '.join(missed)}",
          file=sys.stderr)
    sys.exit(9)
PY
