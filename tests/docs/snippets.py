"""Runs the examples of Markdown files and compares what they print.

    snippets.py FILE...

A fenced block with lines that begin with "$ " is a session: the commands run
one after another in one folder, and the lines behind a command are what a
terminal shows then.  "..." in such a line stands for anything, and a line
"..." for any number of lines; a command without lines behind it must only
succeed.  A command that ends in a backslash goes on in the next line.  A
session whose exit codes matter shows them with `echo $?`; elsewhere only a
last line "(exit N)" allows a command to fail.

A block of C or TOML is a file; the comment at its top names it.  Sessions use
it.

A block behind the line <!-- not run: REASON --> is left alone.
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TERMINAL = os.path.join(HERE, "..", "cli", "on_terminal.py")
BAR = re.compile(r"\r[^\n]*?\r\x1b\[K")


def blocks(path):
    """(line number, language, lines) of each block that is to be run."""
    language, lines, start, skip = None, [], 0, False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if language is None and line.startswith("```"):
                language, lines, start = line[3:].strip(), [], number + 1
            elif language is not None and line == "```":
                if not skip:
                    yield start, language, lines
                language, skip = None, False
            elif language is not None:
                lines.append(line)
            elif line.strip():
                skip = line.startswith("<!-- not run: ")
    if language is not None:
        raise SystemExit(f"{path}:{start}: the block has no end")


def commands(start, lines):
    """(line number, command, expected lines) of a session."""
    at = 0
    while at < len(lines):
        first = at
        command = lines[at][2:]
        while command.endswith("\\") and at + 1 < len(lines):
            at += 1
            command += "\n" + lines[at]
        at += 1
        shown = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield start + first, command, lines[shown:at]


def pattern(lines):
    parts = []
    for line in lines:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.split("..."))) + r"\n")
    return re.compile("".join(parts))


def run_session(path, start, lines):
    failures = 0
    for number, command, expected in commands(start, lines):
        code = 0
        ending = re.fullmatch(r"\(exit (\d+)\)", expected[-1]) \
            if expected else None
        if ending:
            code = int(ending.group(1))
            expected = expected[:-1]
        p = subprocess.run([sys.executable, TERMINAL, "12", "sh", "-c", command],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=300)
        shown = BAR.sub("", p.stdout.decode("utf-8", "replace"))
        if shown and not shown.endswith("\n"):
            shown += "\n"
        wrong = (expected or ending) and not pattern(expected).fullmatch(shown)
        if p.returncode != code or wrong:
            failures += 1
            print(f"{path}:{number}: $ {command}\nexit code {p.returncode}, "
                  f"expected {code}\n{shown}")
            if wrong:
                print("expected:\n" + "\n".join(expected) + "\n")
    return failures


def main():
    failures = sessions = 0
    for path in sys.argv[1:]:
        for start, language, lines in blocks(path):
            if language in ("c", "toml"):
                name = re.match(r"(?:/\*|#) ([\w.]+):",
                                lines[0] if lines else "")
                if not name:
                    raise SystemExit(f"{path}:{start}: the first line of a "
                                     f"block of {language} names its file")
                with open(name.group(1), "w", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
            elif lines and lines[0].startswith("$ "):
                sessions += 1
                failures += run_session(path, start, lines)
            elif language == "sh":
                raise SystemExit(f"{path}:{start}: a block of sh has no "
                                 'command with "$ "')
    print(f"{sessions} sessions, {failures} failures")
    if not sessions or failures:
        sys.exit(1)


main()
