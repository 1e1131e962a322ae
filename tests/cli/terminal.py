"""What on_terminal.py and chat_terminal.py have in common."""

import os
import pty
import termios


def keep_output():
    """The kernel sends the signal of an interrupt key first; then it throws
    away what waits to be read and shows ^C, in the midst of what the command
    wrote meanwhile.  Neither is wanted here.  The command sets modes of its
    own: it must not have begun."""
    modes = termios.tcgetattr(0)
    modes[3] = (modes[3] | termios.NOFLSH) & ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)


def start(command, prepare=lambda: None):
    """Begins the command on a terminal of its own, after `prepare`, and returns
    its number and the terminal's other side."""
    pid, terminal = pty.fork()
    if not pid:
        keep_output()
        prepare()
        os.execvp(command[0], command)
    return pid, terminal


def exit_code(pid):
    """The command's, once it has ended; 128 + N when signal N ended it."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code
