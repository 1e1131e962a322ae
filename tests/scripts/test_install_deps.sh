#!/bin/sh
# scripts/install-deps.sh on a machine of our own: only what is missing is
# asked for, and where it may not install it prints the one command.  Every
# program that it looks for is a fake, so nothing is ever installed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/scripts/lib.sh
. "$root/tests/scripts/lib.sh"

deps=$root/scripts/install-deps.sh

# The tools of the script itself; everything else must come from a fake.
for tool in sh env cat echo id mktemp rm tail uname; do
    ln -s "$(command -v $tool)" "$scratch/bin/$tool"
done
for tool in gcc cmake make pip3 python3 curl g++ mpirun clang clang-format shellcheck; do
    fake $tool </dev/null
done
rm "$scratch/bin/id"

# pkg-config knows the libraries listed in $scratch/libs.
fake pkg-config <<FAKE
while read -r lib; do
    [ "\$lib" = "\$2" ] && exit 0
done <"$scratch/libs"
exit 1
FAKE
printf '%s\n' cmocka libcurl libedit libffi libmicrohttpd libpcre2-8 libutf8proc >"$scratch/libs"

# ldconfig knows the library in $scratch/shared.
fake ldconfig <<FAKE
read -r lib <"$scratch/shared" && echo "	\$lib (libc6,x86-64) => /lib/\$lib"
FAKE
echo liblapack.so.3 >"$scratch/shared"

# apt-get notes what it was told and "installs" cmocka and cmake.
fake apt-get <<FAKE
echo "\$*" >>"$scratch/apt.calls"
case \$* in
*"install -y"*)
    [ -e "$scratch/apt.broken" ] && { echo "E: no such package"; exit 100; }
    echo cmocka >>"$scratch/libs"
    echo '#!/bin/sh' >"$scratch/bin/cmake"
    /bin/chmod +x "$scratch/bin/cmake"
    ;;
esac
exit 0
FAKE

as_user() { # UID
    fake id <<FAKE
echo $1
FAKE
}

run_deps() {
    run env PATH="$scratch/bin" "$deps" "$@"
}

silent() {
    [ ! -s "$scratch/out" ] && [ ! -s "$scratch/err" ]
}

lose_two() {
    printf '%s\n' libcurl libedit libffi libmicrohttpd libpcre2-8 libutf8proc >"$scratch/libs"
    rm -f "$scratch/bin/cmake" "$scratch/apt.calls"
}
two='apt-get install -y --no-install-recommends cmake libcmocka-dev'

as_user 0
run_deps
check "all there: exit 0" [ "$rc" -eq 0 ]
check "all there: silent" silent
check "all there: apt-get is not called" [ ! -e "$scratch/apt.calls" ]

lose_two
run_deps --check
check "--check: exit 1" [ "$rc" -eq 1 ]
check "--check: the one command" [ "$(cat "$scratch/out")" = "$two" ]
check "--check: installs nothing" [ ! -e "$scratch/apt.calls" ]

run_deps
check "root: exit 0" [ "$rc" -eq 0 ]
check "root: only what is missing" \
    grep -q -- "--no-install-recommends cmake libcmocka-dev$" \
    "$scratch/apt.calls"
check "root: one call" [ "$(wc -l <"$scratch/apt.calls")" -eq 1 ]

lose_two
as_user 1000
run_deps
check "user without sudo: exit 1" [ "$rc" -eq 1 ]
check "user without sudo: the one command" \
    [ "$(cat "$scratch/out")" = "sudo $two" ]
check "user without sudo: installs nothing" [ ! -e "$scratch/apt.calls" ]

fake sudo <<'FAKE'
exit 1
FAKE
run_deps
check "sudo that asks: exit 1" [ "$rc" -eq 1 ]
check "sudo that asks: the one command" \
    [ "$(cat "$scratch/out")" = "sudo $two" ]
check "sudo that asks: installs nothing" [ ! -e "$scratch/apt.calls" ]

fake sudo <<FAKE
[ "\$1" = -n ] || exit 1
shift
[ "\$1" = true ] && exit 0
echo sudo >>"$scratch/sudo.calls"
exec "\$@"
FAKE
run_deps
check "passwordless sudo: exit 0" [ "$rc" -eq 0 ]
check "passwordless sudo: used" [ -s "$scratch/sudo.calls" ]

as_user 0
run_deps
echo libother.so.1 >"$scratch/shared"
run_deps --check
check "no LAPACK: exit 1" [ "$rc" -eq 1 ]
check "no LAPACK: the one command" \
    [ "$(cat "$scratch/out")" = \
    "apt-get install -y --no-install-recommends liblapack3" ]
echo liblapack.so.3 >"$scratch/shared"

lose_two
as_user 0
: >"$scratch/apt.broken"
run_deps
check "apt-get fails: exit 1" [ "$rc" -eq 1 ]
check "apt-get fails: updates the lists and tries again" \
    [ "$(wc -l <"$scratch/apt.calls")" -eq 3 ]
check "apt-get fails: the one command" [ "$(cat "$scratch/out")" = "$two" ]
check "apt-get fails: its reason" grep -q "no such package" "$scratch/err"

rm "$scratch/bin/apt-get"
run_deps
check "no apt-get: exit 1" [ "$rc" -eq 1 ]
check "no apt-get: names what is missing" \
    grep -q "missing: cmake libcmocka-dev" "$scratch/err"

run_deps --runtime
check "--runtime: the libraries of the program" \
    grep -q "missing: libpcre2-8-0 libutf8proc2 libmicrohttpd12 libcurl4" \
    "$scratch/err"
check "--runtime: nothing to build with" not grep -q cmake "$scratch/err"

run_deps --bogus
check "unknown argument: exit 2" [ "$rc" -eq 2 ]

finish
