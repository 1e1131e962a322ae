#!/bin/sh
# quern doctor, quern completion, and the manual pages.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
export XDG_CACHE_HOME="$scratch/cache"

q doctor
check "exit 0 where nothing fails" code_is 0
for name in quern processor cores memory bandwidth cuda cache clock; do
    check "a line for $name" grep -Eq "^(ok|warn) +$name " "$scratch/out"
done
q doctor --json
check "JSON" json "d['schema'] == 'quern.doctor/1' and
    {c['status'] for c in d['checks']} <= {'ok', 'warn', 'fail'}"
mkdir "$scratch/file"
: >"$scratch/file/x"
QUERN_CACHE=$scratch/file/x/there q doctor
check "a cache that can't be: exit 1" code_is 1
check "and which line" grep -Eq '^fail +cache ' "$scratch/out"
QUERN_THREADS=2 q doctor --config
check "--config: what is set" grep -Eq \
    '^threads +2 +environment QUERN_THREADS$' "$scratch/out"
check "--config: what is not" grep -Eq '^kv +f16 +default$' "$scratch/out"
q doctor --config --json
check "--config: JSON" json "{'name': 'kv', 'value': 'f16',
    'origin': 'default'} in d['settings']"

# ---- completion ----

complete() {
    "$quern" __complete "$@" >"$scratch/out" 2>"$scratch/err"
}
is() { # the candidates, in one line
    [ "$(tr '\n' ' ' <"$scratch/out")" = "$1" ] || {
        cat "$scratch/out"
        return 1
    }
}

complete qu
check "commands" is "quantize "
complete quantize --rec
check "flags" is "--recipe "
complete quantize --recipe mixed_3
check "values" is "mixed_3_4 mixed_3_6 "
complete quantize --mode=mx
check "values behind =" is "--mode=mxfp4 --mode=mxfp8 "
complete run --no-str
check "--no- forms" is "--no-stream "
complete run --file ""
check "files are the shell's" is ""
complete help doc
check "commands of help" is "doctor "
complete completion ""
check "shells" is "bash zsh fish "
complete nothing x
check "an unknown command" is ""
hub=$scratch/hub
mkdir -p "$hub/models--org--Tiny/snapshots/0123"
QUERN_CACHE=$hub complete run o
check "cached models" is "org/Tiny "
check "within 50 ms" python3 - "$quern" <<'PYTHON'
import subprocess, sys, time
def once():
    t = time.monotonic()
    subprocess.run([sys.argv[1], "__complete", "run", "--t"], check=True,
                   stdout=subprocess.DEVNULL)
    return time.monotonic() - t
# A busy machine is not slower than this in its best of ten.
sys.exit(min(once() for _ in range(10)) > 0.05)
PYTHON
for shell in bash zsh fish; do
    q completion $shell
    check "$shell" out_has "quern __complete"
done
q completion bash
check "bash takes it" bash -n "$scratch/out"
check "bash completes" bash -c "
    PATH=\$(dirname '$quern'):\$PATH
    . '$scratch/out'
    COMP_WORDS=(quern quant); COMP_CWORD=1
    _quern
    [ \"\${COMPREPLY[*]}\" = quantize ]"
fails 2 "expected bash, zsh or fish" completion csh

# ---- manual pages ----

if [ -x "$BUILD_DIR/genman" ]; then
    mkdir "$scratch/man"
    "$BUILD_DIR/genman" "$scratch/man" 1.2
    check "a page for each command" python3 -c "
import json, os, subprocess
names = {c['name'] for c in json.loads(subprocess.run(
    ['$quern', 'help', '--json'], stdout=subprocess.PIPE).stdout)['commands']}
assert {f'quern-{n}.1' for n in names} | {'quern.1'} == \
    set(os.listdir('$scratch/man'))"
    check "with all flags" grep -q 'requantize' "$scratch/man/quern-quantize.1"
    check "and only those of the command" sh -c \
        "! grep -q 'requantize' '$scratch/man/quern-run.1'"
fi

finish
