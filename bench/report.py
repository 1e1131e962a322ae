#!/usr/bin/env python3
"""Makes docs/benchmarks.md of the results that bench.py wrote.

    report.py RESULTS.json [FILE]      default: standard output

Every cell that has a target is a Check; those that miss it, and whatever could
not be measured, are listed at the front."""

import json
import re
import sys

MB = 1e6

# The goals; ratios are to llama.cpp unless a row says other.
DEMO = {"pp": 3.0, "tg": 1.4}
MODELS = {"pp": 2.0, "tg": 1.15}
BATCH = 3.0
RESIDENT = 40 * MB  # beside the file and the cache
REPACKED = 1.1      # of the file
START = 0.25        # seconds
BLAS = 0.9
BF16 = 1.5
QUIET = 0.1         # processors that others may use while a part runs

TITLES = {
    "demo": "The demo model beside llama.cpp",
    "models": "Models of 1B shape beside llama.cpp",
    "batch": "Eight sequences at once",
    "memory": "Memory",
    "start": "Start to first token",
    "gemm": "Dense products beside OpenBLAS",
    "kernels": "Kernels beside the machine's limits",
}


FEW = 3  # cells of a group that are listed one by one


class Check:
    """A cell with a target.  `group` names the cells that are summed up
    together where many of them miss it."""

    def __init__(self, part, what, value, target, met, group=None):
        self.part, self.what, self.met = part, what, met
        self.value, self.target, self.group = value, target, group


def listed(checks):
    """Rows for the checks that miss."""
    done = set()
    for check in checks:
        alike = [c for c in checks if c.group and c.part == check.part
                 and c.group == check.group]
        missed = [c for c in alike if not c.met]
        if check.met or (check.part, check.group) in done:
            continue
        if len(missed) <= FEW:
            yield [TITLES[check.part], check.what, check.value, check.target]
            continue
        done.add((check.part, check.group))
        worst = min(missed, key=lambda c: float(c.value))
        yield [TITLES[check.part],
               f"{check.group}: {len(missed)} of {len(alike)} cells, marked "
               "below", f"from {worst.value} ({worst.what})", check.target]


class Report:
    def __init__(self, results):
        self.results, self.checks, self.lines = results, [], []

    def add(self, *lines):
        self.lines += lines

    def at_least(self, part, what, value, target, group=None):
        met = value >= target
        self.checks.append(Check(part, what, f"{value:.2f}",
                                 f"at least {target:.2f}", met, group))
        return "" if met else "**missed**"

    def at_most(self, part, what, value, target, show):
        met = value <= target
        self.checks.append(Check(part, what, show.format(value),
                                 "at most " + show.format(target), met))
        return "" if met else "**missed**"

    def missing(self, part, what, reason):
        self.checks.append(Check(part, what, "not measured", reason, False))

    def table(self, head, rows):
        self.add("| " + " | ".join(head) + " |",
                 "|" + "---|" * len(head))
        for row in rows:
            cells = [cell.replace("|", "\\|") for cell in row]
            self.add("| " + " | ".join(cells) + " |")
        self.add("")


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def per_cent(value):
    return f"{100 * value:.0f} %"


# ---- parts ----

KINDS = {"pp": "prompt of {}", "tg": "decoding {}"}


def test_name(test):
    return KINDS[test[:2]].format(test[2:])


def peer_rows(report, part, cells, targets):
    for cell in cells:
        test = test_name(cell["test"])
        target = targets[cell["test"][:2]]
        what = f"{cell['model']}, {test}, {threads_of(cell['threads'])}"
        other = cell["peer_model"] != cell["model"]
        missed = report.at_least(part, what, cell["ratio"], target)
        yield [cell["model"], test, str(cell["threads"]),
               number(cell["quern"]),
               number(cell["llama"]) + (f" ({cell['peer_model']})"
                                        if other else ""),
               f"{cell['ratio']:.2f}",
               f"{cell['least']:.2f} to {cell['most']:.2f}",
               f"{target:g}",
               per_cent(cell["share"]) if "share" in cell else "?", missed]


def threads_of(count):
    return f"{count} thread" + ("s" if count != 1 else "")


def times(data):
    return f"Rounds, in turns: {data['rounds']}; repetitions in each: " \
           f"{data['reps']}."


PEER_HEAD = ["model", "test", "threads", "quern, tokens/s",
             "llama.cpp, tokens/s", "ratio", "of rounds", "target",
             "of limit", ""]


def show_demo(report, data):
    report.add(f"{times(data)} A ratio is the median of the ratios of the "
               "rounds.", "")
    report.table(PEER_HEAD, peer_rows(report, "demo", data["cells"], DEMO))


