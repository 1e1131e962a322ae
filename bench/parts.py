"""What `make bench` runs: a function for each part.  Each returns what
report.py shows of it; a part that can't run raises Missing with the reason."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import machine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)

# With the demo model's template it makes 40 tokens.
PROMPT = "Name three things that float and three that sink."
WORDS = "The keeper of the lighthouse wrote down the weather every hour. "


class Missing(Exception):
    """A part, or a row of one, has no result."""


class Setup:
    def __init__(self, build, quick):
        self.build, self.quick = os.path.abspath(build), quick
        self.quern = os.path.join(self.build, "quern")
        self.threads = machine.processors()
        self.meter = machine.find_limits(self.build)
        self.found = {}

    def script(self, name, *args):
        """What a script of ours prints; run once."""
        command = (os.path.join(ROOT, name), *args)
        if command not in self.found:
            self.found[command] = output(command).strip()
        return self.found[command]

    def demo(self):
        return self.script("scripts/fetch-model.sh")

    def llama_bench(self):
        return self.script("bench/peers.sh", "--build-only")

    def models(self):
        venv = self.script("scripts/venv.sh")
        python = os.path.join(venv, "bin", "python")
        command = (python, os.path.join(HERE, "models.py"))
        if command not in self.found:
            self.found[command] = output(command).split()
        return self.found[command]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def output(command):
    """What a program prints.  Its messages go to the terminal."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True)
    except OSError as problem:
        raise Missing(str(problem)) from problem
    sys.stderr.write(done.stderr)
    if done.returncode:
        name = os.path.basename(command[0])
        raise Missing(f"{name} failed ({done.returncode}): "
                      f"{last_line(done.stderr)}")
    return done.stdout


# ---- beside llama.cpp ----


def peers(setup, pairs, threads, rounds, reps):
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "cells.json")
        args = ["--threads", ",".join(map(str, threads)),
                "--rounds", str(rounds), "--reps", str(reps)]
        for pair in pairs:
            args += ["--model", pair]
        run_shown([os.path.join(HERE, "peers.sh"), "--quern", setup.quern,
                   "--results", results] + args)
        with open(results, encoding="utf-8") as file:
            return {"cells": json.load(file), "rounds": rounds, "reps": reps}


def run_shown(command):
    """Runs a program whose output is for the terminal."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Missing(f"{os.path.basename(command[0])} failed "
                      f"({done.returncode})")


def thread_counts(setup):
    return [1, setup.threads] if setup.threads > 1 else [1]


def demo(setup):
    rounds, reps = (2, 1) if setup.quick else (5, 3)
    return peers(setup, [setup.demo()], thread_counts(setup)[::-1], rounds,
                 reps)


def models(setup):
    pairs = setup.models()
    gguf = [path for path in pairs if path.endswith(".gguf")]
    # llama.cpp reads no MLX directories: its Q4_0 has as many bits a weight.
    pairs = [path if path in gguf else f"{path},{gguf[0]}" for path in pairs]
    return peers(setup, pairs, [setup.threads], 1 if setup.quick else 3, 1)


# ---- several sequences ----


def batch_of(setup, model, sizes):
    """Tokens per second of each batch size."""
    text = output([setup.quern, "bench", model, "-p", "0", "-n", "64", "-b",
                   ",".join(map(str, sizes)), "-r",
                   "1" if setup.quick else "3", "--json",
                   "--progress", "none"])
    rates = {}
    for line in map(json.loads, text.splitlines()):
        rates[line["batch"]] = line["tokens_per_s"]
    if sorted(rates) != sorted(sizes):
        raise Missing(f"results of batches {sorted(rates)}, "
                      f"expected {sorted(sizes)}")
    return rates


def batch(setup):
    rows = []
    every = [setup.demo()]
    try:
        every += setup.models()[:1] if setup.quick else setup.models()
    except Missing as missing:
        rows.append({"model": "1B", "missing": str(missing)})
    for model in every:
        row = {"model": os.path.basename(os.path.normpath(model))}
        try:
            rates = batch_of(setup, model, [1, 8])
            row.update(one=rates[1], eight=rates[8],
                       ratio=rates[8] / rates[1])
        except Missing as missing:
            row["missing"] = str(missing)
        print(f"batch: {row}", flush=True)
        rows.append(row)
    return {"rows": rows}


# ---- kernels ----


def kernels(setup):
    program = os.path.join(setup.build, "quern-bench-kernels")
    text = output([program, "nodes"] if setup.quick else [program])
    print(text, flush=True)
    return {"text": text}


def gemm(setup):
    text = output([os.path.join(HERE, "gemm", "gemm.sh"), "--build",
                   setup.build] + (["--quick"] if setup.quick else []))
    print(text, flush=True)
    return {"text": text}


# ---- memory ----


def high_water(pid):
    """The most bytes that a process had resident so far; 0: it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def peak_of(command):
    """What a program prints, and the most bytes it had resident.  The kernel
    is asked all the time: what it tells of a process that has ended counts
    the memory of the one that started it."""
    peak = 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=err)
        while child.poll() is None:
            peak = max(peak, high_water(child.pid))
            time.sleep(0.002)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            message = err.read().decode("utf-8", "replace")
            raise Missing(f"{os.path.basename(command[0])} failed "
                          f"({child.returncode}): {last_line(message)}")
        return out.read().decode(), peak


