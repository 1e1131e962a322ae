#!/bin/sh
# The examples build against the library and its header alone, and answer as
# the program does; many threads at once get the program's bytes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

build=${BUILD_DIR:-$root/build}
cc=${CC:-cc}
libs="-L$build -lquern -Wl,-rpath,$build"
greedy="--temperature 0 --max-tokens 32"

short() { # a file of at most so many lines, but for comments and blank ones
    [ "$(grep -v '^ *//\|^/\*\|^ \*' "$1" | grep -c .)" -le "$2" ]
}

# shellcheck disable=SC2086 # lists of flags
{
    q run "$tiny" Hello $greedy
    cp "$scratch/out" "$scratch/hello"
    q run "$tiny" "Why?" $greedy
    cp "$scratch/out" "$scratch/why"
    check "C" "$cc" -std=c11 -Wall -Wextra -Werror -I"$root/include" \
        "$root/examples/chat.c" -o "$scratch/chat" $libs
    check "C++" c++ -std=c++17 -Wall -Wextra -Werror -I"$root/include" \
        "$root/examples/answers.cpp" -o "$scratch/answers" $libs
}
echo >>"$scratch/hello"
echo >>"$scratch/why"

printf 'Hello\n' | "$scratch/chat" "$tiny" >"$scratch/out"
check "the chat in C answers" cmp -s "$scratch/out" "$scratch/hello"
printf 'Hello\nAgain\n' | "$scratch/chat" "$tiny" >"$scratch/out"
check "and goes on" [ "$(wc -c <"$scratch/out")" -gt \
    "$(wc -c <"$scratch/hello")" ]
check "it says what is wrong" sh -c "! '$scratch/chat' /nowhere 2>/dev/null"

"$scratch/answers" "$tiny" Hello "Why?" Hello >"$scratch/out"
cat "$scratch/hello" "$scratch/why" "$scratch/hello" >"$scratch/wanted"
check "three answers at once in C++" cmp -s "$scratch/out" "$scratch/wanted"
check "errors are exceptions" sh -c "! '$scratch/answers' /nowhere 2>/dev/null"

# Python asks for as many tokens as the library's default.
q run "$tiny" Hello --temperature 0
cp "$scratch/out" "$scratch/long"
echo >>"$scratch/long"
python3 "$root/examples/answer.py" "$build/libquern.so" "$tiny" Hello \
    >"$scratch/out"
check "Python by ctypes" cmp -s "$scratch/out" "$scratch/long"

for example in chat.c answers.cpp answer.py; do
    check "$example is short" short "$root/examples/$example" 44
done

# ---- the library's symbols ----

nm -D --defined-only "$build/libquern.so" | awk '{ print $3 }' |
    sed 's/@@.*//' | grep -v '^QUERN_' | sort >"$scratch/shown"
sed -n 's/^ *\(quern_[a-z_0-9]*\);$/\1/p' "$root/cmake/libquern.map" | sort \
    >"$scratch/listed"
check "the library shows what its map lists" \
    diff "$scratch/listed" "$scratch/shown"
check "under a version" sh -c \
    "nm -D --defined-only '$build/libquern.so' | grep -q 'quern_submit@@QUERN_0'"

# ---- many threads ----

i=0
while [ "$i" -lt 10 ]; do
    temperature=0.8
    [ $((i % 3)) -ne 0 ] || temperature=0
    q run "$tiny" --raw "abcabc${i}abc" --max-tokens $((10 + i)) \
        --temperature "$temperature" --seed "$i"
    cp "$scratch/out" "$scratch/$i.out"
    i=$((i + 1))
done
# shellcheck disable=SC2086
check "a program of many threads" "$cc" -std=gnu11 -Wall -Wextra -Werror \
    -I"$root/include" "$root/tests/examples/many.c" -o "$scratch/many" \
    $libs -lpthread
check "gets the program's bytes" "$scratch/many" "$tiny" "$scratch"

finish
