#!/bin/sh
# quern chat: turns, commands, saved conversations, the line editor, servers.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

flags="--temperature 0"
here=$root/tests/cli

# Talks with the lines $1 (printf's escapes).
chat() {
    # shellcheck disable=SC2059 # a format
    printf "$1" >"$scratch/lines"
    shift
    rc=0
    # shellcheck disable=SC2086 # a list of flags
    "$quern" chat "$tiny" $flags --max-tokens 6 "$@" <"$scratch/lines" >"$scratch/out" \
        2>"$scratch/err" || rc=$?
}

# A saved conversation has the Python expression.
saved() {
    cp "$scratch/save.json" "$scratch/out"
    json "$1"
}

# ---- turns ----

# shellcheck disable=SC2086
q run "$tiny" Hello $flags --max-tokens 6
printf '\n' >>"$scratch/out"
cp "$scratch/out" "$scratch/first"
chat 'Hello\n'
check "a line is a turn" cmp -s "$scratch/out" "$scratch/first"
check "the end of input ends it" code_is 0
check "nothing on stderr" err_empty
chat "Hello\nAgain\n/stats\n/save $scratch/save.json\n"
check "the conversation goes on in the cache" \
    grep -Eq 'prompt [0-9]+ tokens \([1-9][0-9]* cached\)' "$scratch/err"
check "what was said is saved" saved \
    "[m['role'] for m in d['messages']] == ['user', 'assistant'] * 2 and
     d['messages'][2]['content'] == 'Again'"
check "for the owner alone" [ "$(stat -c %a "$scratch/save.json")" = 600 ]

# Commands; $scratch is in their words.
talk() {
    chat "$1\n/save $scratch/save.json\n"
}

talk 'A\nB\n/undo'
check "/undo" saved "[m['content'] for m in d['messages']][::2] == ['A']"
talk 'A\n/clear\nB'
check "/clear" saved "[m['content'] for m in d['messages']][::2] == ['B']"
talk '/system Be brief.\nA'
check "/system" saved "d['messages'][0] == {'role': 'system',
    'content': 'Be brief.'} and len(d['messages']) == 3"
talk '/set seed 3\n/set temperature 1.5\nA\n/set seed 4\n/retry'
check "/set and /retry" saved "len(d['messages']) == 2 and
    d['settings'] == {'seed': '4', 'temperature': '1.5'}"
talk '/set top_p 7\n/set nothing 1\n/set\n/bogus\n/retry\n/undo\n/stats\nA'
check "bad commands are told" err_has "top-p 7: expected"
check "unknown settings" err_has "no setting is called 'nothing'"
check "unknown commands" err_has "There is no command /bogus"
check "and the conversation goes on" saved "len(d['messages']) == 2"
talk '"""\nTwo\nlines\n"""\n"""one"""'
check "blocks" saved "[m['content'] for m in d['messages']][::2] ==
    ['Two\nlines', 'one']"
printf 'in a file\n' >"$scratch/note"
talk "/attach $scratch/note\nA\nB\n/attach $scratch/nothing"
check "/attach" saved "d['messages'][0]['content'].endswith(
    'note:\n\nin a file\n\n\nA') and d['messages'][2]['content'] == 'B'"
check "a file that is not there" err_has "nothing"
chat 'A\n/show\n/help\n' --top-k 4
check "/show" err_has "top_k (from the command line)"
check "/help" err_has "/attach"
chat 'A\n/quit\nB\n'
check "/quit leaves" code_is 0

# ---- saved conversations ----

talk 'A\nB\n/set min_p 0.1'
cp "$scratch/save.json" "$scratch/good.json"
talk "/load $scratch/good.json\nC"
check "/load" saved "[m['content'] for m in d['messages']][::2] ==
    ['A', 'B', 'C'] and d['settings'] == {'min_p': '0.1'}"
for bad in '{' '[]' '{"schema":"quern.chat/1"}' \
    '{"schema":"quern.chat/1","messages":[{"role":"king","content":"x"}],"settings":{}}' \
    '{"schema":"quern.chat/1","messages":[{"role":"user"}],"settings":{}}' \
    '{"schema":"quern.chat/1","messages":[],"settings":{"top_p":"7"}}'; do
    printf '%s' "$bad" >"$scratch/bad.json"
    talk "A\n/load $scratch/bad.json"
    check "malformed: $bad" err_has "bad.json"
    check "nothing has changed: $bad" saved "len(d['messages']) == 2"
done

# ---- history ----

chat 'A\nB\n' --history "$scratch/history"
check "history is JSON lines" python3 -c '
import json, sys
lines = [json.loads(x) for x in open(sys.argv[1], encoding="utf-8")]
assert [x["role"] for x in lines] == ["user", "assistant"] * 2
assert lines[2]["content"] == "B"' "$scratch/history"
check "for the owner alone" [ "$(stat -c %a "$scratch/history")" = 600 ]
printf '{"role"\n' >"$scratch/broken"
# Whoever may change the mode of the real one shall not lose it to a fault.
null=/dev/null
mknod -m 666 "$scratch/null" c 1 3 2>/dev/null && null=$scratch/null
chat 'A\n' --history "$null"
check "a device is written to" [ ! -s "$scratch/err" ]
check "and keeps its mode" [ "$(stat -c %a "$null")" = 666 ]
chat 'A\n' --history "$scratch/broken"
check "a broken history is named" err_has "broken"
check "and refused" code_is 4

