# What the tests of the commands share, beside tests/scripts/lib.sh.
# shellcheck shell=sh
#
# A test sets `root` and sources this file.  QUERN names the program (default
# build/quern).  The environment of the caller has no part in the results.

# shellcheck source=tests/scripts/lib.sh
# shellcheck disable=SC2154 # root is the test's
. "$root/tests/scripts/lib.sh"

quern=${QUERN:-$root/build/quern}
# shellcheck disable=SC2034 # for the tests
tiny=$root/tests/vectors/cases/fixtures/models/tiny
unset QUERN_THREADS QUERN_BACKEND QUERN_LOG QUERN_CONFIG QUERN_CACHE \
    QUERN_LIBMLXC QUERN_ISA QUERN_STRICT_DEVICES QUERN_API_KEY NO_COLOR TERM \
    HF_HUB_CACHE HF_HOME
export HOME="$scratch"
# A build with ThreadSanitizer would sleep for a second at every exit.
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}atexit_sleep_ms=0"

# Runs quern; rc, out and err are as `run` leaves them.
q() {
    run "$quern" "$@"
}

# The same with the text $1 on a pipe to its standard input.
q_with() {
    q_text=$1
    shift
    rc=0
    printf '%s' "$q_text" |
        "$quern" "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
}

code_is() {
    [ "$rc" -eq "$1" ] || {
        echo "exit code $rc, expected $1"
        head -c 500 "$scratch/err"
        return 1
    }
}

out_has() {
    grep -qF -e "$1" "$scratch/out"
}

out_empty() {
    [ ! -s "$scratch/out" ]
}

err_has() {
    grep -qF -e "$1" "$scratch/err" || {
        head -c 500 "$scratch/err"
        return 1
    }
}

err_empty() {
    [ ! -s "$scratch/err" ]
}

err_lines() {
    [ "$(wc -l <"$scratch/err")" -eq "$1" ]
}

# The JSON on stdout makes the Python expression $1 true.  In it `d` is the
# document, or the list of documents when there are several lines, and `first`
# what `keep_json` has kept.
json() {
    python3 - "$scratch" "$1" <<'PYTHON'
import json, os, sys

scratch, expression = sys.argv[1:]
lines = open(os.path.join(scratch, "out"), encoding="utf-8").read().split("\n")
d = [json.loads(line) for line in lines if line]
d = d[0] if len(d) == 1 else d
kept = os.path.join(scratch, "kept")
first = json.load(open(kept)) if os.path.exists(kept) else None
if not eval("(" + expression + ")"):
    print(str(d)[:600])
    sys.exit(1)
PYTHON
}

keep_json() {
    cp "$scratch/out" "$scratch/kept"
}

# fails CODE TEXT ARGUMENT...: quern refuses with the code and one line on
# stderr that has the text, and prints nothing.
fails() {
    fails_code=$1
    fails_text=$2
    shift 2
    q "$@"
    check "refused: $*" code_is "$fails_code"
    check "message of: $*" err_has "$fails_text"
    check "nothing on stdout: $*" out_empty
    grep -v '^hint: ' "$scratch/err" >"$scratch/errors" || true
    check "one line: $*" [ "$(wc -l <"$scratch/errors")" -eq 1 ]
    check "begins with the program: $*" grep -q '^quern: ' "$scratch/err"
}
