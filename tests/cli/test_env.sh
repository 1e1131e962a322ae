#!/bin/sh
# Variables called QUERN_*, and what a model reference stands for.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

# env_fails CODE TEXT SETTING...: quern version refuses the environment.
env_fails() {
    env_code=$1
    env_text=$2
    shift 2
    run env "$@" "$quern" version
    check "refused: $*" code_is "$env_code"
    check "message of $*" err_has "$env_text"
    check "nothing on stdout: $*" out_empty
}

env_fails 2 "QUERN_THREADS: --threads x: expected a whole number from 1 to 512" \
    QUERN_THREADS=x
env_fails 2 "QUERN_THREADS" QUERN_THREADS=0
env_fails 2 "QUERN_BACKEND: --backend tpu" QUERN_BACKEND=tpu
env_fails 2 "QUERN_LOG: loud: expected error, warn, info or debug" \
    QUERN_LOG=loud
env_fails 2 "QUERN_STRICT_DEVICES: yes: expected 0 or 1" \
    QUERN_STRICT_DEVICES=yes
env_fails 2 "QUERN_ISA: mmx: expected the name of an instruction set" \
    QUERN_ISA=mmx
env_fails 2 "/nowhere: cannot open" QUERN_CONFIG=/nowhere
env_fails 2 "QUERN_LIBMLXC: /x/libmlxc.so: this build carries its own engine" \
    QUERN_LIBMLXC=/x/libmlxc.so

run env QUERN_LIBMLXC= QUERN_THREADS= "$quern" version
check "an empty variable is none" code_is 0
check "and nothing is said" err_empty
run env QUERN_THREDS=1 "$quern" version
check "an unknown variable is no error" code_is 0
check "it gets one warning" err_lines 1
check "with the nearest name" err_has \
    "warning: QUERN_THREDS: no such variable; did you mean QUERN_THREADS?"
run env QUERN_THREDS=1 QUERN_LOG=error "$quern" version
check "QUERN_LOG=error silences warnings" err_empty
run env QUERN_THREDS=1 QUERN_LOG=error "$quern" version -v
check "a flag wins over QUERN_LOG" err_has "warning"
run env QUERN_THREADS=x "$quern" run --help
check "help needs no environment" code_is 0

bench="bench $tiny -p 4 -n 0 -r 1 --json"
# shellcheck disable=SC2086
run env QUERN_THREADS=1 "$quern" $bench
check "QUERN_THREADS sets the threads" json "d['threads'] == 1"
# shellcheck disable=SC2086
run env QUERN_THREADS=1 "$quern" $bench --threads 2
check "the flag wins" json "d['threads'] == 2"
run env QUERN_BACKEND=cuda "$quern" run "$tiny" hi
check "QUERN_BACKEND chooses the backend" code_is 4
run env QUERN_BACKEND=cuda "$quern" run "$tiny" hi --backend cpu --max-tokens 1
check "its flag wins too" code_is 0
run env QUERN_STRICT_DEVICES=1 "$quern" run "$tiny" hi --max-tokens 1
check "QUERN_STRICT_DEVICES=1 is taken" code_is 0

# ---- model references ----

# A cache as the hub client keeps it, with two models and a GGUF repository.
hub=$scratch/.cache/huggingface/hub
repo() { # ORG NAME COMMIT: the snapshot's folder
    repo_dir=$hub/models--$1--$2
    mkdir -p "$repo_dir/refs" "$repo_dir/snapshots/$3"
    printf '%s' "$3" >"$repo_dir/refs/main"
    echo "$repo_dir/snapshots/$3"
}
cp "$tiny"/* "$(repo acme Tiny-4bit 1111)"
cp "$tiny"/* "$(repo acme Tiny-8bit 2222)"
files=$(repo other files 3333)
: >"$files/a-Q4_0.gguf"
: >"$files/b-Q8_0.gguf"
mkdir -p "$(repo empty nothing 4444)"

shows() { # REF PATH-ENDING
    q show "$1" --json
    check "$1" json "d['path'].endswith('$2')"
}
shows acme/Tiny-4bit snapshots/1111
shows acme/Tiny-4bit@main snapshots/1111
shows acme/Tiny-4bit@1111 snapshots/1111
shows hf:acme/Tiny-8bit snapshots/2222
shows tiny-8 snapshots/2222
shows "$tiny" models/tiny
shows "$tiny/model.safetensors" tiny/model.safetensors

cd "$scratch"
mkdir -p acme
cp -r "$tiny" acme/Tiny-4bit
shows acme/Tiny-4bit acme/Tiny-4bit
shows hf:acme/Tiny-4bit snapshots/1111
shows ./acme/Tiny-4bit ./acme/Tiny-4bit

fails 2 "'tiny' stands for several models: " show tiny
check "the candidates are listed" err_has "acme/Tiny-8bit"
fails 2 "has several files" show other/files
check "its files are listed" err_has "a-Q4_0.gguf"
fails 4 "a-Q4_0.gguf" show other/files:q4 # found, and no GGUF file
fails 3 "nothing in the cache" show other/files:Q2
fails 3 "revision 9999 is not in the cache" show acme/Tiny-4bit@9999
fails 3 "nothing in the cache that can be run" show empty/nothing
fails 3 "no model 'acme/none'" show acme/none
fails 3 "./acme/none: no such file" show ./acme/none
fails 3 "none.gguf: no such file" show none.gguf
# shellcheck disable=SC2088 # the tilde itself
fails 3 "~/model: no such file" show '~/model'
fails 3 "config.json is missing" show "$hub"
fails 2 "a URL is not a model reference" show https://host/model.gguf
fails 2 "the model reference is empty" show ""
fails 2 "is not a model reference" show hf:
fails 2 "is not a model reference" show :Q4
fails 2 "is not a model reference" show hf:../acme
fails 2 "is not a model reference" show acme/../other
fails 2 "'a\\x0ab': a model reference has no control characters" \
    show "$(printf 'a\nb')"

run env QUERN_CACHE="$hub" HOME=/nowhere "$quern" show tiny-8
check "QUERN_CACHE" code_is 0
run env HF_HUB_CACHE="$hub" HOME=/nowhere "$quern" show tiny-8
check "HF_HUB_CACHE" code_is 0
run env HF_HOME="$scratch/.cache/huggingface" HOME=/nowhere "$quern" show tiny-8
check "HF_HOME" code_is 0
run env QUERN_CACHE=/nowhere HF_HUB_CACHE="$hub" "$quern" show tiny-8
check "QUERN_CACHE comes first" code_is 3

finish
