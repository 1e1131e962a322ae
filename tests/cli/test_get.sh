#!/bin/sh
# `quern get` against a hub that cuts, stalls, lies, redirects and refuses.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
# shellcheck source=tests/cli/hub.sh
. "$root/tests/cli/hub.sh"
hub_start

# ---- a plain fetch, and the layout ----

fresh
fetch
check "it is fetched" code_is 0
check "the last line names path and fit" grep -q \
    "^ready: $snapshot$" "$scratch/out"
check "and what the model is" out_has \
    "llama, F16 (16.00 bpw), context 256; fits up to ctx 256 on cpu"
check "the plan is shown" err_has "m @ aaaaaaa  4 files, 11 KiB (0 B cached)"
check "the bytes are right" whole
check "files are links into blobs/" [ \
    "$(readlink "$snapshot/config.json")" = \
    "../../blobs/$(git hash-object "$files/config.json")" ]
check "main is written" [ "$(cat "$repo/refs/main")" = $commit_a ]
check "no partial file is left" [ "$(partial_bytes)" -eq 0 ]
check "blobs have right names" nothing_wrong
check "no token is sent without one" asked \
    "len(r) == 5 and not any(x['token'] for x in r)"
fetch --json
check "the second time all is there" json \
    "d['bytes_downloaded'] == 0 and all(f['cached'] for f in d['files'])"
check "the result has its members" json "d['schema'] == 'quern.get/1' and \
d['repo'] == 't/m' and d['revision'] == '$commit_a' and d['path'] == \
'$snapshot' and len(d['files']) == 4 and d['seconds'] >= 0"
run "$faulty" run t/m hello --max-tokens 1
check "it runs" code_is 0

fresh
fetch --dry-run
check "a dry run shows the plan" out_has "model.safetensors"
check "and fetches nothing" [ ! -e "$repo" ]
fetch -v
check "with -v each file has a line" err_has "config.json  427 B"
fresh
fetch -q
check "with -q stderr is empty" err_empty
fresh
fetch --progress json
check "progress as JSON" grep -q \
    '^{"event":"progress","phase":"model.safetensors","done":.*"unit":"B"' \
    "$scratch/err"

fresh
fetch --include '*.json' --exclude 'tok*'
check "globs choose files" [ "$(ls "$snapshot")" = config.json ]
fetch --include '*.nothing'
check "a glob that matches nothing" code_is 3

# ---- connections that end ----

fresh '"close_after":1500'
fetch --retries 0
check "a cut connection is a network failure" code_is 6
check "it says how far it came" err_has "127.0.0.1"
check "what came is kept" [ "$(partial_bytes)" -eq 1500 ]
check "under no final name" [ ! -e "$snapshot/model.safetensors" ]
check "no ref is written" [ ! -e "$repo/refs/main" ]
hub '"close_after":1000'
fetch --retries 2
check "retries go on where it ended" code_is 0
check "by ranges" asked \
    "[x['range'] for x in weights] == ['bytes=1500-', 'bytes=2500-', 'bytes=3500-']"
check "the bytes are right" whole

fresh '"stall_after":2000,"stall_s":3'
run env QUERN_TEST_STALL=1 "$faulty" get t/m --retries 0
check "a connection that stalls is given up" code_is 6
check "with what it brought" [ "$(partial_bytes)" -eq 2000 ]

for kind in ignore wrong 416always; do
    fresh '"close_after":1000'
    fetch --retries 0
    hub "\"range\":\"$kind\""
    fetch --retries 0
    check "range $kind: it starts over" code_is 0
    check "range $kind: the bytes are right" whole
done

fresh '"close_after":3999'
fetch --retries 0
head -c 5000 /dev/zero >"$repo/blobs/$(sha256sum <"$files/model.safetensors" |
    cut -c -64).incomplete"
hub
fetch --retries 0
check "a partial file that is too long is emptied" whole

fresh
mkdir -p "$repo/blobs"
cp "$files/model.safetensors" \
    "$repo/blobs/$(sha256sum <"$files/model.safetensors" | cut -c -64).incomplete"
fetch
check "a partial file that is whole is not asked for" asked "not weights"
check "and is right" whole

