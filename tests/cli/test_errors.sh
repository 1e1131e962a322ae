#!/bin/sh
# Exit codes and messages of what is wrong with files: folders, pipes and junk in
# their place, and results that have no place, which is seen before the work.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
q4=$root/tests/vectors/cases/fixtures/models/tiny_q4

cd "$scratch"
mkdir folder cache
export QUERN_CACHE="$scratch/cache"
mkfifo pipe
: >empty
printf '\001\377junk' >junk
echo "some words of a text" >text

# ---- what is read ----

for flag in "run $tiny -f" "run $tiny hi --chat-template" \
    "embed $tiny --pooling mean -f" "eval $tiny --task perplexity --data" \
    "bench $tiny --compare" "fit $tiny --device-spec" \
    "quantize $tiny packed --target-bpw 4 --calibration"; do
    # shellcheck disable=SC2086 # the words of a command line
    fails 1 "folder: cannot read: Is a directory" $flag folder
    # shellcheck disable=SC2086
    fails 3 "/none: cannot open: No such file or directory" $flag /none
    # shellcheck disable=SC2086
    q $flag junk
    case $rc in
    2 | 4) ;;
    *) check "$flag junk: $rc" false ;;
    esac
    check "$flag junk: it is named" err_has "$(case $flag in
    *" -f") echo "not valid UTF-8" ;;
    *calibration) echo "not valid" ;;
    *) echo "junk: " ;;
    esac)"
done
# What the user names may be a pipe.
printf 'one\n' >pipe &
q embed "$tiny" --pooling mean -f pipe
check "a pipe with a writer is read" code_is 0

fails 1 "folder: expected a regular file, found a directory" \
    run "$tiny" hi --prompt-cache folder
fails 1 "pipe: expected a regular file, found a pipe" \
    run "$tiny" hi --prompt-cache pipe
fails 3 "/none: no such file" run "$tiny" hi --prompt-cache /none
fails 2 "--prompt-cache: expected the name" run "$tiny" hi --prompt-cache ''
for file in empty junk text; do
    fails 4 "$file: " run "$tiny" hi --prompt-cache $file
    check "no line of our source" not grep -qE '\.c:[0-9]' "$scratch/err"
done
q run "$tiny" hi --json --prompt-cache junk
check "as JSON, too" json "d['error']['code'] == 'format' and
    d['error']['where'] == 'junk' and '.c:' not in d['error']['message']"

# The references of models.
for name in empty junk pipe; do
    fails 4 "$name: expected a .gguf file" run $name hi
    fails 4 "$name: expected a .gguf file" show $name
    fails 4 "$name: expected a .gguf file" convert $name packed
    fails 4 "$name: expected a .gguf file" \
        eval "$tiny" --task kl --data text --ref $name
done
fails 3 "config.json is missing" run folder hi
for command in "run --prompt x" show fit "convert -q"; do
    # shellcheck disable=SC2086
    set -- $command
    first=$1
    shift
    set -- "$first" nobody/nothing "$@"
    [ "$1" != convert ] || set -- "$@" packed
    fails 3 "no model 'nobody/nothing' in the cache" "$@"
    check "$1: what fetches it" grep -qx "hint: quern get nobody/nothing" \
        "$scratch/err"
done
fails 3 "no model 'nobody/draft'" run "$tiny" hi --draft-model nobody/draft

fails 4 "empty: the data has no two tokens" \
    eval "$tiny" --task perplexity --data empty
fails 4 "text: line 1: " eval "$tiny" --task choice --data text
fails 4 "empty: it has no results" bench "$tiny" -p 2 -n 0 --compare empty

# ---- what is written: seen before the work ----

# Nothing is answered, packed or measured when there is no place for it.
for flag in "run $tiny hi --save-prompt-cache" \
    "quantize $tiny packed --group-size 32 --report" \
    "eval $tiny --task kl --data text --save-logits"; do
    # shellcheck disable=SC2086
    fails 3 "/none/x: cannot create: No such file or directory" $flag /none/x
    # shellcheck disable=SC2086
    fails 1 "folder: cannot replace: Is a directory" $flag folder
    # shellcheck disable=SC2086
    fails 1 "pipe: expected a regular file, found a pipe" $flag pipe
    # shellcheck disable=SC2086
    fails 2 "expected the name of a file" $flag ''
done
check "nothing was packed" [ ! -e packed ]
check "nothing is left of a try" [ -z "$(find . -name '*.tmp')" ]
q run "$tiny" hi --max-tokens 2 --save-prompt-cache cache.st
check "what was there before stays while it is tried" code_is 0
fails 3 "config.json" run folder hi --save-prompt-cache cache.st
check "as long as nothing else is written" [ -s cache.st ]

fails 2 "expected the name of a file" chat "$tiny" --history ''
fails 3 "/none/x: cannot create" chat "$tiny" --history /none/x
fails 1 "expected a regular file, found a pipe" chat "$tiny" --history pipe
fails 1 "expected a regular file, found a directory" \
    chat "$tiny" --history folder
fails 4 "junk: JSON" chat "$tiny" --history junk

# The program's own files are files, or are left alone.
mkdir -p state/quern
mkfifo state/quern/runs.jsonl
XDG_STATE_HOME=$scratch/state q bench "$tiny" -p 2 -n 0 -r 1
check "a history that is none" code_is 0
check "is told" err_has "the run is not kept"
XDG_STATE_HOME=$scratch/state q bench --history
check "and not read" code_is 1
mkdir -p other/quern
mkfifo other/quern/last-model
XDG_STATE_HOME=$scratch/other q run --prompt hi
check "neither is a note that is none" code_is 2
mkdir -p config/quern
mkfifo config/quern/config.toml
XDG_CONFIG_HOME=$scratch/config q version
check "nor a configuration" code_is 2

# ---- thresholds, memory, closed outputs ----

q eval "$q4" --task perplexity --data text --max loss=0 --json
check "a threshold: 9" code_is 9
check "with the result on stdout" json "d['schema'] == 'quern.eval/1'"
q fit "$tiny" --memory 1M --json
check "what does not fit: 5" code_is 5
check "and the numbers" json "d['models'][0]['fit']['fits'] is False"
fails 2 "expected NAME=VALUE" eval "$q4" --task perplexity --data text \
    --max loss=nan
for command in "run $tiny hi" "show $tiny" "help" "version" "list" "gc" \
    "fit $tiny" "embed $tiny hi --pooling mean" "completion bash" \
    "bench $tiny -p 2 -n 2 -r 1" "doctor --config" \
    "eval $tiny --task perplexity --data text"; do
    rc=0
    # shellcheck disable=SC2086
    (
        trap '' PIPE
        "$quern" $command 2>"$scratch/err" || echo $? >"$scratch/code"
    ) | :
    # The reader is gone at once or a little later.
    [ ! -s "$scratch/err" ] || check "$command | :: no message" err_empty
    rc=0
    # shellcheck disable=SC2086
    "$quern" $command >&- 2>"$scratch/err" || rc=$?
    check "$command with stdout closed: 1" code_is 1
    check "$command with stdout closed: no message" err_empty
    rc=0
    # shellcheck disable=SC2086
    [ ! -c /dev/full ] || "$quern" $command >/dev/full 2>"$scratch/err" || rc=$?
    [ ! -c /dev/full ] || check "$command > /dev/full: 1" code_is 1
    [ ! -c /dev/full ] || check "$command > /dev/full: why" err_has "standard output: No space"
done

finish
