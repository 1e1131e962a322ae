#!/bin/sh
# Compares `quern serve` with llama-server, and with mlx_lm.server where it can be
# installed, on one model and this machine; the flags are those of
# bench/server.py (--help).
#
#   --build-only   build llama-server, print its path, run nothing
#   --no-mlx       without mlx_lm.server
#
# Exit codes: those of server.py; 1 llama-server does not build; 6 its source
# package cannot be had; 7 it is not the expected one.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
mlx=1
for argument; do
    case $argument in
    -h | --help | --llama-server | --llama-server=*)
        exec python3 "$root/bench/server.py" "$@"
        ;;
    --build-only) exec "$root/bench/llama_program.sh" llama-server ;;
    --no-mlx) mlx=0 ;;
    esac
done
llama=$("$root/bench/llama_program.sh" llama-server)
if [ "$mlx" = 1 ]; then
    if venv=$("$root/scripts/venv.sh"); then
        set -- --mlx "$venv/bin/python" "$@"
    else
        echo "server: mlx_lm.server is left out: it can't be installed" >&2
    fi
fi
exec python3 "$root/bench/server.py" --llama-server "$llama" "$@"