# ---- the context ----

chat "$(printf 'word %.0s' $(seq 60))\nA\n" --ctx 64
check "a full context is told" err_has "/clear begins a new one, /undo"
check "and nothing else happens" code_is 0

# ---- a terminal ----

# What the terminal shows, with the script $1.
on_terminal() {
    printf '%s\n' "$1" >"$scratch/script"
    shift
    rc=0
    # shellcheck disable=SC2086
    case $* in *max-tokens*) ;; *) set -- "$@" --max-tokens 6 ;; esac
    # shellcheck disable=SC2086
    python3 "$here/chat_terminal.py" "$scratch/script" "$quern" chat "$tiny" \
        $flags "$@" >"$scratch/out" 2>"$scratch/err" || rc=$?
}

on_terminal 'wait 2004h> 
type Hello\r
wait 2004h> 
type \e[200~pasted\nlines\e[201~\r
wait 2004h> 
type /save '"$scratch/save.json"'\r
wait 2004h> 
type \x04'
check "Ctrl-D leaves" code_is 0
check "a paste is one message" saved \
    "[m['content'] for m in d['messages']][::2] == ['Hello', 'pasted\nlines']"
on_terminal 'wait 2004h> 
type Hello\r
wait 2004h> 
type \e[A\e[DX\r
wait 2004h> 
type /save '"$scratch/save.json"'\r
wait 2004h> 
type \x04'
check "the arrows edit and bring lines back" saved \
    "d['messages'][2]['content'] == 'HellXo'"
on_terminal 'wait 2004h> 
type abc\x03
wait once more
wait 2004h> 
type \x03'
check "Ctrl-C twice leaves" code_is 130
# ---- servers ----

serve() {
    rm -f "$scratch/log" "$scratch/port"
    python3 "$here/chat_server.py" "$1" "$scratch/log" >"$scratch/port" &
    server=$!
    wait_until [ -s "$scratch/port" ]
    port=$(cat "$scratch/port")
}

ask() {
    # shellcheck disable=SC2059
    printf "$1" >"$scratch/lines"
    shift
    rc=0
    "$quern" chat --server "http://127.0.0.1:$port" "$@" <"$scratch/lines" \
        >"$scratch/out" 2>"$scratch/err" || rc=$?
}

serve stream
ask 'Hi\n/set top_p 0.5\nMore\n/stats\n' --system S --show-thinking \
    --temperature 0.5
check "a server answers" code_is 0
check "its text" [ "$(cat "$scratch/out")" = "$(printf 'Two wörds.\nTwo wörds.')" ]
check "its thoughts" err_has hm
cp "$scratch/log" "$scratch/out"
check "what it was asked" json "d[0][0] == '/v1/chat/completions' and
    d[1][1]['messages'][0] == {'role': 'system', 'content': 'S'} and
    [m['content'] for m in d[1][1]['messages']] ==
        ['S', 'Hi', 'Two wörds.', 'More'] and
    d[0][1]['temperature'] == 0.5 and d[1][1]['top_p'] == 0.5 and
    d[0][1]['stream'] is True and d[0][2] is None"
check "any model will do" json "d[0][1]['model'] == 'default'"
ask 'Hi\n' small
tail -n 1 "$scratch/log" >"$scratch/out"
check "one of several" json "d[1]['model'] == 'small'"
ask 'Hi\n' --no-think --ignore-eos
tail -n 1 "$scratch/log" >"$scratch/out"
check "settings that are no numbers" json "d[1]['ignore_eos'] is True and
    d[1]['chat_template_kwargs'] == {'enable_thinking': False}"
QUERN_API_KEY=sesame "$quern" chat --server "http://127.0.0.1:$port/v1/" \
    >/dev/null <"$scratch/lines"
tail -n 1 "$scratch/log" >"$scratch/out"
check "with a key" json "d[2] == 'Bearer sesame' and
    d[0] == '/v1/chat/completions'"
kill "$server"
ask 'Hi\n'
check "no server" code_is 6
serve refuse
ask 'Hi\n'
check "a server that refuses" err_has "404: no such model"
check "goes on" code_is 0
kill "$server"
serve slow
printf '%s\n' 'wait 2004h> 
type Hello\r
wait wörds.
type \x03
wait stopped
wait 2004h> 
type /save '"$scratch/save.json"'\r
wait 2004h> 
type \x04' >"$scratch/script"
rc=0
python3 "$here/chat_terminal.py" "$scratch/script" "$quern" chat --server \
    "http://127.0.0.1:$port" >"$scratch/out" 2>"$scratch/err" || rc=$?
check "Ctrl-C stops an answer" code_is 0
check "which stays as far as it went" saved "d['messages'][1]['content'] ==
    'Two w\u00f6rds.'"
kill "$server"
serve cut
ask 'Hi\n'
check "a broken stream" err_has "JSON"
kill "$server"

# ---- wrong words ----

fails 2 "expected http" chat --server ftp://x
q chat "$tiny" --json
check "no JSON" err_has "unknown flag --json"
fails 3 "nowhere" chat /nowhere

finish
