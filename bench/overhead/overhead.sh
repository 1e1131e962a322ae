#!/bin/sh
# What an operation costs beside its arithmetic, beside MLX, in one run.
#
#   overhead.sh [--build FOLDER] [arguments of quern-bench-overhead]
#
# MLX is the one of the Python package (scripts/venv.sh --bench); its C++
# interface is called, so no interpreter counts on its side.  The shared object
# that does so is compiled once into the environment's folder.
#
# Exit codes: those of quern-bench-overhead, and 6: MLX cannot be had.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
if [ "${1-}" = --build ]; then
    build=$2
    shift 2
fi
if [ -n "${QUERN_BENCH_VENV-}" ]; then
    venv=$QUERN_BENCH_VENV
else
    venv=$("$root/scripts/venv.sh" --bench)
fi

cmake --build "$build" --target quern-bench-overhead >/dev/null

mlx=$("$venv/bin/python" -c '
import importlib.util
print(list(importlib.util.find_spec("mlx").submodule_search_locations)[0])')
peer=$venv/overhead-mlx.so
source=$root/bench/overhead
if [ ! -e "$peer" ] || [ -n "$(find "$source" -newer "$peer")" ]; then
    "${CXX:-c++}" -std=c++20 -O2 -shared -fPIC -o "$peer" "$source/mlx.cpp" \
        -I"$mlx/include" -L"$mlx/lib" -lmlx -Wl,-rpath,"$mlx/lib" || {
        echo "overhead: MLX's interface does not compile" >&2
        exit 6
    }
fi
exec "$build/quern-bench-overhead" "$peer" "$@"
