#!/usr/bin/env python3
"""The speed of the operations, beside MLX and PyTorch in one run.

The engines take turns on the same numbers, with the same number of threads;
between them the machine's own rate is measured.  The ratio of each round is
taken before the median, since neighbours in time see the same machine.

Every result is compared with the others'.  Prints a line per cell, then the
geometric means and the checks.  Exit codes: 0; 1 results differ or something
failed; 9 a check was not met.
"""

import argparse
import ctypes
import gc
import math
import os
import statistics
import sys
import time

import numpy as np

import cells
import engines

METERS = {"read": 0, "write": 1, "copy": 2, "add": 3}
MIN_SAMPLE = 0.004  # seconds; shorter work is repeated
MOST_SECONDS = 2.0  # of one engine in one cell, but for the fewest samples
FEWEST = 2


class Meters:
    def __init__(self, library, threads):
        lib = ctypes.CDLL(library)
        lib.meter_bandwidth.restype = lib.meter_flops.restype = \
            ctypes.c_double
        self.lib, self.threads = lib, threads

    def rate(self, name):
        """Bytes or operations per second."""
        if name == "flops":
            return self.lib.meter_flops(self.threads, 1)
        return self.lib.meter_bandwidth(METERS[name], self.threads, 1)


def timed(work, repeats):
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def close(cell, a, b):
    if a.shape != b.shape:
        return False
    return np.allclose(a.astype(np.complex128), b.astype(np.complex128),
                       atol=cell.tolerance, rtol=1e-2 if cell.tolerance > 1e-3
                       else 1e-4, equal_nan=True)


def compare(cell, sides, results):
    """The names of engines whose result is not quern's."""
    ours = results["quern"]
    return [n for n in sides if n not in cell.unlike
            and not close(cell, ours, results[n])]


def measure(cell, loaded, meters, rounds):
    """Seconds of each engine in each round, rates of the meter, and who
    differs.  None where an engine did not run in that round."""
    works = {n: w for n, w in cell.make(loaded).items() if w}
    results, repeats, spent = {}, {}, dict.fromkeys(works, 0.0)
    for name, work in works.items():
        began = time.perf_counter()
        result = work()
        took = time.perf_counter() - began
        if took < 1:  # the first time has page faults and plans in it
            took = timed(work, 1)
        results[name] = loaded[name].numpy(result)
        del result
        repeats[name] = max(1, math.ceil(MIN_SAMPLE / max(took, 1e-7)))
    different = compare(cell, works, results)
    results.clear()
    times = {n: [] for n in works}
    rates = []
    meter = cell.meter or ("flops" if cell.flops else None)
    for i in range(rounds):
        if meter:
            rates.append(meters.rate(meter))
        for name, work in works.items():
            if i >= FEWEST and spent[name] > MOST_SECONDS:
                times[name].append(None)
                continue
            # Threads of the others go to sleep, ours wake up.
            time.sleep(0.002)
            if repeats[name] > 1:
                work()
            times[name].append(timed(work, repeats[name]))
            spent[name] += times[name][-1] * repeats[name]
    gc.collect()
    return times, rates, different


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio(theirs, ours):
    """How many times as fast as theirs ours is."""
    return median([t / o for t, o in zip(theirs, ours)
                   if t is not None and o is not None])


class Row:
    def __init__(self, cell, times, rates, different):
        self.cell, self.different = cell, different
        ours = times["quern"]
        self.seconds = {n: median(t) for n, t in times.items()}
        self.mlx = ratio(times["mlx"], ours) if "mlx" in times else None
        self.torch = ratio(times["torch"], ours) if "torch" in times else None
        amount = cell.bytes if cell.meter else cell.flops
        self.share = self.rate = None
        if rates:
            self.rate = amount / self.seconds["quern"]
            self.share = median([amount / t / r for t, r in zip(ours, rates)
                                 if t is not None and r])

    def faults(self, wanted):
        out = []
        if self.different:
            out.append("DIFFERS from " + ", ".join(self.different))
        if self.mlx is not None and self.mlx < wanted.least_mlx:
            out.append("below %g x MLX" % wanted.least_mlx)
        if self.cell.checked and self.share is not None and \
                self.share < wanted.share:
            out.append("below %.0f %%" % (100 * wanted.share))
        return out

    def line(self, wanted):
        def ms(name):
            s = self.seconds.get(name)
            return "%9.3f" % (s * 1e3) if s is not None else "        -"

        def times(x):
            return "%7.2f" % x if x is not None else "      -"
        share = "          -     -"
        if self.share is not None:
            unit = "GB/s  " if self.cell.meter else "GFLOPS"
            share = "%7.1f %s %3.0f%%" % (self.rate / 1e9, unit,
                                          100 * self.share)
        faults = self.faults(wanted)
        return "%-46s %s %s %s %s %s  %-19s %s" % (
            self.cell.name, ms("quern"), ms("mlx"), ms("torch"),
            times(self.mlx), times(self.torch), share,
            "NOT MET: " + "; ".join(faults) if faults else "met")


