#!/bin/sh
# test_install.sh: what `make install` puts down can be used: a C program
# builds against libmlxc by pkg-config and by find_package(MLXC), and one
# against libquern, and both run; the engine needs libc and libm alone.
#
# The build to install from is in QUERN_BUILD (default: build).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${QUERN_BUILD:-$root/build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED $*"
    exit 1
}

cmake --install "$build" --prefix "$scratch/usr" >"$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "cmake --install"; }
lib=$(dirname "$(find "$scratch/usr" -name libmlxc.so | head -n 1)")
for file in libmlxc.so libquern-engine.so libquern.so.0; do
    [ -e "$lib/$file" ] || fail "no $file"
done

# The prefix of the .pc files is that of configuration; move it.
PKG_CONFIG_PATH=$lib/pkgconfig
export PKG_CONFIG_PATH
flags() {
    pkg-config --define-variable=prefix="$scratch/usr" --cflags --libs "$1"
}

cat >"$scratch/add.c" <<'C'
#include <mlx/c/mlx.h>
#include <stdio.h>
int main(void)
{
    mlx_stream s = mlx_default_cpu_stream_new();
    mlx_array a = mlx_array_new_int(2), b = mlx_array_new();
    int value = 0;
    if (mlx_add(&b, a, a, s) || mlx_array_item_int32(&value, b))
        return 1;
    printf("%d\n", value);
    mlx_array_free(a);
    mlx_array_free(b);
    mlx_stream_free(s);
    return 0;
}
C
# shellcheck disable=SC2046 # flags are words
cc "$scratch/add.c" -o "$scratch/add" $(flags mlxc)
[ "$(LD_LIBRARY_PATH=$lib "$scratch/add")" = 4 ] || fail "mlxc by pkg-config"

mkdir "$scratch/app"
cp "$scratch/add.c" "$scratch/app"
cat >"$scratch/app/CMakeLists.txt" <<'T'
cmake_minimum_required(VERSION 3.16)
project(app C)
find_package(MLXC REQUIRED)
add_executable(app add.c)
target_link_libraries(app mlxc)
T
{ cmake -S "$scratch/app" -B "$scratch/app/b" \
    -DCMAKE_PREFIX_PATH="$scratch/usr" && cmake --build "$scratch/app/b"; } \
    >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "find_package(MLXC)"; }
[ "$("$scratch/app/b/app")" = 4 ] || fail "mlxc by find_package"

cat >"$scratch/release.c" <<'C'
#include <quern/quern.h>
#include <stdio.h>
int main(void)
{
    return puts(quern_release()) < 0;
}
C
# shellcheck disable=SC2046
cc "$scratch/release.c" -o "$scratch/release" $(flags quern)
[ -n "$(LD_LIBRARY_PATH=$lib "$scratch/release")" ] || fail "libquern"

# The engine depends on nothing but the C library.
needed=$(readelf -d "$lib/libmlxc.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for name in $needed; do
    case $name in
    libc.so.* | libm.so.* | ld-linux*) ;;
    libasan.so.* | libubsan.so.* | libtsan.so.*) ;;
    *) fail "libmlxc.so needs $name" ;;
    esac
done
echo "install: passed"
