#!/bin/sh
# SIGINT and SIGTERM: what is done is kept and counted, the exit code says
# what ended the program.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"

# A tiny model that answers for a long time: its context is long.
model=$scratch/model
cp -r "$tiny" "$model"
chmod -R u+w "$model"
sed -i 's/"max_position_embeddings": 256/"max_position_embeddings": 1000000/' \
    "$model/config.json"

cat >"$scratch/send.py" <<'PYTHON'
"""send.py SIGNAL MOMENT COMMAND...

Sends the signal at a moment: "output" when the command has written something
to stdout, which is read on; "blocked" when a pipe that nobody reads is full;
"stdin" while it waits for its input; "stderr" when it has written there.
Leaves stdout and stderr of the command in the files out and err.
"""
import fcntl, os, signal, subprocess, sys, time

number = getattr(signal, sys.argv[1])
moment, command = sys.argv[2], sys.argv[3:]
folder = os.environ["SCRATCH"]
err = open(os.path.join(folder, "err"), "wb")
p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE if moment == "stderr" else err)
out = b""

def wait_in(where):
    """Until the command sleeps in a function of the kernel, or is no more."""
    until = time.monotonic() + 60
    while (where not in open(f"/proc/{p.pid}/wchan").read() and
           p.poll() is None and time.monotonic() < until):
        time.sleep(0.01)

if moment == "output":
    out = os.read(p.stdout.fileno(), 1)
elif moment == "blocked":
    # The writer sleeps on the pipe once it is full, which is soon.
    fcntl.fcntl(p.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    wait_in("pipe_write")
elif moment == "stderr":
    os.read(p.stderr.fileno(), 1)
else:
    # The reader sleeps on the empty pipe.
    wait_in("pipe_read")
p.send_signal(number)
if moment == "blocked":
    code = p.wait(60)
rest, _ = p.communicate()
open(os.path.join(folder, "out"), "wb").write(out + rest)
sys.exit(p.returncode if p.returncode >= 0 else 128 - p.returncode)
PYTHON

# after MOMENT SIGNAL ARGUMENT...: rc, out and err of a run with the signal.
after() {
    after_moment=$1
    after_signal=$2
    shift 2
    rc=0
    SCRATCH=$scratch python3 "$scratch/send.py" "$after_signal" \
        "$after_moment" "$quern" "$@" || rc=$?
}

story="run $model --raw hi --no-stdin --ctx 1000000 --max-tokens 1000000
    --ignore-eos"

# shellcheck disable=SC2086
after output SIGINT $story
check "SIGINT while answering: exit 130" code_is 130
check "the answer so far" [ -s "$scratch/out" ]
check "one line of counts" err_lines 1
check "of the prompt and the answer" grep -Eq \
    '^prompt 2 tokens .*; answer [0-9]+ tokens, .*; seed [0-9]+$' "$scratch/err"
# shellcheck disable=SC2086
after output SIGTERM $story
check "SIGTERM while answering: exit 143" code_is 143
# shellcheck disable=SC2086
after output SIGINT $story -q
check "-q: no counts" err_empty

# shellcheck disable=SC2086
after output SIGINT $story --json --stream
check "JSON: exit 130" code_is 130
check "JSON: a summary comes last" json "d[-1]['event'] == 'summary' and
    d[-1]['finish_reason'] == 'cancelled' and
    d[-1]['text'] == ''.join(p['text'] for p in d[:-1])"

# /proc/PID/wchan needs the right to see it.
if [ "$(cat /proc/$$/wchan 2>/dev/null || echo 0)" != 0 ]; then
    # shellcheck disable=SC2086
    after blocked SIGINT $story
    check "SIGINT while nobody reads: exit 130" code_is 130
fi

after stdin SIGINT run "$tiny" --json --stdin
check "SIGINT while waiting for a prompt: exit 130" code_is 130
check "an error object" json "d['schema'] == 'quern.error/1' and
    d['error']['code'] == 'cancelled'"
after stdin SIGTERM run "$tiny" --stdin
check "SIGTERM while waiting for a prompt: exit 143" code_is 143
check "without --json nothing on stdout" out_empty

# A prompt of many chunks is stopped between them.
head -c 400000 /dev/zero | tr '\0' z >"$scratch/long"
after stderr SIGINT run "$model" --raw -f "$scratch/long" --ctx 1000000 \
    --max-tokens 1 --json --progress json
check "SIGINT in the prompt: exit 130" code_is 130
check "no token was made" json "d['finish_reason'] == 'cancelled' and
    d['usage']['completion_tokens'] == 0 and d['text'] == ''"

after stderr SIGINT bench "$model" --ctx 1000000 -p 1000 -n 0 -r 1000 \
    --progress json --json
check "SIGINT in bench: exit 130" code_is 130

run python3 "$root/tests/cli/on_terminal.py" -i 12 "$quern" run "$model" \
    --raw hi --ctx 1000000 --max-tokens 1000000 --ignore-eos
check "Ctrl-C on a terminal: exit 130" code_is 130
check "the counts are on a line of their own" grep -q '^prompt 2 tokens' \
    "$scratch/out"

finish