def geometric(values):
    values = [v for v in values if v]
    return math.exp(sum(map(math.log, values)) / len(values)) if values \
        else None


def summary(rows, wanted):
    """Prints the checks; whether all are met."""
    good = True

    def check(text, value, met):
        nonlocal good
        good = good and met
        print("%-52s %s   %s" % (text, value, "met" if met else "NOT MET"))

    print()
    groups = {}
    for r in rows:
        groups.setdefault(r.cell.group, []).append(r)
    for name, some in groups.items():
        texts = []
        for peer in ("mlx", "torch"):
            mean = geometric([getattr(r, peer) for r in some])
            if mean:
                texts.append("%7.2f x %s" % (mean, peer))
        print("%-20s %s" % (name, "  ".join(texts)))
    print()
    if any(r.mlx for r in rows):
        mean = geometric([r.mlx for r in rows])
        check("geometric mean, x MLX (at least %g)" % wanted.mean_mlx,
              "%7.2f" % mean, mean >= wanted.mean_mlx)
        low = min((r for r in rows if r.mlx), key=lambda r: r.mlx)
        check("least, x MLX (at least %g)" % wanted.least_mlx,
              "%7.2f (%s)" % (low.mlx, low.cell.name),
              low.mlx >= wanted.least_mlx)
    if any(r.torch for r in rows):
        mean = geometric([r.torch for r in rows])
        check("geometric mean, x PyTorch (at least %g)" % wanted.mean_torch,
              "%7.2f" % mean, mean >= wanted.mean_torch)
    bound = [r for r in rows if r.cell.checked and r.share is not None]
    if bound:
        met = [r for r in bound if r.share >= wanted.share]
        check("elementwise, reductions, copies at %.0f %% of bandwidth" %
              (100 * wanted.share), "%d of %d" % (len(met), len(bound)),
              len(met) == len(bound))
    return good


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=None, help="build folder")
    p.add_argument("--filter", default="", metavar="TEXT[,TEXT]",
                   help="only cells whose group or name has one of these")
    p.add_argument("--without", default="", metavar="ENGINE[,ENGINE]")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--list", action="store_true", help="only name the cells")
    p.add_argument("--mean-mlx", type=float, default=10)
    p.add_argument("--least-mlx", type=float, default=2)
    p.add_argument("--mean-torch", type=float, default=1)
    p.add_argument("--share", type=float, default=0.7)
    args = p.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__))))
    args.build = args.build or os.path.join(root, "build")
    return args


def chosen(args):
    words = [w for w in args.filter.split(",") if w]
    return [c for c in cells.all_cells()
            if not words or any(w == c.group or w in c.name for w in words)]


def main():
    args = arguments()
    some = chosen(args)
    if args.list or not some:
        for c in some:
            print("%-12s %s" % (c.group, c.name))
        return 0 if some else 2
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))[:args.threads]
        if len(cpus) < args.threads:
            print("ops: %d processors for %d threads" %
                  (len(cpus), args.threads), file=sys.stderr)
            return 1
        os.sched_setaffinity(0, cpus)
    without = args.without.split(",")
    loaded = {
        "quern": engines.Quern(os.path.join(args.build, "libmlxc.so"),
                               args.threads),
        "mlx": None if "mlx" in without else engines.Mlx(),
        "torch": None if "torch" in without else engines.Torch(args.threads)}
    meters = Meters(os.path.join(args.build, "libquern-bench-meters.so"),
                    args.threads)
    for name in METERS:
        meters.rate(name)  # touches the memory
        print("%-6s %6.1f GB/s" % (name, max(
            meters.rate(name) for _ in range(5)) / 1e9))
    print("fma    %6.1f GFLOP/s" % (meters.rate("flops") / 1e9))
    print("\n%-46s %9s %9s %9s %7s %7s" % (
        "milliseconds", "quern", "mlx", "torch", "x mlx", "x torch"))
    rows, group = [], None
    for cell in some:
        if cell.group != group:
            group = cell.group
            print(group)
        row = Row(cell, *measure(cell, loaded, meters, args.rounds))
        rows.append(row)
        print(row.line(args), flush=True)
    good = summary(rows, args)
    if any(r.different for r in rows):
        return 1
    return 0 if good else 9


if __name__ == "__main__":
    sys.exit(main())
