"""Runs a command with a terminal as its standard output, error or both.

    on_terminal.py [-i] FDS COMMAND...

FDS names the descriptors that are the terminal: "1", "2" or "12"; the others
are left as they are.  What the terminal got is written to standard output.
With -i the terminal's interrupt key is pressed as soon as something was
written to it.  The exit code is the command's; 128 + N when signal N ended it.
"""

import os
import sys

import terminal as terminals


def main():
    words = sys.argv[1:]
    interrupt = words[0] == "-i"
    words = words[interrupt:]
    fds, command = words[0], words[1:]
    kept = {fd: os.dup(fd) for fd in (1, 2)}

    def restore():
        for fd in kept:
            if str(fd) not in fds:
                os.dup2(kept[fd], fd)

    pid, terminal = terminals.start(command, restore)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            piece = b""
        if not piece:
            break
        if interrupt:
            os.write(terminal, b"\x03")
            interrupt = False
        shown += piece
    code = terminals.exit_code(pid)
    sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
    sys.stdout.flush()
    return code


sys.exit(main())
