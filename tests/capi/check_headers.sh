#!/bin/sh
# Holds include/mlx/c to the tables in tests/vectors/abi:
#   1. every header compiles alone, as C11 and as C++17, without a warning;
#   2. every function of the tables is declared by the header named there, with
#      the signature given there, in C and in C++;
#   3. a library built with hidden visibility that defines them all exports
#      them all.
# Each check is also run once on input that is wrong, and must then fail.
#
# Compilers: gcc and clang with their C++ drivers, whichever are installed;
# QN_CHECK_CC and QN_CHECK_CXX name others. Prints one line per failure and
# exits 1 if there was any, 2 if the check itself could not run.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 2
root=$(cd "$here/../.." && pwd) || exit 2
include=$root/include
vectors=$root/tests/vectors/abi
warnings="-Wall -Wextra -Wpedantic -Werror"

tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 2' HUP INT TERM
failures=0

fail()
{
    failures=$((failures + 1))
    echo "check_headers: $*" >&2
    if [ -s "$tmp/log" ]; then
        sed -n '1,12p' "$tmp/log" >&2
    fi
    : >"$tmp/log"
}

# The names among "$@" that can be run.
installed()
{
    for name in "$@"; do
        if command -v "$name" >/dev/null 2>&1; then
            echo "$name"
        fi
    done
}

# shellcheck disable=SC2086 # lists of words, as are $ccs and $cxxs below
ccs=$(installed ${QN_CHECK_CC:-gcc clang})
# shellcheck disable=SC2086
cxxs=$(installed ${QN_CHECK_CXX:-g++ clang++})
if [ -z "$ccs" ] || [ -z "$cxxs" ]; then
    echo "check_headers: needs a C and a C++ compiler" >&2
    exit 2
fi

compiles_c()
{
    # shellcheck disable=SC2086 # the flags are words
    "$1" -x c -std=c11 $warnings -I"$include" -c -o "$tmp/o" "$2" \
        >"$tmp/log" 2>&1
}

compiles_cxx()
{
    # shellcheck disable=SC2086
    "$1" -x c++ -std=c++17 $warnings -I"$include" -c -o "$tmp/o" "$2" \
        >"$tmp/log" 2>&1
}

# compiles_everywhere FILE WHAT: FILE as C and as C++ under every compiler.
compiles_everywhere()
{
    for cc in $ccs; do
        compiles_c "$cc" "$1" || fail "$2: not C11 for $cc"
    done
    for cxx in $cxxs; do
        compiles_cxx "$cxx" "$1" || fail "$2: not C++17 for $cxx"
    done
}

# refused_everywhere FILE WHAT: no compiler may take FILE.
refused_everywhere()
{
    for cc in $ccs; do
        if compiles_c "$cc" "$1"; then
            fail "$2: accepted by $cc"
        fi
    done
    for cxx in $cxxs; do
        if compiles_cxx "$cxx" "$1"; then
            fail "$2: accepted by $cxx"
        fi
    done
    : >"$tmp/log"
}

# The tables name the platform's half types; without them the storage is a
# 16-bit integer.
half_names='
#ifndef HAS_FLOAT16
#define float16_t uint16_t
#endif
#ifndef HAS_BFLOAT16
#define bfloat16_t uint16_t
#endif'

# pointers HEADER TABLE...: a file that includes HEADER alone and takes the
# address of each of its functions as a pointer of the type in the tables.
pointers()
{
    header=$1
    shift
    printf '#include "mlx/c/%s"\n%s\n' "$header" "$half_names"
    awk -F '\t' -v header="$header" '
        /^#/ || $1 != header { next }
        {
            gsub(/\?/, "", $4)
            printf "extern %s (*const at_%d)(%s);\n", $3, NR, $4 ? $4 : "void"
            printf "%s (*const at_%d)(%s) = %s;\n", $3, NR, \
                   $4 ? $4 : "void", $2
        }' "$@"
}

# definitions TABLE...: a file that defines every function of the tables.
definitions()
{
    printf '#include "mlx/c/mlx.h"\n%s\n' "$half_names"
    awk -F '\t' '
        /^#/ { next }
        {
            gsub(/\?/, "", $4)
            printf "%s %s(%s) { __builtin_trap(); }\n", $3, $2, \
                   $4 ? $4 : "void"
        }' "$@"
}

# --- 1. each header alone ----------------------------------------------------