def show_models(report, data):
    report.add("Random weights in the shape of Llama-3.2-1B, every matrix of "
               f"one type (`bench/models.py`). {times(data)} llama.cpp can't "
               "read the MLX "
               "directory: beside it stands the file named, which has as many "
               "bits a weight.", "")
    report.table(PEER_HEAD, peer_rows(report, "models", data["cells"],
                                      MODELS))
    report.add("Memory of these runs: the most that was resident, without the "
               "cache of keys and values and 40 MB for everything else, "
               "beside the weights in the file.", "")
    report.table(["model", "file, MB", "resident, MB", "ratio", "target", ""],
                 resident_rows(report, data["cells"]))


def resident_rows(report, cells):
    peaks = {}
    for cell in cells:
        if cell.get("peak_bytes") and "file_bytes" in cell:
            ours = cell["peak_bytes"] - cell["kv_bytes"] - RESIDENT
            before = peaks.get(cell["model"], (0, 0, 0))
            peaks[cell["model"]] = max(before, (ours / cell["file_bytes"],
                                                cell["file_bytes"],
                                                cell["peak_bytes"]))
    for model, (ratio, size, peak) in peaks.items():
        missed = report.at_most("models", f"{model}, memory over file", ratio,
                                REPACKED, "{:.2f}")
        yield [model, number(size / MB), number(peak / MB), f"{ratio:.2f}",
               f"{REPACKED:g}", missed]


def show_batch(report, data):
    rows = []
    for row in data["rows"]:
        if "missing" in row:
            report.missing("batch", row["model"], row["missing"])
            rows.append([row["model"], "", "", "", f"{BATCH:g}",
                         f"**not measured**: {row['missing']}"])
            continue
        missed = report.at_least("batch", row["model"], row["ratio"], BATCH)
        rows.append([row["model"], number(row["one"]), number(row["eight"]),
                     f"{row['ratio']:.2f}", f"{BATCH:g}", missed])
    report.add("Tokens per second of decoding 64 tokens, all sequences "
               "together.", "")
    report.table(["model", "one sequence", "eight", "ratio", "target", ""],
                 rows)


def show_memory(report, data):
    rows = []
    for row in data["rows"]:
        most = row["file"] + row["kv"] + RESIDENT
        what = f"prompt of {row['prompt']}, answer of {row['answer']}"
        missed = report.at_most("memory", what, row["peak"] / MB, most / MB,
                                "{:.0f} MB")
        llama = row.get("llama_peak")
        rows.append([what, number(row["peak"] / MB), number(row["file"] / MB),
                     number(row["kv"] / MB), number(most / MB),
                     number(llama / MB) if llama else "?", missed])
    report.add("The most that a process of `quern run` with the demo model "
               "had resident (the kernel's high-water mark), beside the file, "
               "keys and values of the tokens, and 40 MB. llama.cpp's is that "
               "of a llama-bench process which computes as many tokens; it "
               "maps the file.", "")
    report.table(["run", "resident, MB", "file, MB", "keys and values, MB",
                  "target, MB", "llama-bench, MB", ""], rows)


def show_start(report, data):
    ours, theirs = data["quern"], data["llama"]
    missed = report.at_most("start", f"prompt of {data['prompt']}",
                            ours["median"], START, "{:.3f} s")
    report.add("`quern run` with the demo model: from starting the process to "
               "the first byte of the answer, with a warm file cache; "
               f"{data['runs']} runs, in turns with a llama-bench process "
               "that loads the same file and computes as long a prompt (without "
               "tokenizer and text).", "")
    report.table(["prompt", "quern, s", "least to most", "target, s",
                  "llama-bench, s", "least to most", ""],
                 [[f"{data['prompt']} tokens", f"{ours['median']:.3f}",
                   f"{ours['least']:.3f} to {ours['most']:.3f}", f"{START:g}",
                   f"{theirs['median']:.3f}",
                   f"{theirs['least']:.3f} to {theirs['most']:.3f}", missed]])


def verbatim(report, text):
    report.add("```", *text.rstrip().splitlines(), "```", "")


GEMM_ROW = re.compile(r"(xw\S*) M(\d+) N(\d+) K(\d+) ")


def gemm_row(report, line, title):
    """A row of bench/gemm: its name, the rate of each engine, ratios."""
    found = GEMM_ROW.match(line)
    what = f"{found.group(1)}, {' x '.join(found.group(2, 4, 3))}"
    rates = dict(re.findall(r"\b(f32|bf16|f16|blas) +(\d+\.\d G\S+)", line))
    row, missed = [what], []
    for name in ("f32", "bf16", "f16", "blas"):
        row.append(rates.get(name, "?"))
    for name, target in (("f32/blas", BLAS), ("bf16/f32", BF16)):
        ratio = re.search(re.escape(name) + r" (\d+\.\d+)", line)
        row.append(ratio.group(1) if ratio else "?")
        if not ratio:
            report.missing("gemm", f"{what}, {title}, {name}", line)
        elif report.at_least("gemm", what, float(ratio.group(1)), target,
                             f"{name}, {title}"):
            missed.append(name)
    return row + [f"**missed** {', '.join(missed)}" if missed else ""]


