# What the script tests share: a scratch folder, a list of checks, a count.
# shellcheck shell=sh
#
# A test sets `root` (the repository), sources this file, calls `check NAME
# COMMAND...` for every expectation and ends with `finish`.  Fake programs go
# to $scratch/bin.

scratch=$(mktemp -d "${TMPDIR:-/tmp}/quern-scripts.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
mkdir "$scratch/bin"
passed=0
failed=0

# check NAME COMMAND...: the expectation NAME holds when COMMAND succeeds.
check() {
    check_name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s: %s\n' "$check_name" "$*"
    fi
}

# Runs a command; leaves its exit code in $rc, its output in $scratch/out and
# $scratch/err.
# shellcheck disable=SC2034 # rc is read by the tests
run() {
    rc=0
    "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || rc=$?
}

# Writes the program $scratch/bin/$1 from stdin.
fake() {
    {
        echo '#!/bin/sh'
        cat
    } >"$scratch/bin/$1"
    chmod +x "$scratch/bin/$1"
}

# Waits until a command succeeds.  A minute is for ever: the test ends.
wait_until() {
    wait_tries=0
    until "$@"; do
        wait_tries=$((wait_tries + 1))
        if [ "$wait_tries" -ge 1200 ]; then
            printf 'FAILED waiting for: %s\n' "$*"
            exit 1
        fi
        sleep 0.05
    done
}

not() {
    ! "$@"
}

finish() {
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
}