def run_command(setup, prompt, tokens, *more):
    return [setup.quern, "run", setup.demo(), prompt, "--temperature", "0",
            "--max-tokens", str(tokens), "--ignore-eos", *more]


def memory_row(setup, prompt, tokens):
    text, peak = peak_of(run_command(setup, prompt, tokens, "--json"))
    summary = json.loads(text.splitlines()[-1])
    usage, own = summary["usage"], summary["timings"]["peak_bytes"]
    shown = json.loads(output([setup.quern, "show", setup.demo(), "--json"]))
    row = {"prompt": usage["prompt_tokens"], "answer": tokens,
           "peak": max(peak, own),
           "file": os.path.getsize(setup.demo()),
           "kv": usage["total_tokens"] * shown["kv_bytes_per_token"]}
    try:
        _, row["llama_peak"] = peak_of(
            [setup.llama_bench(), "-m", setup.demo(), "-p", "0", "-n", "0",
             "-pg", f"{row['prompt']},{tokens}", "-r", "1", "--no-warmup",
             "-t", str(setup.threads)])
    except Missing as missing:
        print(f"memory: {missing}", file=sys.stderr)
    print(f"memory: {row}", flush=True)
    return row


def memory(setup):
    return {"rows": [memory_row(setup, PROMPT, 64),
                     memory_row(setup, WORDS * 120, 64)]}


# ---- start ----


def first_token(command):
    """Seconds from the start of a process to its first byte of output."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    byte = child.stdout.read(1)
    took = time.perf_counter() - began
    child.stdout.read()
    if child.wait() or not byte:
        raise Missing(f"{os.path.basename(command[0])} failed "
                      f"({child.returncode})")
    return took


def whole(command):
    """Seconds that a process takes."""
    began = time.perf_counter()
    output(command)
    return time.perf_counter() - began


def start(setup):
    counted = json.loads(output(run_command(setup, PROMPT, 1, "--json"))
                         .splitlines()[-1])["usage"]["prompt_tokens"]
    ours = run_command(setup, PROMPT, 8, "--progress", "none")
    theirs = [setup.llama_bench(), "-m", setup.demo(), "-p", str(counted),
              "-n", "0", "-r", "1", "--no-warmup", "-t", str(setup.threads)]
    runs = 3 if setup.quick else 10
    first_token(ours)  # the file comes into the cache
    pairs = [(first_token(ours), whole(theirs)) for _ in range(runs)]
    row = {"prompt": counted, "runs": runs}
    for name, times in zip(("quern", "llama"), zip(*pairs)):
        row[name] = {"median": statistics.median(times), "least": min(times),
                     "most": max(times)}
    print(f"start: {row}", flush=True)
    return row


PARTS = {"demo": demo, "models": models, "batch": batch, "memory": memory,
         "start": start, "gemm": gemm, "kernels": kernels}
