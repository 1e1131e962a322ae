#!/bin/sh
# The units of packaging/: systemd finds nothing wrong with them, the service
# has what it says and no more, and its command is one that quern takes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
units=$root/packaging

# As installed, but for the program, which is the build's.
for unit in quern.service quern.socket; do
    sed "s,/usr/local/bin/quern,$quern," "$units/$unit" >"$scratch/$unit"
done
if command -v systemd-analyze >/dev/null; then
    run systemd-analyze verify "$scratch/quern.service" "$scratch/quern.socket"
    check "verify: exit 0" code_is 0
    check "verify: nothing to say" err_empty
    # Of 100; a service without any of it has 96.
    run systemd-analyze security --offline=true --threshold=20 \
        "$scratch/quern.service"
    check "what the service may do" code_is 0
else
    echo "SKIPPED systemd-analyze verify: it is not installed"
fi

# The command, as systemd would split it: $NAME is words, ${NAME} is one.
command=$(sed -n 's/^ExecStart=//p' "$scratch/quern.service" |
    sed 's/${\([A-Z_]*\)}/"$\1"/g')
start() { # FLAGS MODEL
    # shellcheck disable=SC2034,SC2086 # the unit's; words
    SERVE_FLAGS=$1 SERVE_MODEL=$2 run sh -c "exec $command"
}
start "--check --ctx 128 --parallel 2" "$tiny"
check "the command: exit 0" code_is 0
start "--check" "$scratch/no model"
check "no model: exit 3" code_is 3
check "no model: its name in one piece" err_has "$scratch/no model"

# What running requests have comes before the time to end is over.
stop=$(sed -n 's/^TimeoutStopSec=\([0-9]*\)s$/\1/p' "$units/quern.service")
drain=$("$quern" serve --help | tr -s ' \n' ' ' |
    sed -n 's/.*--drain D [^[]*\[\([0-9]*\)s\].*/\1/p')
check "--drain ($drain) ends before TimeoutStopSec ($stop)" \
    [ "$drain" -lt "$stop" ]

finish
