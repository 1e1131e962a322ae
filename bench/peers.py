#!/usr/bin/env python3
"""Compares quern with llama.cpp's llama-bench on model files and this machine.

The two take turns, quern first, for a number of rounds; both get the same
file, threads and repetitions.  Neighbours in time see the same machine, so
the ratio of each round is taken before the median: a slow minute hurts both
sides of a pair and leaves the ratio alone.

A column "of limit" stands where the build has its meters (the target
quern-bench-meters).  They run before each round, with as many threads:

  decoding  the bytes of the file's weights that a token needs, times tokens
            per second, beside the bytes per second that threads doing
            nothing else read from memory
  prompts   the multiply-adds of the weights, times tokens per second, times
            two, beside the multiply-adds of 8-bit integers that the processor
            does on registers: two, since quern's activations have two bytes

Exit codes: 0; 1 a program failed or printed something unexpected; 2 usage;
3 no such file; 9 the wanted ratio was not met.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys

import machine

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def fail(code, text):
    raise Failure(code, text)


def say(text):
    print("peers: " + text, file=sys.stderr, flush=True)


# ---- programs ----


def lines_of(command):
    """The JSON objects that a program prints, one a line."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode:
        reason = "\n".join(done.stderr.splitlines()[-5:])
        fail(1, f"{' '.join(command)} failed ({done.returncode}):\n{reason}")
    try:
        return [json.loads(line) for line in done.stdout.splitlines()
                if line.startswith("{")]
    except ValueError as problem:
        return fail(1, f"{command[0]}: unexpected output: {problem}")


def run_quern(args, model, threads):
    """{test: line} of one round."""
    command = [args.quern, "bench", model, "-p", str(args.prompt), "-n",
               str(args.decode), "-r", str(args.reps), "--threads",
               str(threads), "--json"]
    return {line["test"]: line for line in lines_of(command)}


def run_llama(args, model, threads):
    """{test: tokens per second} of one round."""
    out = {}
    for line in lines_of([args.llama_bench, "-m", model, "-p",
                          str(args.prompt), "-n", str(args.decode), "-r",
                          str(args.reps), "-t", str(threads), "-o", "jsonl"]):
        test = f"pp{line['n_prompt']}" if line["n_prompt"] \
            else f"tg{line['n_gen']}"
        out[test] = float(line["avg_ts"])
    return out


# ---- what a token costs ----


class Cost:
    """What the header says that a token needs."""

    def __init__(self, quern, model):
        shown, = lines_of([quern, "show", model, "--json"])
        embedding = shown["vocab_size"] * shown["hidden_size"]
        parameters, size = shown["parameters"], shown["weight_bytes"]
        # An embedding that is not the output too is looked up, not multiplied.
        unused = 0 if shown["tied_embeddings"] else embedding
        self.bytes = size * (1 - unused / parameters)
        self.weights = parameters - unused
        self.output = embedding
        self.file_bytes = size
        self.kv_bytes = shown["kv_bytes_per_token"]

    def share(self, test, rate, limits):
        """How much of what the machine can do `rate` tokens per second take;
        None where it is not known."""
        count = int(test[2:])
        if test.startswith("tg"):
            return self.bytes * rate / limits["read"]
        # Only the last token of a prompt has logits.
        each = self.weights - self.output + self.output / count
        return 2 * each * rate / limits["dot8"] if limits["dot8"] else None


def measure_limits(meter, threads):
    return {"read": meter.read(threads), "dot8": meter.dot8(threads)}


# ---- a model ----


class Pair:
    """What quern gets, and what llama.cpp gets: another file where it does
    not know the first one's format."""

    def __init__(self, text):
        self.quern, _, other = text.partition(",")
        self.llama = other or self.quern
        for path in (self.quern, self.llama):
            if not os.path.exists(path):
                fail(3, f"no such file: {path}")
        self.name = os.path.basename(os.path.normpath(self.quern))
        self.llama_name = os.path.basename(self.llama)


def warm(path):
    """Reads the files, so that neither side pays for it."""
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in os.listdir(path)]
    for name in files:
        with open(name, "rb") as file:
            while file.read(1 << 24):
                pass


def compare(args, pair, threads, meter):
    """The cells of one model with so many threads."""
    cost = Cost(args.quern, pair.quern) if meter else None
    rounds = []
    for i in range(args.rounds):
        say(f"{pair.name}, {threads} threads, round {i + 1} of {args.rounds}")
        limits = measure_limits(meter, threads) if meter else None
        ours = run_quern(args, pair.quern, threads)
        theirs = run_llama(args, pair.llama, threads)
        rounds.append((limits, ours, theirs))
    tests = [f"pp{args.prompt}"] * (args.prompt > 0) + \
        [f"tg{args.decode}"] * (args.decode > 0)
    return [cell(pair, threads, test, rounds, cost) for test in tests]


