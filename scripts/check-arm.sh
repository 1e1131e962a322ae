#!/bin/sh
# Builds the engine and the tests of its kernels for aarch64 and runs them with
# qemu-user: `make check-arm`.
#
#   check-arm.sh [--ci] [BUILD]      default build/arm
#
# The cross compiler, qemu and cmocka for arm64 are Debian's packages; the first
# two are installed where that is allowed, the last is unpacked below BUILD.
#
#   --ci   where they cannot be had, say so and leave with exit code 0
#
# Exit codes: 0 passed (or skipped with --ci); 1 failed, or what it takes is
# missing; 2 usage.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
ci=0
build=$root/build/arm
for arg in "$@"; do
    case $arg in
    --ci) ci=1 ;;
    -h | --help)
        echo "usage: scripts/check-arm.sh [--ci] [BUILD]"
        exit 0
        ;;
    -*)
        echo "check-arm: unknown argument '$arg'" >&2
        exit 2
        ;;
    *) build=$arg ;;
    esac
done
mkdir -p "$build"
build=$(cd "$build" && pwd)
log=$build/packages.log
: >"$log"

missing() { # SENTENCE
    echo "check-arm: $1" >&2
    if [ "$ci" = 1 ]; then
        echo "check-arm: skipped" >&2
        exit 0
    fi
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# ---- the compiler and the emulator ----

install() { # PACKAGE...
    have apt-get || return 1
    sudo=
    if [ "$(id -u)" != 0 ]; then
        have sudo && sudo -n true 2>/dev/null || return 1
        sudo="sudo -n"
    fi
    for try in first second; do
        # shellcheck disable=SC2086 # an empty $sudo is no word
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
            -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" \
            >>"$log" 2>&1 </dev/null && return 0
        # A package list that is missing or stale is only noticed by trying.
        # shellcheck disable=SC2086
        [ "$try" = second ] || $sudo apt-get -q update >>"$log" 2>&1 || return 1
    done
    return 1
}

compiler=aarch64-linux-gnu-gcc
emulator=qemu-aarch64
wanted=
have $compiler || wanted="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
have $emulator || wanted="$wanted qemu-user"
# shellcheck disable=SC2086 # a list of packages
[ -z "$wanted" ] || install $wanted ||
    missing "cannot install$( printf ' %s' $wanted ), see $log"

# ---- cmocka for arm64, from lists of packages of our own ----

prefix=$build/packages
if [ ! -e "$prefix/usr/lib/aarch64-linux-gnu/libcmocka.so" ]; then
    have apt-get || missing "cmocka for arm64 comes from Debian's packages"
    state=$build/apt
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$prefix"
    : >"$state/status"
    cat >"$state/apt.conf" <<END
Dir::State "$state";
Dir::State::status "$state/status";
Dir::State::lists "$state/lists";
Dir::Cache "$state/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
END
    (
        export APT_CONFIG="$state/apt.conf"
        cd "$state"
        apt-get -q update && apt-get -q download libcmocka-dev libcmocka0
    ) >>"$log" 2>&1 || missing "cannot fetch cmocka for arm64, see $log"
    for package in "$state"/libcmocka*.deb; do
        dpkg-deb -x "$package" "$prefix"
    done
    rm -rf "$state"
fi
export PKG_CONFIG_LIBDIR="$prefix/usr/lib/aarch64-linux-gnu/pkgconfig"
export PKG_CONFIG_SYSROOT_DIR="$prefix"
export PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1

# ---- build and run ----

cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=$compiler -DQUERN_ENGINE_ONLY=ON \
    "-DCMAKE_CROSSCOMPILING_EMULATOR=$emulator;-cpu;max;-L;/usr/aarch64-linux-gnu" \
    >"$build/configure.log" 2>&1 || {
    cat "$build/configure.log" >&2
    exit 1
}
cmake --build "$build" -j "$(nproc)"
# A forked child that starts threads ends in an assertion of qemu itself.
ctest --test-dir "$build" -E '^backend/cpu/pool$' \
    -R '^(backend/cpu|base)/|^capi/ext_(delta|experts|quant)$' \
    --output-on-failure -j "$(nproc)"