headers=$(cd "$include/mlx/c" && printf '%s\n' *.h) || exit 2
for header in $headers; do
    # Twice: the guard must hold.
    printf '#include "mlx/c/%s"\n#include "mlx/c/%s"\n' "$header" "$header" \
        >"$tmp/alone.c"
    printf 'extern int one;\nint one = 1;\n' >>"$tmp/alone.c"
    compiles_everywhere "$tmp/alone.c" "$header"
    if [ "$header" != mlx.h ] &&
        ! grep -q "^#include \"mlx/c/$header\"" "$include/mlx/c/mlx.h"; then
        fail "mlx.h does not include $header"
    fi
done

printf 'static int never_used;\n' >"$tmp/warns.c"
refused_everywhere "$tmp/warns.c" "a file that warns"

# --- 2. signatures -----------------------------------------------------------

set -- "$vectors/functions.tsv" "$vectors/functions-half.tsv"
for table in "$@"; do
    if [ ! -r "$table" ]; then
        echo "check_headers: cannot read $table" >&2
        exit 2
    fi
done

# shellcheck disable=SC2013
for header in $(awk -F '\t' '!/^#/ { print $1 }' "$@" | sort -u); do
    if [ ! -f "$include/mlx/c/$header" ]; then
        fail "$header is missing"
        continue
    fi
    pointers "$header" "$@" >"$tmp/pointers.c"
    compiles_everywhere "$tmp/pointers.c" "signatures of $header"
done

# One wrong argument type, one wrong result, one function nobody declares.
for wrong in \
    's/^\(array.h.mlx_array_dim.int.const mlx_array arr, \)int/\1long/' \
    's/^\(array.h.mlx_array_ndim.\)size_t/\1int/' \
    's/^\(array.h.mlx_array_\)itemsize/\1item_size/'; do
    sed "$wrong" "$vectors/functions.tsv" >"$tmp/wrong.tsv"
    if cmp -s "$vectors/functions.tsv" "$tmp/wrong.tsv"; then
        fail "the table has no line for: $wrong"
    fi
    pointers array.h "$tmp/wrong.tsv" >"$tmp/pointers.c"
    refused_everywhere "$tmp/pointers.c" "a wrong table ($wrong)"
done

# --- 3. visibility -----------------------------------------------------------

# build_library CC TABLE...: defines the functions of the tables in $tmp/all.so.
build_library()
{
    cc=$1
    shift
    definitions "$@" >"$tmp/all.c"
    # shellcheck disable=SC2086
    "$cc" -std=c11 $warnings -Wno-unused-parameter -Wmissing-prototypes \
        -I"$include" -O0 -fPIC -fvisibility=hidden -shared -o "$tmp/all.so" \
        "$tmp/all.c" >"$tmp/log" 2>&1
}

for cc in $ccs; do
    if ! build_library "$cc" "$@"; then
        fail "the functions of the tables cannot be defined with $cc"
        continue
    fi
    python3 "$here/check_symbols.py" "$tmp/all.so" >"$tmp/log" 2>&1 ||
        fail "hidden visibility hides declarations from $cc"
done

cc=${ccs%%
*}
grep -v 'mlx_version' "$vectors/functions.tsv" >"$tmp/short.tsv"
if build_library "$cc" "$tmp/short.tsv" "$vectors/functions-half.tsv"; then
    count=$(awk '!/^#/ { n++ } END { print n - 1 }' "$@")
    if python3 "$here/check_symbols.py" "$tmp/all.so" >"$tmp/log" 2>&1; then
        fail "check_symbols.py overlooks a missing function"
    fi
    grep -q '^missing mlx_version' "$tmp/log" ||
        fail "check_symbols.py does not name the missing function"
    python3 "$here/check_symbols.py" --floor "$count" "$tmp/all.so" \
        >"$tmp/log" 2>&1 || fail "check_symbols.py --floor $count fails"
    if python3 "$here/check_symbols.py" --floor $((count + 1)) \
        "$tmp/all.so" >"$tmp/log" 2>&1; then
        fail "check_symbols.py --floor $((count + 1)) passes"
    fi
else
    fail "the shortened table cannot be defined with $cc"
fi

if [ "$failures" -ne 0 ]; then
    echo "check_headers: $failures failed" >&2
    exit 1
fi
# shellcheck disable=SC2086
echo "check_headers: $(echo "$headers" | wc -l) headers," \
    "$(awk '!/^#/ { n++ } END { print n }' "$@") functions:" $ccs $cxxs
