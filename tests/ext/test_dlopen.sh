#!/bin/sh
# test_dlopen.sh: the form that carries no engine.  Builds quern with
# -DQUERN_ENGINE=dlopen and checks that it gives the same answer over our
# libmlxc as the usual build, that each row of the resolution table works, and
# that the version gate refuses and accepts.
#
# QUERN_BUILD (default: build) has quern and libmlxc.so.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${QUERN_BUILD:-$root/build}
model=$root/tests/vectors/cases/fixtures/models/tiny
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

passed=0
failed=0
check() { # NAME EXPECTED FOUND
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n    expected %s\n    found    %s\n' "$1" "$2" "$3"
    fi
}

{ cmake -S "$root" -B "$scratch/b" -DCMAKE_BUILD_TYPE=Debug \
    -DQUERN_ENGINE=dlopen -DQUERN_TESTS=OFF \
    -DCMAKE_INSTALL_PREFIX="$scratch/usr" &&
    cmake --build "$scratch/b" --target quern -j 2; } >"$scratch/log" 2>&1 ||
    { tail -20 "$scratch/log"; exit 1; }
dlopen=$scratch/b/quern
mkdir "$scratch/bin"
cp "$dlopen" "$scratch/bin/quern"

answer() { # QUERN
    "$1" run "$model" "Hello" --temperature 0 --max-tokens 12 --ignore-eos \
        -q 2>"$scratch/err" || echo "exit $? $(cat "$scratch/err")"
}

wanted=$(answer "$build/quern")
QUERN_LIBMLXC=$build/libmlxc.so
export QUERN_LIBMLXC
check "named library" "$wanted" "$(answer "$dlopen")"
unset QUERN_LIBMLXC

cp "$build/libmlxc.so" "$scratch/bin/"
check "beside the program" "$wanted" "$(answer "$scratch/bin/quern")"
rm "$scratch/bin/libmlxc.so"
mkdir -p "$scratch/usr/lib/quern"
cp "$build/libmlxc.so" "$scratch/usr/lib/quern/"
check "in the pack folder" "$wanted" "$(answer "$scratch/bin/quern")"
rm -r "${scratch:?}/usr"

# What the loader says names the file that was asked for.
code=0
QUERN_LIBMLXC=/nowhere/x.so "$dlopen" run "$model" hi 2>"$scratch/err" ||
    code=$?
check "missing library: exit" 4 "$code"
grep -q /nowhere/x.so "$scratch/err" && named=yes || named=no
check "missing library: named" yes "$named"

# Libraries that say another version: our own with mlx_version on top of it.
gate() { # VERSION
    cat >"$scratch/stub.c" <<C
#include <mlx/c/mlx.h>
int mlx_version(mlx_string *text)
{
    *text = mlx_string_new_data("$1");
    return 0;
}
C
    cc -shared -fPIC -I"$root/include" "$scratch/stub.c" \
        -o "$scratch/stub.so" -L"$build" -l:libmlxc.so -Wl,-rpath,"$build"
    code=0
    QUERN_LIBMLXC=$scratch/stub.so "$dlopen" run "$model" hi --max-tokens 1 \
        >/dev/null 2>"$scratch/err" || code=$?
    echo "$code"
}
check "version 0.32.1" 4 "$(gate 0.32.1)"
grep -q "quern needs MLX 0.32.2; .*stub.so loaded MLX 0.32.1" "$scratch/err" &&
    said=yes || said=no
check "both versions are named" yes "$said"
check "version 0.32.2.dev1" 4 "$(gate 0.32.2.dev1)"
check "version 0.32.2" 0 "$(gate 0.32.2)"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
