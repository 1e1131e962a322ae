#!/usr/bin/env python3
"""Runs the benches and writes docs/benchmarks.md.

    bench.py [--build FOLDER] [--quick] [--only PART,...] [--write FILE]

Parts: demo, models, batch, memory, start, gemm, kernels (parts.py).  Results
are kept in BUILD/bench-results.json (those of --quick elsewhere); with --only
the other parts stay as they were measured before.  Each part notes its
commit, when it began, and how busy others kept the machine.  What can't be
measured is reported as such and the rest goes on.

Exit codes: 0; 1 a part could not be measured; 2 usage.  A target that is
missed is no failure: it stands in the document."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time

import machine
import parts
import report


def cpu_seconds():
    """Seconds that all processors together were busy, by the kernel's count,
    the host's share included."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _wait, irq, soft, steal = fields
    return (user + nice + system + irq + soft + steal) \
        / os.sysconf("SC_CLK_TCK")


def own_seconds():
    total = 0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def commit():
    """What is measured: the commit, "+" behind it where files differ from it,
    but for the document that this program writes."""
    def git(*args):
        return subprocess.run(["git", "-C", parts.ROOT, *args], text=True,
                              capture_output=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".",
                  ":!docs/benchmarks.md")
    head = git("rev-parse", "--short=10", "HEAD")
    return (head or "unknown") + ("+" if changed else "")


def run_part(setup, name):
    part = {"date": time.strftime("%Y-%m-%d %H:%M"), "commit": commit()}
    began, busy, own = time.monotonic(), cpu_seconds(), own_seconds()
    try:
        part["data"] = parts.PARTS[name](setup)
    except parts.Missing as missing:
        part["missing"] = str(missing)
        print(f"bench: {name}: {missing}", file=sys.stderr)
    seconds = time.monotonic() - began
    part["seconds"] = seconds
    others = cpu_seconds() - busy - (own_seconds() - own)
    part["others"] = max(0.0, others / seconds)
    return part


def limits(setup):
    if not setup.meter:
        return {}
    return {str(n): {"read": setup.meter.read(n),
                     "flops": setup.meter.flops(n),
                     "dot8": setup.meter.dot8(n)}
            for n in sorted({1, setup.threads})}


def describe_machine(setup):
    return {"processor": machine.processor(),
            "processors": setup.threads, "system": machine.system(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "limits": limits(setup)}


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0]


def versions(setup):
    return {
        "quern": first_line([setup.quern, "--version"]),
        "built by": first_line(["cc", "--version"]),
        "llama.cpp": "of llama-cpp-python " + first_line(
            [os.path.join(parts.HERE, "llama_source.sh"), "--version"])
        + ", built natively here",
        "Python": platform.python_version(),
    }


def read_earlier(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)["parts"]
    except (OSError, ValueError, KeyError):
        return {}


def save(path, text):
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", default=os.path.join(parts.ROOT, "build"))
    p.add_argument("--quick", action="store_true",
                   help="few rounds, part of the kernels")
    p.add_argument("--only", metavar="PART,...",
                   default=",".join(parts.PARTS))
    p.add_argument("--write", metavar="FILE", help="write the document there")
    args = p.parse_args()
    args.only = [name for name in args.only.split(",") if name]
    for name in args.only:
        if name not in parts.PARTS:
            p.error(f"--only: no part '{name}' ({', '.join(parts.PARTS)})")
    return args


def main():
    args = arguments()
    setup = parts.Setup(args.build, args.quick)
    if machine.load() > 0.5:
        print(f"bench: the machine is not quiet (load {machine.load():.1f})",
              file=sys.stderr)
    name = "bench-quick.json" if args.quick else "bench-results.json"
    path = os.path.join(setup.build, name)
    results = {"quick": args.quick, "machine": describe_machine(setup),
               "versions": versions(setup), "parts": read_earlier(path)}
    for name in args.only:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        results["parts"][name] = run_part(setup, name)
        save(path, json.dumps(results, indent=1))
    for name in args.only:
        print(report.section(results, name)[0])
    if args.write:
        text, checks = report.document(results)
        save(args.write, text)
        print(f"{sum(c.met for c in checks)} of {len(checks)} targets met; "
              f"{args.write}")
    if any("missing" in results["parts"][name] for name in args.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
