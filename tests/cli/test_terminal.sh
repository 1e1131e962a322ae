#!/bin/sh
# What a terminal gets to see: text with its control characters spelled out, a
# bar, a final newline; and nothing of that where there is none.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

# on FDS COMMAND...: with a terminal as the descriptors; out has what it got.
on() {
    run python3 "$root/tests/cli/on_terminal.py" "$@"
}

no_controls() { # but newlines
    not grep -q '[[:cntrl:]]' "$scratch/out"
}

ends_with_newline() {
    [ "$(tail -c 1 "$scratch/out" | od -An -tu1 | tr -d ' ')" = 10 ]
}

# A tiny model whose tokens of the bytes 1 to 31 are what it likes to say.
answer="run $tiny --raw hi --temperature 0 --max-tokens 5"
# shellcheck disable=SC2086
q $answer
check "to a file the text goes as it is" grep -q "$(printf '\001')" \
    "$scratch/out"
check "no newline of ours" not ends_with_newline
# shellcheck disable=SC2086
on 1 "$quern" $answer
check "exit code" code_is 0
check "control characters are spelled on a terminal" out_has '\x01\x01'
check "and no other way" no_controls
check "a newline ends the line" ends_with_newline
# shellcheck disable=SC2086
on 1 "$quern" $answer --json
check "JSON stays JSON" json "'\\x01' in d['text']"

q run "$tiny" '' --max-tokens 1
mkdir "$scratch/model"
cp "$tiny"/* "$scratch/model"
chmod -R u+w "$scratch/model"
printf 'a\tb\n\033[2J\302\205\177\377' >"$scratch/model/LICENSE"
printf 'a\tb\n{# \033[2J\302\205\177 #}' \
    >"$scratch/model/chat_template.jinja"
on 1 "$quern" show "$scratch/model" --template
check "a file's text too; tabs and newlines pass" \
    [ "$(cat "$scratch/out")" = "$(printf \
        'a\tb\n{# \\x1b[2J\\xc2\\x85\\x7f #}')" ]
on 1 "$quern" show "$scratch/model" --template --json
check "JSON escapes what its writer leaves" json \
    "'\\x1b[2J\\x85\\x7f' in d['chat_template']"
check "so that a terminal sees none" no_controls

fails 2 'a\x1b[2Jb' run "./$(printf 'a\033[2Jb')" hi

# ---- progress ----

cp "$tiny/config.json" "$scratch/model/config.json"
sed -i 's/"max_position_embeddings": 256/"max_position_embeddings": 16384/' \
    "$scratch/model/config.json"
slow="bench $scratch/model -p 1000 -n 0 -r 20 --warmup 0"
endless="bench $scratch/model -p 1000 -n 0 -r 1000"

# The first thing that the terminal sees is the bar; then Ctrl-C is pressed.
# shellcheck disable=SC2086
on -i 2 "$quern" $endless
check "a bar on a terminal" grep -q "$(printf '\r')bench \[" "$scratch/out"
check "with rate and time" grep -Eq '[0-9]+/1001 runs  [0-9.]+ runs/s  eta' \
    "$scratch/out"
check "it is taken away" grep -q "$(printf '\r\033')\[K" "$scratch/out"
check "Ctrl-C ends the work" code_is 130
for setting in NO_COLOR=1 TERM=dumb; do
    # shellcheck disable=SC2086
    run env "$setting" python3 "$root/tests/cli/on_terminal.py" 2 \
        "$quern" $slow
    check "no bar with $setting" not grep -q 'bench \[' "$scratch/out"
    # shellcheck disable=SC2086
    run env "$setting" python3 "$root/tests/cli/on_terminal.py" -i 2 \
        "$quern" $endless --progress bar
    check "but the flag wins over $setting" grep -q 'bench \[' "$scratch/out"
done
for flags in -q "--progress none" "--progress plain"; do
    # shellcheck disable=SC2086
    on 2 "$quern" $slow $flags
    check "no bar with $flags" not grep -q 'bench \[' "$scratch/out"
done
# shellcheck disable=SC2086
q $slow
check "no bar in a file" err_empty
# shellcheck disable=SC2086
q $slow --progress json
check "JSON progress: one object per line" [ "$(grep -c \
    '^{"event":"progress",.*}$' "$scratch/err")" -eq 20 ]

finish
