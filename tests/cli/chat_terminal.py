"""Talks to a command on a terminal.

    chat_terminal.py SCRIPT COMMAND...

Each line of SCRIPT is "wait TEXT" (until the terminal has shown it, behind
what was waited for before) or "type TEXT", in which \\r, \\n, \\t, \\x03 and
\\e (escape) are those characters.  What was shown goes to standard output; the
exit code is the command's, 99 when a wait took 20 seconds.
"""

import os
import select
import sys
import termios
import time

import terminal as terminals


def characters(text):
    text = text.replace("\\e", "\x1b")
    return text.encode("utf-8").decode("unicode_escape").encode("latin-1")


def main():
    script, command = sys.argv[1], sys.argv[2:]
    os.environ["TERM"] = "xterm"
    pid, terminal = terminals.start(command)
    shown, at = b"", 0

    def read(seconds):
        nonlocal shown
        if not select.select([terminal], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            return False
        shown += piece
        return bool(piece)

    def wait_for_keys(seconds=60):
        """The line editor shows its prompt first; a key that comes before it
        has made the terminal raw is the terminal's own (Ctrl-D: an end)."""
        end = time.monotonic() + seconds
        while (termios.tcgetattr(terminal)[3] & termios.ICANON and
               time.monotonic() < end):
            time.sleep(0.002)

    waited = b""
    for line in open(script, encoding="utf-8"):
        verb, _, text = line.rstrip("\n").partition(" ")
        text = characters(text)
        if verb == "type":
            if waited.endswith(b"2004h> "):
                wait_for_keys()
            waited = b""
            os.write(terminal, text)
            continue
        end = time.monotonic() + 60
        while text not in shown[at:]:
            if time.monotonic() > end or not read(0.5):
                sys.stdout.buffer.write(shown + b"\nNOT SHOWN: " + text)
                os.kill(pid, 9)
                return 99
        at = shown.index(text, at) + len(text)
        waited = text
    end = time.monotonic() + 60
    while read(0.5):
        if time.monotonic() > end:
            sys.stdout.buffer.write(shown + b"\nSTILL THERE")
            os.kill(pid, 9)
            return 99
    sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
    return terminals.exit_code(pid)


sys.exit(main())
