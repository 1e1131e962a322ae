#!/usr/bin/env python3
"""Compares what a library exports with the table of the MLX C API.

    check_symbols.py [--floor N] LIBRARY [TABLE ...]

Prints 'missing NAME (HEADER)' for each function of the tables that LIBRARY
does not export, then 'N of M exported'. The tables are tab-separated (header,
function, ...; '#' starts a comment) and default to the two in
tests/vectors/abi. The exports are what `nm -D --defined-only` lists.

Exit status: 0 if nothing is missing or, with --floor N, if at least N
functions are exported; 1 otherwise; 2 if the check could not be made.
"""

import argparse
import pathlib
import subprocess
import sys

VECTORS = pathlib.Path(__file__).resolve().parent.parent / "vectors" / "abi"
TABLES = [VECTORS / "functions.tsv", VECTORS / "functions-half.tsv"]

# Text, weak and indirect functions; data of the same name does not count.
FUNCTION_KINDS = frozenset("TWi")


class CheckError(Exception):
    """The check could not be made; the text says why."""


def read_table(path):
    """The (header, function) pairs of one table, in its order."""
    rows = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            columns = line.split("\t")
            if len(columns) < 3 or not columns[1].isidentifier():
                raise CheckError(f"{path}:{number}: not a row of the table")
            rows.append((columns[0], columns[1]))
    if not rows:
        raise CheckError(f"{path}: the table is empty")
    return rows


def exported(library):
    """Names of the functions in the dynamic symbol table of `library`."""
    try:
        listing = subprocess.run(
            ["nm", "-D", "--defined-only", "--", str(library)],
            check=False, capture_output=True, text=True)
    except OSError as error:
        raise CheckError(f"cannot run nm: {error}") from error
    if listing.returncode != 0:
        raise CheckError(listing.stderr.strip() or "nm failed")
    names = set()
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in FUNCTION_KINDS:
            # A versioned symbol is listed as name@@version.
            names.add(fields[2].split("@", 1)[0])
    return names


def main(argv):
    parser = argparse.ArgumentParser(
        description="Compares a library with the table of the MLX C API.")
    parser.add_argument("--floor", type=int, metavar="N",
                        help="pass if at least N functions are exported")
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("tables", type=pathlib.Path, nargs="*",
                        metavar="TABLE", default=TABLES)
    options = parser.parse_args(argv)

    try:
        wanted = [row for table in options.tables or TABLES
                  for row in read_table(table)]
        have = exported(options.library)
    except (CheckError, OSError, UnicodeDecodeError) as error:
        print(f"check_symbols: {error}", file=sys.stderr)
        return 2

    missing = [(header, name) for header, name in wanted if name not in have]
    for header, name in missing:
        print(f"missing {name} ({header})")
    found = len(wanted) - len(missing)
    print(f"{found} of {len(wanted)} exported")
    if options.floor is not None:
        return 0 if found >= options.floor else 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
