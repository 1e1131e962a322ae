"""Runs a command with a terminal as its standard output, error or both.

    on_terminal.py [-i] FDS COMMAND...

FDS names the descriptors that are the terminal: "1", "2" or "12"; the others
are left as they are.  What the terminal got is written to standard output.
With -i the terminal's interrupt key is pressed as soon as something was
written to it.  The exit code is the command's; 128 + N when signal N ended it.
"""

import os
import pty
import sys
import termios


def keep_output():
    """The kernel sends the signal of an interrupt key first; then it throws
    away what waits to be read and shows ^C, in the midst of what the command
    wrote meanwhile.  Neither is wanted here.  The command sets modes of its
    own: it must not have begun."""
    modes = termios.tcgetattr(0)
    modes[3] = (modes[3] | termios.NOFLSH) & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)


def main():
    words = sys.argv[1:]
    interrupt = words[0] == "-i"
    words = words[interrupt:]
    fds, command = words[0], words[1:]
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    pid, terminal = pty.fork()
    if not pid:
        keep_output()
        for fd in kept:
            if str(fd) not in fds:
                os.dup2(kept[fd], fd)
        os.execvp(command[0], command)
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
    status = os.waitpid(pid, 0)[1]
    sys.stdout.buffer.write(shown.replace(b"\r\n", b"\n"))
    sys.stdout.flush()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


sys.exit(main())
