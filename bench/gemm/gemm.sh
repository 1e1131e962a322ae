#!/bin/sh
# Dense matrix products beside OpenBLAS, with one thread and with all.
#
#   bench/gemm/gemm.sh [--build FOLDER] [FILTER...]
#
# OpenBLAS is the library inside NumPy's package, from scripts/venv.sh; OPENBLAS
# names another (such as libopenblas.so.0).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
if [ "${1-}" = --build ]; then
    build=$(cd "$2" && pwd)
    shift 2
fi
library=${OPENBLAS-}
if [ -z "$library" ]; then
    venv=$("$root/scripts/venv.sh" --mlx)
    library=$(find "$venv" -name 'libscipy_openblas64_*' | head -n 1)
fi
[ -n "$library" ] || {
    echo "gemm.sh: NumPy's package here has no OpenBLAS; name one in OPENBLAS" >&2
    exit 1
}
threads=$(nproc)
for n in 1 "$threads"; do
    "$build/quern-bench-gemm" --blas "$library" --threads "$n" "$@"
    echo
    [ "$n" -lt "$threads" ] || break
done
