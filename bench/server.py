#!/usr/bin/env python3
"""Compares `quern serve` with llama-server, and mlx_lm.server where there is
one, on one model and this machine.

All get the same model, threads, context, answers side by side and bytes for
kept prompts.  In each round they are started anew and take turns in every cell
(quern first), so neighbours in time see the same machine; the ratio of each
round is taken before the median.

  start     seconds from exec to the first 200 on /health
  load      for each number of clients: tokens per second of all together, and
            the time to the first token
  prefix    the time to the first token behind a prefix of 500 words that the
            server has kept
  overhead  the time of a streamed request, read by a client that does nothing
            else, beside what `quern bench` takes for as many tokens of prompt
            and answer right before and after; once more with a thread less
            each, so that the client has a processor of its own
  memory    the most bytes that the server had resident, over the round

Exit codes: 0; 1 a server failed; 2 usage; 3 no such file.  A target that is
missed is no failure: it is told."""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import bench
import machine
import openai_load
import parts
import server_report

CONTEXT = 2048
KEPT = 256              # MiB for prompts
ANSWER = 64             # tokens
START_LIMIT = 300       # seconds
POLL = 0.001


class Failure(Exception):
    pass


def say(text):
    print("server: " + text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


# ---- servers ----


def command_of(args, name, port):
    threads, rows = str(args.threads), args.parallel
    if name == "quern":
        return [args.quern, "serve", args.model, "--port", str(port),
                "--threads", threads, "--ctx", str(CONTEXT), "--parallel",
                str(rows), "--prefix-cache", f"{KEPT}MiB", "--log-level",
                "warn"]
    if name == "llama":
        # Its context is that of all rows together.
        return [args.llama_server, "-m", args.model, "--host", "127.0.0.1",
                "--port", str(port), "-t", threads, "-tb", threads, "-c",
                str(CONTEXT * rows), "-np", str(rows), "--cache-ram",
                str(KEPT), "--no-webui"]
    return [args.mlx, "-m", "mlx_lm", "server", "--model", args.mlx_model,
            "--host", "127.0.0.1", "--port", str(port)]


class Server:
    """One that runs, from exec until `stop`."""

    def __init__(self, args, name, folder):
        self.name, self.port = name, free_port()
        self.model = args.mlx_model if name == "mlx" else "default"
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "wb") as log:
            self.began = time.perf_counter()
            self.child = subprocess.Popen(
                command_of(args, name, self.port), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
                env={**os.environ, "HF_HUB_OFFLINE": "1"})

    def fail(self, text):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            end = "\n".join(log.read().splitlines()[-5:])
        raise Failure(f"{self.name}: {text}\n{end}")

    def healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait(self):
        """Seconds from exec until it answers."""
        while not self.healthy():
            if self.child.poll() is not None:
                self.fail(f"ended with {self.child.returncode}")
            if time.perf_counter() - self.began > START_LIMIT:
                self.fail("does not answer")
            time.sleep(POLL)
        return time.perf_counter() - self.began

    def load(self, **how):
        done = openai_load.Load(self.url, model=self.model, **how).run()
        if done.errors:
            self.fail(f"{len(done.errors)} requests failed, such as "
                      + done.errors[0])
        return done.summary()

    def stop(self):
        peak = parts.high_water(self.child.pid)
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        return peak


# ---- cells ----


def bench_seconds(args, prompt, answer):
    """What `quern bench` takes for a prompt and the answer behind it."""
    seconds = 0
    for tokens, more in ((prompt, ["-p", str(prompt), "-n", "0"]),
                         (answer, ["-p", "0", "-n", str(answer), "-d",
                                   str(prompt)])):
        line = parts.output([args.quern, "bench", args.model, *more, "-r", "3",
                             "--threads", str(args.threads), "--ctx",
                             str(CONTEXT), "--json", "--progress", "none"])
        seconds += tokens / json.loads(line.splitlines()[-1])["tokens_per_s"]
    return seconds


def overhead(args, server, seed):
    """How much longer a request takes than its tokens."""
    requests = 3 if args.quick else 8
    ask = {"clients": 1, "max_tokens": ANSWER, "light": True,
           "more": {"cache_prompt": False, "ignore_eos": True}}
    first = server.load(requests=1, seed=seed + "/first", **ask)
    prompt = first["prompt_tokens"]
    before = bench_seconds(args, prompt, ANSWER - 1)
    found = server.load(requests=requests, seed=seed, **ask)
    after = bench_seconds(args, prompt, ANSWER - 1)
    alone = (before + after) / 2
    return {"request_s": found["request_s_median"], "bench_s": alone,
            "prompt": round(found["prompt_tokens"] / requests),
            "overhead": found["request_s_median"] / alone - 1}


def overhead_beside(args, folder, seed):
    """The same where the client has a processor of its own: what the server
    itself takes, without what clients take from it on the same machine."""
    if args.threads < 2:
        return None
    fewer = argparse.Namespace(**{**vars(args), "threads": args.threads - 1})
    server = Server(fewer, "quern", folder)
    try:
        server.wait()
        return overhead(fewer, server, seed)
    finally:
        server.stop()


def prefix(args, server, seed):
    """The first request pays for the prefix; those behind it are counted."""
    how = {"clients": 1, "prompt_words": 8, "prefix_words": 500}
    server.load(requests=1, max_tokens=1, seed=seed + "/first", **how)
    return server.load(requests=4 if args.quick else 8, max_tokens=8,
                       seed=seed, **how)


