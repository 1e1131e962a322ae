#!/bin/sh
# The examples of README.md and docs/*.md do what they show.  They run in a
# folder with the demo model (model.gguf) and a model directory (model-dir),
# with the build's programs, libraries and headers as if installed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/model_demo/lib.sh
. "$root/tests/model_demo/lib.sh"
build=${BUILD_DIR:-$root/build}
compiler=$(command -v "${CC:-cc}")

work=$scratch/work
mkdir -p "$work" "$scratch/pkgconfig" "$scratch/.cache/quern/models"
ln -s "$model" "$work/model.gguf"
ln -s "$model" "$scratch/.cache/quern/models/$(basename "$model")"
ln -s "$tiny" "$work/model-dir"
ln -s "$build" "$work/build"
ln -s "$root/packaging" "$work/packaging"
ln -s "$quern" "$scratch/bin/quern"

# Installed, a library is found by pkg-config; here it is the build's.
for library in quern mlxc; do
    cat >"$scratch/pkgconfig/$library.pc" <<PC
Name: $library
Description: $library
Version: 0
Libs: -L$build -l$library -Wl,-rpath,$build
Cflags: -I$root/include
PC
done
fake cc <<CC
exec "$compiler" -Wall -Wextra -Werror "\$@"
CC

# As root in a container, on few processors, on one machine.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp

# A hub with one model, and an empty cache.
mkdir "$scratch/hub"
printf '{"root":"%s","repo":"acme/tiny-llama"}' "$tiny" \
    >"$scratch/hub/control.json"
python3 "$root/tests/support/hub_server.py" "$scratch/hub" &
hub=$!
# And a server with the demo model.
"$quern" serve "$model" --port 0 --ready-fd 3 3>"$scratch/port" \
    2>"$scratch/serve.log" &
server=$!
trap 'kill $hub $server; rm -rf "$scratch"' EXIT
wait_until [ -f "$scratch/hub/url" ]
HF_ENDPOINT=$(cat "$scratch/hub/url")
export HF_ENDPOINT QUERN_CACHE="$scratch/cache"
wait_until [ -s "$scratch/port" ]
export SERVER="http://127.0.0.1:$(cat "$scratch/port")"

cd "$work"
export PKG_CONFIG_PATH="$scratch/pkgconfig"
export PATH="$scratch/bin:$PATH"
check "examples" python3 "$root/tests/docs/snippets.py" \
    "$root"/README.md "$root"/docs/*.md
finish
