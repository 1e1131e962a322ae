#!/bin/sh
# Installs the packages that the build and the tests need and this machine
# lacks (Debian 12; as root, or with a sudo that asks for no password).  Says
# nothing when nothing is missing.
#
#   install-deps.sh [--check] [--dev] [--bench] [--runtime]
#
#   --check   only look: print the command that would install what is missing
#   --dev     also what `make format`, `make fuzz` and clang builds need
#   --bench   also what the comparisons with other engines need
#   --runtime only what a program that was built elsewhere needs to run
#
# Exit codes: 0 all is there; 1 something is missing (the one command that
# installs it is on stdout); 2 usage.
set -eu

check_only=0
dev=0
runtime=0

for arg in "$@"; do
    case $arg in
    --check) check_only=1 ;;
    --dev) dev=1 ;;
    --bench) ;; # nothing besides today
    --runtime) runtime=1 ;;
    -h | --help)
        echo "usage: scripts/install-deps.sh [--check] [--dev] [--bench] [--runtime]"
        exit 0
        ;;
    *)
        echo "install-deps: unknown argument '$arg'" >&2
        exit 2
        ;;
    esac
done

# Each line of the lists below asks for the thing itself, not for its
# package, so a compiler or a pip from elsewhere counts too.
missing=

need() {
    missing="$missing $1"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

program() { # NAME PACKAGE
    have "$1" || need "$2"
}

library() { # PKG-CONFIG-NAME PACKAGE
    pkg-config --exists "$1" 2>/dev/null || need "$2"
}

shared_library() { # NAME PACKAGE
    case $(ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null) in
    *"$1 ("*) ;;
    *) need "$2" ;;
    esac
}

# The libFuzzer and sanitizer libraries of the clang that is there.
fuzzer_runtime() {
    have clang || return 1
    [ -e "$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a")" ]
}

find_for_running() {
    shared_library libpcre2-8.so.0 libpcre2-8-0
    shared_library libutf8proc.so.2 libutf8proc2
    # serve, and get with the certificates that it asks hubs for.
    shared_library libmicrohttpd.so.12 libmicrohttpd12
    shared_library libcurl.so.4 libcurl4
    [ -e /etc/ssl/certs/ca-certificates.crt ] || need ca-certificates
}

find_for_building() {
    program gcc gcc
    # The headers must compile as C++ too.
    program g++ g++
    [ -e /usr/include/stdio.h ] || need libc6-dev
    program cmake cmake
    program make make
    program pkg-config pkg-config
    program python3 python3
    # The examples of docs/server.md.
    program curl curl
    # fetch-model.sh
    have pip3 || have pip || need python3-pip
    # tests/differential
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
    library cmocka libcmocka-dev
    library libffi libffi-dev
    library libcurl libcurl4-openssl-dev
    library libedit libedit-dev
    library libmicrohttpd libmicrohttpd-dev
    library libpcre2-8 libpcre2-dev
    library libutf8proc libutf8proc-dev
    # Loaded at run time; tests of linear algebra need it.
    shared_library liblapack.so.3 liblapack3
    # Likewise, for tests of several processes; brings the library along.
    program mpirun openmpi-bin

    if [ "$dev" = 1 ]; then
        program clang clang
        program clang-format clang-format
        fuzzer_runtime || need libclang-rt-dev
        program shellcheck shellcheck
    fi
}

find_missing() {
    missing=
    if [ "$runtime" = 1 ]; then
        find_for_running
    else
        find_for_building
    fi
    missing=${missing# }
}

find_missing
[ -n "$missing" ] || exit 0

# Root needs no sudo; anybody else needs one that does not ask.
sudo=
may_install=0
if ! have apt-get; then
    :
elif [ "$(id -u)" = 0 ]; then
    may_install=1
elif have sudo; then
    sudo=sudo
    if sudo -n true 2>/dev/null; then
        may_install=1
    fi
else
    sudo=sudo
fi

command="${sudo:+$sudo }apt-get install -y --no-install-recommends $missing"

if [ "$check_only" = 1 ] || [ "$may_install" = 0 ]; then
    echo "install-deps: missing: $missing" >&2
    have apt-get ||
        echo "install-deps: not a Debian system: these are Debian's names" >&2
    echo "$command"
    exit 1
fi

echo "install-deps: installing $missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

apt() {
    # shellcheck disable=SC2086 # an empty $sudo is no word
    ${sudo:+$sudo -n} env DEBIAN_FRONTEND=noninteractive apt-get -q \
        -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

install_missing() {
    # shellcheck disable=SC2086 # a list of packages
    apt install -y --no-install-recommends $missing
}

# A package list that is missing or stale is only noticed by trying.
if ! install_missing && { ! apt update || ! install_missing; }; then
    tail -n 20 "$log" >&2
    echo "install-deps: apt-get failed; by hand:" >&2
    echo "$command"
    exit 1
fi

find_missing
if [ -n "$missing" ]; then
    echo "install-deps: installed, but still not found: $missing" >&2
    exit 1
fi
