"""Makes docs/benchmarks-server.md of what bench/server.py measured.

    server_report.py RESULTS.json      to standard output"""

import json
import statistics
import sys

import report

# The goals: least ratios of tokens per second by clients, and most of the rest,
# to llama-server.
RATES = {1: 1.3, 8: 2.0}
FIRST = 0.6
PREFIX = 0.4
MEMORY = 0.6
START = 0.3     # seconds
OVERHEAD = 0.03


class Check:
    def __init__(self, what, value, target, least, show="{:.2f}"):
        self.what, self.target = what, target
        self.met = value >= target if least else value <= target
        self.shown = show.format(value)
        self.wanted = ("at least " if least else "at most ") \
            + show.format(target)


def medians(rounds, name, cell, field):
    return statistics.median(r[name][cell][field] for r in rounds)


def ratios(rounds, cell, field, peer="llama"):
    return [r["quern"][cell][field] / r[peer][cell][field] for r in rounds]


def spread(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def clients_of(rounds):
    return [int(cell.split()[1]) for cell in rounds[0]["quern"]
            if cell.startswith("load ")]


def cells(rounds):
    """(what, cell, field, target, whether more is better, digits)"""
    for n in clients_of(rounds):
        yield (f"tokens/s, {n} clients", f"load {n}", "tokens_per_s",
               RATES.get(n), True, 1)
    for n in clients_of(rounds):
        yield (f"first token, {n} clients, ms", f"load {n}", "ttft_ms_p50",
               FIRST, False, 1)
    for n in clients_of(rounds):
        yield (f"between tokens, {n} clients, ms", f"load {n}", "gap_ms_p50",
               None, False, 1)
    yield ("first token behind 500 kept words, ms", "prefix", "ttft_ms_p50",
           PREFIX, False, 1)
    yield "resident, MB", "memory", "bytes", MEMORY, False, 0


def verdict(check):
    return "" if check is None else "met" if check.met else "**MISSED**"


def beside_llama(rounds, checks):
    rows = []
    for what, cell, field, target, least, digits in cells(rounds):
        ours, theirs = (medians(rounds, name, cell, field)
                        for name in ("quern", "llama"))
        pairs = ratios(rounds, cell, field)
        ratio, check = statistics.median(pairs), None
        if target is not None:
            check = Check(what, ratio, target, least)
            checks.append(check)
        scale = 1e6 if field == "bytes" else 1
        rows.append([what, f"{ours / scale:,.{digits}f}",
                     f"{theirs / scale:,.{digits}f}", f"{ratio:.2f}",
                     spread(pairs), check.wanted if check else "",
                     verdict(check)])
    return rows


def longer(over):
    """By how many per cent requests take longer than their tokens, and why."""
    seconds = [statistics.median(o[f] for o in over)
               for f in ("request_s", "bench_s")]
    return (100 * statistics.median(o["overhead"] for o in over),
            f"{over[0]['prompt']} tokens of prompt, 64 of answer: "
            f"{seconds[0]:.3f} s and {seconds[1]:.3f} s")


def alone(rounds, checks):
    start = medians(rounds, "quern", "start", "seconds")
    peer = medians(rounds, "llama", "start", "seconds")
    checks.append(Check("start, s", start, START, False))
    rows = [["from exec to the first 200 on /health, s", f"{start:.2f}",
             checks[-1].wanted, verdict(checks[-1]),
             f"llama-server: {peer:.2f}"]]
    over = [r["quern"]["overhead"] for r in rounds]
    share, shown = longer(over)
    checks.append(Check("overhead, %", share, 100 * OVERHEAD, False, "{:.1f}"))
    rows.append(["a request beside its tokens in `quern bench`, % longer",
                 checks[-1].shown, checks[-1].wanted, verdict(checks[-1]),
                 shown])
    over = [r["quern"]["overhead beside"] for r in rounds]
    if all(over):
        share, shown = longer(over)
        rows.append(["the same with a thread less, which leaves the client a "
                     "processor", f"{share:.1f}", "", "", shown])
    return rows


def beside_mlx(found):
    if not found:
        return ["Not measured."]
    if "missing" in found:
        return [f"Not measured: {found['missing']}."]
    lines = ["| cell | quern | mlx_lm.server | ratio |", "|---|---|---|---|"]
    for what, cell, field, *_ in cells([found]):
        ours, theirs = (found[name][cell][field] for name in ("quern", "mlx"))
        scale = 1e6 if field == "bytes" else 1
        lines.append(f"| {what} | {ours / scale:,.1f} | {theirs / scale:,.1f} "
                     f"| {ours / theirs:.2f} |")
    return lines


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + \
        ["| " + " | ".join(row) + " |" for row in rows]


def document(results):
    rounds, setup, checks = results["rounds"], results["setup"], []
    peers = table(["", "quern", "llama-server", "ratio", "of rounds", "target",
                   ""], beside_llama(rounds, checks))
    own = table(["", "quern", "target", "", ""], alone(rounds, checks))
    met, busy = sum(c.met for c in checks), results["others"]
    lines = ["# The server's benchmarks", "",
             "Written by `make bench-server`; [bench.md](bench.md) says how it "
             "is measured.", ""]
    if results["quick"]:
        lines += ["**A quick run: one round, few and short requests.**", ""]
    lines += [f"{met} of {len(checks)} targets met.", ""]
    lines += [f"- missed: {c.what}: {c.shown}, wanted {c.wanted}"
              for c in checks if not c.met]
    lines += [f"- {setup['model']}; {setup['threads']} threads, a context of "
              f"{setup['context']}, {setup['parallel']} answers side by side, "
              f"{setup['kept_mib']} MiB of kept prompts for both; rounds, in "
              f"turns: {setup['rounds']}",
              *report.machine_lines(results),
              f"- begun {results['date']}, commit {results['commit']}, "
              f"{results['seconds']:.0f} s; others used {busy:.2f} processors"
              + (" **not quiet**" if busy > report.QUIET else ""), ""]
    lines += ["## Beside llama-server", "",
              "A ratio is the median of the ratios of the rounds.", "",
              *peers, "", "## Alone", "", *own, "",
              "## Beside mlx_lm.server", "", *beside_mlx(results["mlx"])]
    return "\n".join(lines) + "\n", checks


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        print(document(json.load(file))[0], end="")
