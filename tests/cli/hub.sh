# A model hub for tests of downloads, beside tests/cli/lib.sh.
# shellcheck shell=sh
#
# hub_start starts tests/support/hub_server.py; `hub MANNERS` says how it behaves
# (members of a JSON object, see there), with the files of $files as the model
# t/m.  HF_ENDPOINT names it.  fetch ARGUMENT... runs `quern get t/m`.

# shellcheck disable=SC2154 # root and scratch are of lib.sh
hub_state=$scratch/hub
# Its faults need the program of the tests.
faulty=${BUILD_DIR:-$root/build}/quern-test
files=$root/tests/vectors/cases/fixtures/hub/tiny4k
commit_a=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
commit_b=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
unset HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE HTTPS_PROXY HTTP_PROXY ALL_PROXY \
    https_proxy http_proxy all_proxy NO_PROXY no_proxy SSL_CERT_FILE \
    XDG_STATE_HOME XDG_CONFIG_HOME
export QUERN_CACHE="$scratch/cache"

hub() {
    printf '{"root":"%s","repo":"t/m"%s}' "$files" "${1:+,$1}" \
        >"$hub_state/control.new"
    mv "$hub_state/control.new" "$hub_state/control.json"
    : >"$hub_state/requests"
}

hub_pids=

# hub_start [CERTIFICATE]
hub_start() {
    mkdir -p "$hub_state"
    rm -f "$hub_state/url"
    hub
    python3 "$root/tests/support/hub_server.py" "$hub_state" "$@" &
    hub_pids="$hub_pids $!"
    # shellcheck disable=SC2086 # a list
    trap 'kill $hub_pids 2>/dev/null; rm -rf "$scratch"' EXIT
    wait_until [ -f "$hub_state/url" ]
    HF_ENDPOINT=$(cat "$hub_state/url")
    export HF_ENDPOINT
}

fetch() {
    run "$faulty" get t/m "$@"
}

# fresh [MANNERS]: an empty cache.
fresh() {
    rm -rf "$QUERN_CACHE"
    hub "${1-}"
}

# shellcheck disable=SC2034 # for the tests
repo=$QUERN_CACHE/models--t--m
snapshot=$repo/snapshots/$commit_a

# The weights are there and are those that the server has.
whole() {
    cmp -s "$files/model.safetensors" "$snapshot/model.safetensors"
}

# Nothing bears the name of a file that it is not.
nothing_wrong() {
    for nothing_file in "$repo"/blobs/*; do
        case $nothing_file in
        *.incomplete | "$repo/blobs/*") continue ;;
        esac
        nothing_name=$(basename "$nothing_file")
        if [ ${#nothing_name} -eq 64 ]; then
            nothing_found=$(sha256sum <"$nothing_file" | cut -c -64)
        else
            nothing_found=$(git hash-object "$nothing_file")
        fi
        [ "$nothing_name" = "$nothing_found" ] || return 1
    done
}

partial_bytes() { # of the weights; 0 when there is none
    partial=$(echo "$repo"/blobs/????????????????????????????????????????????????????????????????.incomplete)
    if [ -f "$partial" ]; then
        wc -c <"$partial" | tr -d ' '
    else
        echo 0
    fi
}

# asked EXPRESSION: a Python expression over `r`, the list of requests.
asked() {
    python3 - "$hub_state/requests" "$1" <<'PYTHON'
import json, sys
r = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
weights = [x for x in r if "model.safetensors" in x["path"]]
if not eval(sys.argv[2]):
    for x in r:
        print(x)
    sys.exit(1)
PYTHON
}
