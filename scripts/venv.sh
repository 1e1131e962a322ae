#!/bin/sh
# Makes the Python environment that tests and benches use to compare quern
# with mlx-lm, transformers and others, and prints its folder.
#
#   venv.sh [--bench | --mlx | --goldens | --sdk] [FOLDER]
#                                          default build/venv, or
#                                          build/venv-bench and so on
#
# --bench makes another one, for bench/ops and bench/overhead: MLX and PyTorch
# from scripts/requirements-bench.txt, some gigabytes.  --mlx makes the small
# one of the differential test (tests/differential), --goldens that of
# tools/goldens: PyTorch, transformers and mlx-lm, --sdk that of tests/sdk: the
# packages of OpenAI and Anthropic.
#
# Versions are pinned in scripts/requirements.txt.  A folder that already
# holds exactly these is left alone; one made from another list is brought up
# to date.  `make check` uses that of --mlx where it can be had.  PYTHON names the interpreter
# (default python3, 3.10 or newer).
#
# Exit codes: 1 local failure, 2 usage, 6 the packages cannot be had.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
name=requirements.txt
folder=venv
size='400 MB'

if [ "${1-}" = --bench ]; then
    name=requirements-bench.txt
    folder=venv-bench
    size='6 GB'
    shift
elif [ "${1-}" = --mlx ]; then
    name=requirements-mlx.txt
    folder=venv-mlx
    size='130 MB'
    shift
elif [ "${1-}" = --goldens ]; then
    name=requirements-goldens.txt
    folder=venv-goldens
    size='6 GB'
    shift
elif [ "${1-}" = --sdk ]; then
    name=requirements-sdk.txt
    folder=venv-sdk
    size='60 MB'
    shift
fi
wanted=$root/scripts/$name

case ${1-} in
-h | --help)
    echo "usage: scripts/venv.sh [--bench | --mlx | --goldens | --sdk] [FOLDER]"
    exit 0
    ;;
-*)
    echo "venv: unknown option '$1'" >&2
    exit 2
    ;;
esac
if [ $# -gt 1 ]; then
    echo "venv: one folder at most" >&2
    exit 2
fi
dir=${1:-$root/build/$folder}

# Written last, so an interrupted run is noticed and finished by the next.
stamp=$dir/.requirements

if [ -x "$dir/bin/python" ] && cmp -s "$wanted" "$stamp"; then
    printf '%s\n' "$dir"
    exit 0
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "venv: $python cannot make environments:" \
        "run scripts/install-deps.sh" >&2
    exit 1
fi

echo "venv: installing scripts/$name in $dir ($size)" >&2
mkdir -p "$(dirname "$dir")"
"$python" -m venv "$dir" >&2
rm -f "$stamp"
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check \
    --retries 2 \
    --requirement "$wanted" >&2 || {
    echo "venv: the packages cannot be installed" >&2
    exit 6
}
cp "$wanted" "$stamp"
printf '%s\n' "$dir"
