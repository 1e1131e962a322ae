#!/usr/bin/env python3
"""Writes src/text/unicode_ranges.def: the general category of every code
point, as runs of equal ones.

    make_unicode.py             check the file; exit 1 when it is stale
    make_unicode.py --update    write it

The data is that of the Python package unicodedata2, whose version is that of
Unicode (scripts/requirements.txt pins 16.0.0).  No part of `make check`: the
file is.
"""
import pathlib
import sys

import unicodedata2

VERSION = "16.0.0"
FILE = pathlib.Path(__file__).resolve().parents[2] / "src/text/unicode_ranges.def"
HEAD = f"""/* unicode_ranges.def: general categories of Unicode {VERSION}, made by
 * tests/tools/make_unicode.py.  Each row is a run of code points that begins
 * where the one before ends: its category and the code point after its last.
 * What follows the last row is not assigned (CN).
 *
 * clang-format off */
QN_UNICODE_VERSION("{VERSION}")
"""


def runs():
    """(category, end) of each run."""
    found = []
    for code in range(0x110000):
        category = unicodedata2.category(chr(code)).upper()
        if not found or found[-1][0] != category:
            found.append([category, code + 1])
        found[-1][1] = code + 1
    if found[-1][0] == "CN":
        found.pop()
    return found


def text():
    assert unicodedata2.unidata_version == VERSION, unicodedata2.unidata_version
    lines, line = [], ""
    for category, end in runs():
        row = f"QN_RANGE({category}, 0x{end:X})"
        if len(line) + len(row) > 79:
            lines.append(line)
            line = ""
        line += (" " if line else "") + row
    return HEAD + "\n".join(lines + [line]) + "\n"


def main():
    wanted = text()
    if "--update" in sys.argv[1:]:
        FILE.write_text(wanted)
    elif not FILE.exists() or FILE.read_text() != wanted:
        print(f"{FILE} is stale")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