def run_round(args, names, number, folder):
    """{server: {cell: numbers}}"""
    results, servers = {name: {} for name in names}, []
    try:
        for name in names:
            servers.append(Server(args, name, folder))
            results[name]["start"] = {"seconds": servers[-1].wait()}
            servers[-1].load(requests=1, max_tokens=4, seed="warm")
        for clients in args.clients:
            requests = 1 if args.quick and clients > 1 else \
                max(2, 4 // clients)
            for server in servers:
                say(f"round {number + 1}: {server.name}, {clients} clients")
                results[server.name][f"load {clients}"] = server.load(
                    clients=clients, requests=requests,
                    max_tokens=ANSWER // 2 if args.quick else ANSWER,
                    seed=f"{number}/{clients}")
        for server in servers:
            say(f"round {number + 1}: {server.name}, prefix")
            results[server.name]["prefix"] = prefix(args, server,
                                                    f"{number}/prefix")
            if server.name == "quern":
                results["quern"]["overhead"] = overhead(
                    args, server, f"{number}/overhead")
    finally:
        for server in servers:
            results[server.name]["memory"] = {"bytes": server.stop()}
    say(f"round {number + 1}: quern, a thread less")
    results["quern"]["overhead beside"] = overhead_beside(
        args, folder, f"{number}/beside")
    return results


def measure(args):
    names, rounds = ["quern", "llama"], []
    with tempfile.TemporaryDirectory() as folder:
        if args.mlx:
            args.mlx_model = os.path.join(folder, "model-mlx")
            parts.output([args.quern, "convert", args.model, args.mlx_model,
                          "--progress", "none"])
        for number in range(args.rounds):
            rounds.append(run_round(args, names, number, folder))
        # Much slower than the others, so once, with few clients.
        beside = {}
        if args.mlx:
            beside = mlx_round(args, folder)
        shutil.rmtree(os.path.join(folder, "model-mlx"), ignore_errors=True)
    return {"rounds": rounds, "mlx": beside}


def mlx_round(args, folder):
    """Its cells beside quern's in a round of their own, or why there are none."""
    few = argparse.Namespace(**{**vars(args), "clients":
                                [c for c in args.clients if c in (1, 8)]})
    try:
        return run_round(few, ["quern", "mlx"], args.rounds, folder)
    except Failure as failure:
        say(f"mlx_lm.server is left out: {failure}")
        return {"missing": str(failure).splitlines()[0]}


# ---- arguments ----


def counts(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rounds", type=int, help="(5; 1 with --quick)")
    p.add_argument("--quick", action="store_true",
                   help="a rough picture: one round, few and short requests,\n"
                        "no mlx_lm.server")
    p.add_argument("--clients", type=counts, default=[1, 4, 8, 16],
                   metavar="N[,N]", help="at a time (1,4,8,16)")
    p.add_argument("--parallel", type=int, default=16,
                   help="answers side by side (16)")
    p.add_argument("--threads", type=int, default=machine.processors(),
                   help="of each server (the CPUs this process may use)")
    p.add_argument("--model", metavar="FILE", help="(the demo model)")
    p.add_argument("--build", default=os.path.join(parts.ROOT, "build"))
    p.add_argument("--llama-server", metavar="PATH",
                   help="program (server.sh builds it)")
    p.add_argument("--mlx", metavar="PYTHON",
                   help="interpreter that has mlx_lm (server.sh finds it)")
    p.add_argument("--no-mlx", action="store_true", help="without it")
    p.add_argument("--write", metavar="FILE", help="write the document there")
    args = p.parse_args()
    args.quern = os.path.join(args.build, "quern")
    args.rounds = args.rounds or (1 if args.quick else 5)
    if args.no_mlx or args.quick:
        args.mlx = None
    if not args.llama_server:
        p.error("--llama-server: needed (bench/server.sh gives it)")
    return args


def main():
    args = arguments()
    # Its servers end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    setup = parts.Setup(args.build, args.quick)
    results = {"date": time.strftime("%Y-%m-%d %H:%M"),
               "commit": bench.commit(), "quick": args.quick}
    began, busy, own = time.monotonic(), bench.cpu_seconds(), \
        bench.own_seconds()
    try:
        args.model = args.model or setup.demo()
        for path in (args.quern, args.llama_server, args.model):
            if not os.path.exists(path):
                say(f"no such file: {path}")
                sys.exit(3)
        results.update(measure(args))
    except (Failure, parts.Missing) as failure:
        say(str(failure))
        sys.exit(1)
    seconds = time.monotonic() - began
    results.update(
        seconds=seconds, machine=bench.describe_machine(setup),
        versions=bench.versions(setup),
        others=max(0.0, (bench.cpu_seconds() - busy
                         - (bench.own_seconds() - own)) / seconds),
        setup={"model": os.path.basename(args.model), "context": CONTEXT,
               "parallel": args.parallel, "threads": args.threads,
               "kept_mib": KEPT, "rounds": args.rounds})
    bench.save(os.path.join(setup.build, "bench-server.json"),
               json.dumps(results, indent=1))
    text, checks = server_report.document(results)
    print(text)
    if args.write:
        bench.save(args.write, text)
    print(f"{sum(c.met for c in checks)} of {len(checks)} targets met"
          + (f"; {args.write}" if args.write else ""))


if __name__ == "__main__":
    main()