def cell(pair, threads, test, rounds, cost):
    try:
        ours = [float(quern[test]["tokens_per_s"]) for _, quern, _ in rounds]
        theirs = [llama[test] for _, _, llama in rounds]
        peaks = [quern[test].get("peak_bytes", 0) for _, quern, _ in rounds]
    except KeyError as missing:
        fail(1, f"{test}: no result has {missing}")
    if min(theirs) <= 0:
        fail(1, f"{test}: llama-bench reports no speed")
    ratios = [o / t for o, t in zip(ours, theirs)]
    out = {"model": pair.name, "peer_model": pair.llama_name,
           "threads": threads, "test": test,
           "quern": statistics.median(ours),
           "llama": statistics.median(theirs),
           "ratio": statistics.median(ratios),
           "least": min(ratios), "most": max(ratios),
           "rounds": len(rounds), "peak_bytes": max(peaks)}
    if cost:
        shares = [cost.share(test, rate, limits)
                  for rate, (limits, _, _) in zip(ours, rounds)]
        out["file_bytes"] = cost.file_bytes
        out["kv_bytes"] = cost.kv_bytes * int(test[2:])
        if None not in shares:
            out["share"] = statistics.median(shares)
    return out


# ---- the table ----


def checksum(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
    return digest.hexdigest()[:16]


def print_head(pair):
    print(f"model    {pair.name}", end="")
    if os.path.isfile(pair.quern):
        print(f"  sha256 {checksum(pair.quern)}", end="")
    print()
    if pair.llama != pair.quern:
        print(f"         llama.cpp: {pair.llama_name}, since it can't read "
              "the other")
    print(f"machine  {machine.processor()}, {machine.processors()} CPUs, "
          f"{machine.system()}")


def print_cells(args, threads, cells):
    print(f"setup    {threads} threads, {args.rounds} rounds of {args.reps} "
          "repetitions, in turns")
    print(f"{'test':<8}{'quern tok/s':>14}{'llama.cpp tok/s':>18}{'ratio':>8}"
          "   lowest..highest   of limit")
    for c in cells:
        share = f"{100 * c['share']:8.0f} %" if "share" in c else ""
        print(f"{c['test']:<8}{c['quern']:>14.1f}{c['llama']:>18.1f}"
              f"{c['ratio']:>8.3f}   {c['least']:.3f}..{c['most']:.3f}  "
              f"{share}", flush=True)


# ---- arguments ----


def count(text):
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def counts(text):
    return [count(part) for part in text.split(",")]


def size(text):
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rounds", type=count, default=5, help="pairs (5)")
    p.add_argument("--reps", type=count, default=3,
                   help="repetitions of a test within a round (3)")
    p.add_argument("--threads", type=counts, metavar="N[,N]",
                   default=[machine.processors()],
                   help="for both (the CPUs this process may use)")
    p.add_argument("--prompt", type=size, default=512,
                   help="length of the prompt (512), 0: no such test")
    p.add_argument("--decode", type=size, default=64,
                   help="tokens to decode (64), 0: no such test")
    p.add_argument("--model", action="append", metavar="FILE[,FILE]",
                   help="repeatable; a second file is for llama.cpp\n"
                        "(the demo model, scripts/fetch-model.sh)")
    p.add_argument("--quern", default=os.path.join(ROOT, "build", "quern"),
                   help="program (build/quern)")
    p.add_argument("--llama-bench", metavar="PATH",
                   help="program (peers.sh builds it)")
    p.add_argument("--results", metavar="FILE",
                   help="write the cells there, as JSON")
    p.add_argument("--min-ratio", type=float, default=0, metavar="X",
                   help="exit 9 when a median ratio is below X")
    return p.parse_args()


def demo_model():
    done = subprocess.run([os.path.join(ROOT, "scripts", "fetch-model.sh")],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        fail(done.returncode, "no demo model")
    return done.stdout.strip()


def measure(args):
    if not args.llama_bench:
        fail(2, "--llama-bench: needed (bench/peers.sh gives it)")
    for program in (args.quern, args.llama_bench):
        if not os.access(program, os.X_OK):
            fail(3, f"no such program: {program}")
    pairs = [Pair(text) for text in args.model or [demo_model()]]
    meter = machine.find_limits(os.path.dirname(args.quern))
    cells = []
    for pair in pairs:
        warm(pair.quern)
        warm(pair.llama)
        print_head(pair)
        for threads in args.threads:
            cells += compare(args, pair, threads, meter)
            print_cells(args, threads,
                        [c for c in cells if c["model"] == pair.name
                         and c["threads"] == threads])
    if args.results:
        with open(args.results, "w", encoding="utf-8") as file:
            json.dump(cells, file, indent=1)
    return cells


def main():
    args = arguments()
    try:
        cells = measure(args)
    except Failure as failure:
        say(str(failure))
        sys.exit(failure.code)
    except (KeyError, TypeError, ValueError) as problem:
        say(f"unexpected output: {problem!r}")
        sys.exit(1)
    missed = [f"{c['test']} {c['ratio']:.3f}" for c in cells
              if c["ratio"] < args.min_ratio]
    if missed:
        say(f"below the wanted ratio {args.min_ratio:g}: {', '.join(missed)}")
        sys.exit(9)


if __name__ == "__main__":
    main()