def show_gemm(report, data):
    """The rates are those that bench/gemm prints; lines before its rows tell
    of the library and the threads."""
    report.add("x of M rows times a matrix w, M x K x N, or the transpose of "
               "one: GF (GFLOP/s), or GB/s of w. Targets: float32 at "
               f"{BLAS:g} of OpenBLAS (blas), bfloat16 at {BF16:g} times our "
               "own float32 where the processor has instructions for it.", "")
    title, rows = "", []

    def finish():
        if rows:
            report.table(["product", "f32", "bf16", "f16", "blas", "f32/blas",
                          "bf16/f32", ""], rows)
        rows.clear()
    for line in data["text"].splitlines():
        if GEMM_ROW.match(line):
            rows.append(gemm_row(report, line, title))
        elif line.strip():
            finish()
            threads = re.search(r"\d+ threads?\b", line)
            title = threads.group() if threads else title
            report.add(line, "")
    finish()
    if not any(check.part == "gemm" for check in report.checks):
        report.missing("gemm", "ratios", "none in the output of bench/gemm")


def show_kernels(report, data):
    report.add("Times of the fastest of several runs. GFLOP/s are beside the "
               "multiply-adds that the same instruction set does on "
               "registers, GB/s beside what the same threads read from "
               "memory; more than 100 % comes from caches.", "")
    verbatim(report, data["text"])


SHOW = {"demo": show_demo, "models": show_models, "batch": show_batch,
        "memory": show_memory, "start": show_start, "gemm": show_gemm,
        "kernels": show_kernels}


# ---- the document ----


def show_part(report, name):
    part = report.results["parts"].get(name)
    report.add(f"## {TITLES[name]}", "")
    if part is None:
        part = {"missing": "not part of this run"}
    if "missing" in part:
        report.missing(name, "all of it", part["missing"])
        report.add(f"**Not measured**: {part['missing']}", "")
        return
    SHOW[name](report, part["data"])


def machine_lines(results):
    m, versions = results["machine"], results["versions"]
    yield f"- {m['processor']}, {m['processors']} CPUs, " \
          f"{m['memory'] / 2**30:.1f} GiB, {m['system']}"
    for count, limit in sorted(m["limits"].items(), key=lambda x: int(x[0])):
        dots = f"{limit['dot8'] / 1e9:.0f} G/s" if limit["dot8"] else "none"
        yield f"- limits of {threads_of(int(count))}: " \
              f"reading memory {limit['read'] / 1e9:.1f} GB/s, float32 " \
              f"{limit['flops'] / 1e9:.0f} GFLOP/s, 8-bit multiply-adds {dots}"
    for name, version in versions.items():
        yield f"- {name}: {version}"


def run_rows(results):
    for name in TITLES:
        part = results["parts"].get(name)
        if part:
            busy = part["others"]
            yield [TITLES[name], f"`make bench PARTS={name}`", part["date"],
                   part["commit"], f"{part['seconds']:.0f}",
                   f"{busy:.2f}" + (" **not quiet**" if busy > QUIET else "")]


def front(report):
    results = report.results
    head = ["# Benchmarks", "",
            "Written by `make bench`, as a whole, from what it measured; "
            "[bench.md](bench.md) says how, [accuracy.md](accuracy.md) what "
            "the numbers are worth, [speed.md](speed.md) what bounds them.",
            ""]
    if results["quick"]:
        head += ["**A quick run: few rounds, part of the kernels.**", ""]
    checks = report.checks
    met = sum(check.met for check in checks)
    head += [f"{met} of {len(checks)} targets met.", ""]
    report.lines = []
    report.add(*head)
    if met < len(checks):
        report.add("## Missed", "")
        report.table(["part", "cell", "measured", "wanted"], listed(checks))
    report.add("## Machine and versions", "", *machine_lines(results), "",
               "\"Others\" is how many processors were used, while a part "
               "ran, by what does not belong to it, time taken by the host "
               f"included; more than {QUIET:g} makes its numbers doubtful.",
               "")
    report.table(["part", "command", "begun", "commit", "seconds", "others"],
                 run_rows(results))
    report.add("\"Of limit\" sets the bytes of weights that a decoded token "
               "needs beside the bandwidth, and two 8-bit multiply-adds for "
               "each weight and token of a prompt (quern's activations have "
               "two bytes there) beside the processor's rate, with the same "
               "number of threads, measured in the same round.", "")


def document(results):
    report = Report(results)
    for name in TITLES:
        show_part(report, name)
    body = report.lines
    front(report)
    return "\n".join(report.lines + body).rstrip() + "\n", report.checks


def section(results, name):
    """One part alone, for the terminal."""
    report = Report(results)
    show_part(report, name)
    return "\n".join(report.lines), report.checks


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        text, _ = document(json.load(file))
    if len(sys.argv) == 2:
        sys.stdout.write(text)
        return
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
