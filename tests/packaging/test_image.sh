#!/bin/sh
# What can be said of packaging/Dockerfile without building it: it copies what
# is there, ends as a user without rights, and its question after the health
# tells a server that answers from one that does not.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
file=$root/packaging/Dockerfile

sed -n 's/^COPY \([^-][^ ]*\) .*/\1/p' "$file" >"$scratch/copied"
while read -r path; do
    check "COPY $path" [ -e "$root/$path" ]
done <"$scratch/copied"
check "something is copied" [ -s "$scratch/copied" ]
user=$(sed -n 's/^USER //p' "$file" | tail -n 1)
check "a user by number, not root" [ "$user" -gt 0 ]
check "the user is made" grep -q -- "--uid $user " "$file"
check "the packages' script takes its flag" \
    "$root/scripts/install-deps.sh" --runtime --help >/dev/null

# The shell form would put a shell before quern, and signals would end there.
entry=$(sed -n 's/^ENTRYPOINT \[\(.*\)\]$/\1/p' "$file" | tr -d '",')
check "the entry is words" [ "${entry%% *}" = quern ]
# shellcheck disable=SC2086 # words
run env QUERN_API_KEY=secret "$quern" ${entry#quern } --check "$tiny"
check "with a key: exit 0" code_is 0
# shellcheck disable=SC2086 # words
q ${entry#quern } --check "$tiny"
check "without a key: exit 2" code_is 2

health=$(sed -n 's/^ *CMD \["\([^"]*\)"\]$/\1/p' "$file" | head -n 1)
check "the question is the script that is copied" \
    [ "$health" = /usr/local/lib/quern/health.sh ]
if command -v bash >/dev/null; then
    mkfifo "$scratch/port"
    "$quern" serve "$tiny" --port 0 --ctx 128 --ready-fd 3 3>"$scratch/port" \
        2>"$scratch/log" &
    server=$!
    trap 'kill $server 2>/dev/null || :; rm -rf "$scratch"' EXIT
    read -r port <"$scratch/port" || :
    run "$root/packaging/health.sh" "$port"
    check "healthy: exit 0" code_is 0
    kill "$server"
    wait "$server" || :
    run "$root/packaging/health.sh" "$port"
    check "gone: exit 1" code_is 1
    # Answers, but not with 200; closes after the first line, or at once (bash
    # writes three lines, and the later ones meet a closed socket).
    for way in line now; do
        python3 - "$scratch/port" $way <<'PY' &
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as s:
    with open(sys.argv[1], "w") as port:
        print(s.getsockname()[1], file=port)
    for _ in range(20):
        client, _ = s.accept()
        if sys.argv[2] == "line":
            client.recv(16)
        client.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
        client.close()
PY
        server=$!
        read -r port <"$scratch/port" || :
        codes=
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            run "$root/packaging/health.sh" "$port"
            codes="$codes $rc"
        done
        check "loading, closed $way: exit 1 each time ($codes)" \
            [ "$(echo "$codes" | sed 's/ 1//g')" = "" ]
        wait "$server" || :
    done
else
    echo "SKIPPED health.sh: no bash"
fi

finish