# Killed at any moment, and started again.
fresh '"pace_ms":25'
tries=0
while [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    "$faulty" get t/m --include '*' >/dev/null 2>&1 &
    pid=$!
    sleep "0.$(printf '%02d' $((tries * 37 % 17)))"
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    check "kill $tries: nothing wrong is kept" nothing_wrong
done
hub
fetch
check "killed 20 times: the rest comes" code_is 0
check "killed 20 times: the same bytes" whole

# ---- lies ----

fresh '"flip":3000'
fetch --retries 0
check "a wrong digest is an integrity failure" code_is 7
sha=$(sha256sum <"$files/model.safetensors" | cut -c -64)
check "both digests are told" err_has "expected the SHA-256 $sha, found "
check "the file is deleted" [ ! -e "$snapshot/model.safetensors" ]
check "the partial file, too" [ "$(partial_bytes)" -eq 0 ]
fetch --no-verify
check "--no-verify takes it" code_is 0

fresh '"length":3000'
fetch --retries 0
check "another length is an integrity failure" code_is 7
check "with both numbers" err_has "expected 4000 bytes, the server announces 3000"
fresh '"length":5000'
fetch --retries 0 --no-verify
check "also with --no-verify" code_is 7
check "and nothing is kept" [ ! -e "$snapshot/model.safetensors" ]

fresh '"close_after":1000'
fetch --retries 0
hub "\"etag\":\"$(printf '%064d' 7)\""
fetch --retries 0
check "another ETag than the listing's" code_is 7
check "starts over before it gives up" asked \
    "[x['range'] for x in weights] == ['bytes=1000-', None]"
fresh '"close_after":1000'
fetch --retries 0
hub '"version":"b"'
fetch
check "a new version comes whole" code_is 0
check "from its first byte" asked "[x['range'] for x in weights] == [None]"
check "under its own commit" [ "$(cat "$repo/refs/main")" = $commit_b ]

# Sizes and digests from the tree, or from the answers themselves.
fresh '"sizes":false'
fetch
check "a listing without sizes" code_is 0
check "the tree is read to its end" asked \
    "len([x for x in r if '/tree/' in x['path']]) == 2"
fresh '"sizes":false,"tree":false'
fetch
check "neither sizes nor a tree" code_is 0
check "the bytes are right" whole
check "each digest is asked for" asked \
    "len([x for x in r if x['method'] == 'HEAD']) == 4"

# A model that can't be loaded is known before its weights are there.
bad=$scratch/bad
cp -r "$files" "$bad"
chmod -R u+w "$bad"
python3 - "$bad/model.safetensors" <<'PYTHON'
import sys
head = b'{"x":{"dtype":"F16","shape":[9],"data_offsets":[0,99]}}'
open(sys.argv[1], "wb").write(len(head).to_bytes(8, "little") + head + bytes(900000))
PYTHON
good_files=$files
files=$bad
fresh '"pace_ms":20'
fetch
check "a bad header is told early" code_is 4
check "by its name" err_has "model.safetensors"
check "and not kept" [ "$(partial_bytes)" -eq 0 ]
sed 's/"llama"/"nosuchtype"/' "$good_files/config.json" >"$bad/config.json"
fresh
fetch
check "an unknown architecture" code_is 4
check "is told" err_has "nosuchtype"
check "before the weights are asked for" asked "not weights"
rm "$bad/model.safetensors"
: >"$bad/pytorch_model.bin"
fresh
fetch
check "weights that run code" code_is 4
check "are not fetched" err_has "pytorch_model.bin"
files=$good_files
fresh '"extra":[{"rfilename":"../../evil.json","size":1}]'
fetch
check "a name that leads out is refused" code_is 4
check "with the name" err_has "../../evil.json"

# ---- refusals ----

fresh '"token":"secret"'
fetch
check "401 without a token" code_is 8
check "says that none was sent" err_has "no token was sent"
check "and speaks of the licence" err_has "its licence may need accepting at"
run env HF_TOKEN=wrong "$faulty" get t/m
check "401 with a token" code_is 8
check "says that it was sent" err_has "the token that was sent is not enough"
run env HF_TOKEN=secret "$faulty" get t/m
check "the right token" code_is 0
rm -rf "$QUERN_CACHE"
mkdir -p "$scratch/.cache/huggingface"
echo secret >"$scratch/.cache/huggingface/token"
fetch
check "the token of the hub client's file" code_is 0
rm "$scratch/.cache/huggingface/token"
run env HF_TOKEN="$(printf 'a\nX: y')" "$faulty" get t/m
check "a token of two lines" code_is 2

for where in cdn path; do
    fresh "\"token\":\"secret\",\"redirect\":\"$where\""
    run env HF_TOKEN=secret "$faulty" get t/m
    check "redirect to $where: fetched" code_is 0
    check "redirect to $where: right" whole
done
fresh '"token":"secret","redirect":"cdn"'
run env HF_TOKEN=secret "$faulty" get t/m
check "no other host sees the token" asked \
    "all((x['token'] is None) == (x['port'] == 'cdn') for x in r)"
fresh '"redirect":"loop"'
fetch --retries 0
check "a loop of redirects" code_is 6
fresh '"redirect":"file"'
fetch --retries 0
check "a redirect to a file" code_is 6

fresh
run "$faulty" get t/none
check "no such model" code_is 3
check "is told" err_has "has no model 't/none'"
fetch --revision v9
check "no such revision" code_is 3
check "is told" err_has "revision 'v9'"
run "$faulty" get "t/m@$commit_a"
check "a commit as the revision" code_is 0
check "gets no name of its own" [ ! -e "$repo/refs" ]

fresh '"status":[["/resolve/",503,2,null,null]]'
fetch
check "503 passes" code_is 0
fresh '"status":[["/revision/",500,1,null,null]]'
fetch --retries 0
check "500 without retries" code_is 6
check "is told" err_has "answers 500"
fresh '"status":[["/revision/",429,1,1,null]]'
begin=$(date +%s%N)
fetch --retries 1
check "429 is obeyed" code_is 0
check "for as long as it says" [ $((($(date +%s%N) - begin) / 1000000)) -ge 1000 ]
fresh '"status":[["safetensors",404,1,null,"EntryNotFound"]]'
fetch
check "a file that is gone" code_is 3
check "is named" err_has "model.safetensors"

# ---- the disk ----

fresh
run env QUERN_TEST_DISK_FULL_AT=1500 "$faulty" get t/m --retries 0
check "a full disk" code_is 5
check "is told" err_has "no space left"
check "nothing is named before it is whole" nothing_wrong
fetch
check "with room again" whole
fresh
fetch --max-size 1k
check "--max-size" code_is 5
check "with both sizes" err_has "expected at most 1 KiB to fetch, found 11 KiB"
fresh
run env QUERN_TEST_NO_LINKS=1 "$faulty" get t/m
check "without links" code_is 0
check "files are copies" [ ! -L "$snapshot/config.json" ]
check "that are right" whole
fetch --json
check "and found again" json "d['bytes_downloaded'] == 0"
fresh
fetch --dir "$scratch/plain"
check "--dir makes plain files" cmp -s "$files/model.safetensors" \
    "$scratch/plain/model.safetensors"
check "outside the cache" [ ! -e "$repo" ]
hub
fetch --dir "$scratch/plain"
check "they are not fetched twice" asked "not weights"
printf 'x' | dd of="$scratch/plain/model.safetensors" bs=1 seek=3500 \
    conv=notrunc 2>/dev/null
fetch --dir "$scratch/plain"
check "one that was changed is" cmp -s "$files/model.safetensors" \
    "$scratch/plain/model.safetensors"

fresh '"extra":[{"rfilename":"model-2.safetensors","size":4000000000000000000,"lfs":{"size":4000000000000000000,"sha256":"1111111111111111111111111111111111111111111111111111111111111111"}}]'
fetch
check "more than the disk has" code_is 5
check "is told before anything is fetched" asked "len(r) == 1"
check "with the reserve" err_has "1 GiB in reserve"

# ---- several at once, and signals ----

begun() {
    [ "$(partial_bytes)" -gt 0 ]
}

fresh '"hold_at":1000'
"$faulty" get t/m >"$scratch/first" 2>&1 &
first=$!
wait_until begun
fetch --no-wait
check "--no-wait does not wait" code_is 1
"$faulty" get t/m >"$scratch/out" 2>"$scratch/err" &
second=$!
wait_until grep -q "waiting for it" "$scratch/err"
touch "$hub_state/go"
rc=0
wait $second || rc=$?
check "a second get waits" code_is 0
rc=0
wait $first || rc=$?
check "the first one is done" code_is 0
check "the bytes came once" asked "len(weights) == 1"
check "and are right" whole

rm "$hub_state/go"
fresh '"hold_at":1000'
"$faulty" get t/m >"$scratch/out" 2>"$scratch/err" &
first=$!
wait_until begun
kill -INT $first
rc=0
wait $first || rc=$?
check "an interrupt" code_is 130
check "keeps what came" begun
touch "$hub_state/go"

# ---- offline ----

fresh
fetch --offline
check "--offline and not there" code_is 6
fetch
hub
fetch --offline --json
check "--offline and there" json "d['path'] == '$snapshot'"
run env HF_HUB_OFFLINE=1 "$faulty" get t/m
check "HF_HUB_OFFLINE" code_is 0
check "nobody was asked" asked "not r"

# ---- proxies and TLS ----

fresh
run env http_proxy=http://127.0.0.1:1 "$faulty" get t/m --retries 0
check "a proxy that is not there" code_is 6
run env http_proxy=http://127.0.0.1:1 NO_PROXY=127.0.0.1 "$faulty" get t/m
check "NO_PROXY" code_is 0
if command -v openssl >/dev/null 2>&1; then
    plain=$HF_ENDPOINT
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -keyout "$scratch/key.pem" -out "$scratch/cert.pem" -days 2 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null
    cat "$scratch/key.pem" "$scratch/cert.pem" >"$scratch/both.pem"
    hub_start "$scratch/both.pem"
    fresh
    fetch --retries 3
    check "a certificate that nobody signed" code_is 6
    check "is told" err_has "TLS: "
    check "and final" [ "$(grep -c 'trying again' "$scratch/err")" -eq 0 ]
    run env SSL_CERT_FILE="$scratch/cert.pem" "$faulty" get t/m
    check "SSL_CERT_FILE" code_is 0
    fresh '"redirect":"cdn"'
    run env SSL_CERT_FILE="$scratch/cert.pem" "$faulty" get t/m
    check "https never leads to http" code_is 6
    HF_ENDPOINT=$plain
fi

# ---- GGUF ----

gguf=$scratch/gguf
mkdir -p "$gguf"
python3 "$root/tests/cli/make_gguf.py" "$gguf/m-Q4_0.gguf" >/dev/null 2>&1 || true
printf 'GGUFx' >"$gguf/m-Q8_0-00001-of-00002.gguf"
printf 'GGUFyy' >"$gguf/m-Q8_0-00002-of-00002.gguf"
printf 'GGUFz' >"$gguf/m-Q4_K_M.gguf"
files=$gguf
fresh '"weights":"none"'
fetch
check "several quantizations and none chosen" code_is 2
check "a table of them" err_has "m-Q8_0-00001-of-00002.gguf"
check "with sizes of all parts" grep -q \
    'm-Q8_0-00001-of-00002.gguf  *11 B  fits' "$scratch/err"
fetch --quant Q8_0 --dry-run
check "parts come together" out_has "m-Q8_0-00002-of-00002.gguf"
run "$faulty" get t/m:q8_0 --dry-run
check "a selector chooses, too" out_has "2 files"
fetch --quant Q2_K
check "a quantization that is not there" code_is 3

# ---- arguments ----

files=$good_files
hub
bad_reference() {
    run "$faulty" get "$1"
    check "refused: $1" code_is 2
}
bad_reference ./t/m
bad_reference /t/m
bad_reference ../m
bad_reference t/m/x
bad_reference http://host/t/m
bad_reference "t/m@"
bad_reference "t/m@a..b"
bad_reference m.gguf
fails 2 "--jobs 0" get t/m --jobs 0
fails 2 "exclude each other" get t/m@main --revision main
run env HF_ENDPOINT=ftp://x "$faulty" get t/m
check "HF_ENDPOINT is checked" code_is 2

# ---- --pull and searches ----

fresh
run "$faulty" run t/m hi --max-tokens 1
check "a model that is not there" code_is 3
check "the hint names the command" err_has "hint: quern get t/m"
run "$faulty" run t/m hi --max-tokens 1 --pull
check "--pull fetches it" code_is 0
hub
run "$faulty" run t/m hi --max-tokens 1 --pull
check "and only then" asked "not r"

hub '"search":[{"id":"a/Qwen3","downloads":12,"likes":3,"lastModified":"2025-04-28T01:02:03.000Z"},{"id":7},{}]'
run "$faulty" list --remote 'qwen 3'
check "a search" out_has "a/Qwen3"
check "asks for its words" asked "'search=qwen%203&' in r[0]['path']"
run "$faulty" list --remote x --json
check "as JSON" json "d['remote'] == [{'id': 'a/Qwen3', 'modified': \
'2025-04-28', 'downloads': 12, 'likes': 3}]"

finish
