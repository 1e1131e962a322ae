#!/usr/bin/env python3
"""Differential test: libmlxc.so beside MLX 0.32.2.

    run.py [--library FILE] [--cases N] [--seed S] [--jobs J] [--group G]
           [--case S:N] [--verbose]

Draws N cases (see groups/), gives each to both sides, judges the answers (see
case.py, judge.py) and prints `N of M agree` by group, with a reproducer for
each disagreement.  `--case S:N` runs one of them again.  Cases run in worker
processes; one that dies, or takes longer than half a minute, is a finding
about the side that was running (MLX can damage its process: a case whose
process died outside of MLX is run again in a fresh one; `--alone` runs the
engine without MLX, for a sanitizer build).  Disagreements that docs/differences.md explains
are counted apart: see known.py.

Exit codes: 0 all agree or are explained, 1 not, 2 usage.
"""

import argparse
import importlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
FAMILIES = ["elementwise", "reduce", "shapes", "indexing", "products",
            "quant", "linalg", "fast", "rand", "create", "transforms",
            "errors"]
PATIENCE = 30  # seconds for one case


def generators(group=None):
    """The functions that draw cases, each as often as its weight."""
    out = []
    for family in FAMILIES:
        module = importlib.import_module(f"groups.{family}")
        for function, weight in module.GROUPS:
            if not group or group in (family, function.__name__):
                out += [function] * weight
    return out


def draw(schedule, seed, number):
    import numpy as np
    rng = np.random.default_rng([seed, number])
    return schedule[number % len(schedule)](rng)


# --- one case ---------------------------------------------------------------

def engine_run(engine, case, args=None, wide=False):
    """The engine's answers as a list of Arr."""
    args = dict(case.args if args is None else args)
    if case.transform:
        from groups import transforms
        out = transforms.engine(engine, case, args)
    else:
        out = engine.call(case.function, **args)
    return [engine.read(item) for item in out]


def peer_run(case, args=None):
    import mlx.core as mx
    import peer
    args = dict(case.args if args is None else args)
    if case.transform:
        from groups import transforms
        out = transforms.peer(mx, peer, case, args)
    else:
        out = case.peer(mx, peer.Given(args))
    if not isinstance(out, (list, tuple)):
        out = [out]
    return [peer.read(item if isinstance(item, mx.array) else
                      mx.array(item)) for item in out]


def widened(args, absolute=False):
    """The arguments with floats as float64 (magnitudes only, if asked)."""
    import numpy as np
    import arrays

    def one(value):
        if isinstance(value, arrays.Arr):
            if arrays.is_float(value.dtype):
                wide = value.wide()
                return arrays.Arr(np.abs(wide) if absolute else wide,
                                  "float64", value.layout)
            return value
        if isinstance(value, list):
            return [one(item) for item in value]
        if isinstance(value, str) and value in arrays.FLOATS:
            return "float64"
        return value
    return {name: one(value) for name, value in args.items()}


def numbers(case, dtype):
    """The arguments as numpy numbers, after the cast that the operation
    makes: to the dtype of its result, if that is inexact."""
    import arrays
    out = types.SimpleNamespace()

    def one(value):
        if not isinstance(value, arrays.Arr):
            return value
        if arrays.is_inexact(dtype) and case.cast and \
                value.dtype != "complex64":
            to = "float32" if dtype == "complex64" else dtype
            return value.cast(to).wide()
        return value.wide()
    for name, value in case.args.items():
        setattr(out, name, [one(item) for item in value]
                if isinstance(value, list) else one(value))
    return out


def truth_of(engine, case, ours):
    """Float64 results, one per answer, and the scale of an ulp; None where
    there is none."""
    import numpy as np
    import judge
    dtype = ours[0].dtype
    with np.errstate(all="ignore"):
        if case.ref:
            out = case.ref(numbers(case, dtype))
            scale = getattr(case, "scale", None)
            scale = scale(numbers(case, dtype)) if scale else None
            out = out if isinstance(out, list) else [out]
            return out, scale
        if dtype == "float64" or not any(
                d in ("float32", "float16", "bfloat16")
                for d in case.dtypes()) or "complex64" in case.dtypes():
            return None, None
        try:
            mine = [x.wide() for x in engine_run(engine, case,
                                                 widened(case.args))]
            yours = [x.wide() for x in peer_run(case, widened(case.args))]
            scale = None
            if case.judge == "sum":
                scale = engine_run(engine, case,
                                   widened(case.args, True))[0].wide()
        except Exception:
            return None, None
        for a, b in zip(mine, yours):
            if a.shape != b.shape:
                return None, None
            top = np.abs(np.where(np.isfinite(b), b, 0))
            top = top.max() if top.size else 0
            if np.any(judge.difference(a, b) > case.trust * max(top, 1e-300)):
                return "the float64 results differ: found " \
                    f"{a.ravel()[:4]}, MLX {b.ravel()[:4]}", None
        return mine, scale


def judge_case(engine, case, stage, alone=False):
    """None if both sides agree, else what is wrong."""
    import judge
    from engine import Refused
    stage("engine")
    ours = theirs = None
    try:
        ours = engine_run(engine, case)
    except Refused as error:
        refused = str(error)
    if alone:
        return None
    stage("peer")
    try:
        theirs = peer_run(case)
    except Exception as error:
        rejected = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    stage("judge")
    if ours is None and theirs is None:
        return None
    if ours is None:
        return f"refused: {refused}; MLX gives " \
            f"{[f'{x.dtype}{list(x.shape)}' for x in theirs]}"
    if theirs is None:
        return f"MLX refuses: {rejected}; found " \
            f"{[f'{x.dtype}{list(x.shape)}' for x in ours]}"
    if case.pick:
        ours, theirs = case.pick(case, ours), case.pick(case, theirs)
    if len(ours) != len(theirs):
        return f"{len(ours)} answers, MLX {len(theirs)}"
    truths = None
    for i, (a, b) in enumerate(zip(ours, theirs)):
        wrong = judge.compare(a, b, "exact")
        if not wrong:
            continue
        if case.check:
            text = case.check(case, a, b)
            if text == "equal":
                continue
            if text:
                return f"answer {i}: {text}"
        if case.judge in ("exact", "error", "loose"):
            wrong = judge.compare(a, b, case.judge, loose=case.loose,
                                  floor=case.floor)
        else:
            if truths is None:
                truths = truth_of(engine, case, ours)
            if isinstance(truths[0], str):
                return truths[0]
            truth = truths[0][i] if truths[0] else None
            wrong = judge.compare(a, b, case.judge, truth, truths[1],
                                  case.loose)
        if wrong:
            return f"answer {i}: {wrong}"
    return None


# --- workers ----------------------------------------------------------------

def work(options):
    """A worker: case numbers on stdin, events as JSON lines on stdout."""
    from engine import Engine
    import known
    if not options.alone:
        import mlx.core  # both libraries in one process  # noqa: F401
    engine = Engine(options.library)
    schedule = generators(options.group)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        number = int(line)

        def stage(name, **more):
            out.write(json.dumps({"n": number, "stage": name, **more}) + "\n")
        stage("draw")
        case = draw(schedule, options.seed, number)
        stage("drawn", group=case.group, function=case.function,
              text=str(case)[:6000])
        try:
            wrong = judge_case(engine, case, stage, options.alone)
        except Exception as error:  # a fault of the test itself
            import traceback
            wrong = "the test failed: " + "".join(
                traceback.format_exception(error)[-4:])
        reason = known.reason(case, wrong) if wrong else None
        engine.free()
        stage("done", wrong=wrong, reason=reason)


class Worker(threading.Thread):
    """Keeps one worker process busy with numbers from a queue."""

    def __init__(self, options, numbers_left, results):
        super().__init__(daemon=True)
        self.options, self.left, self.results = options, numbers_left, results
        self.process = None

    def start_process(self):
        command = [sys.executable, str(HERE / "run.py"), "--worker",
                   "--library", str(self.options.library),
                   "--seed", str(self.options.seed)]
        if self.options.alone:
            command.append("--alone")
        if self.options.group:
            command += ["--group", self.options.group]
        return subprocess.Popen(command, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, bufsize=1,
                                stderr=subprocess.DEVNULL
                                if not self.options.verbose else None)

    def run(self):
        while True:
            try:
                number = self.left.get_nowait()
            except queue.Empty:
                break
            result = self.one(number)
            if result["stage"] not in ("done", "peer"):
                # MLX writes outside of its memory now and then, and the
                # process ends a few cases later: a fresh one tells.
                again = self.one(number)
                if again["stage"] == "done":
                    result = {**again, "again": True}
            if result["stage"] != "done":
                side = {"engine": "quern", "peer": "MLX"}.get(
                    result["stage"], f"the test ({result['stage']})")
                result["wrong"] = f"{side} died or hung"
                result["reason"] = "the end of MLX's process" \
                    if side == "MLX" else None
            self.results.put(result)
        self.stop()

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.kill()
            self.process.wait()
            self.process = None

    def one(self, number):
        """What a worker process, the same while it lives, says of a case."""
        if self.process is None:
            self.process = self.start_process()
        process, result = self.process, {"n": number, "stage": "start"}
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        try:
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            for line in process.stdout:
                result.update(json.loads(line))
                if result["stage"] == "done":
                    break
        except (OSError, ValueError):
            pass
        timer.cancel()
        if result["stage"] != "done":
            self.stop()
        return result


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--library", default=ROOT / "build" / "libmlxc.so")
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--group")
    parser.add_argument("--case")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--known", action="store_true",
                        help="print explained disagreements too")
    parser.add_argument("--alone", action="store_true",
                        help="run the engine only: for a sanitizer build")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    if options.worker:
        return work(options)
    if not pathlib.Path(options.library).exists():
        parser.error(f"there is no library {options.library}")
    import known
    known.check_rows()
    wanted = range(options.first, options.first + options.cases)
    if options.case:
        seed, number = options.case.split(":")
        options.seed, wanted = int(seed), [int(number)]
        options.known = True
    left, results = queue.Queue(), queue.Queue()
    for number in wanted:
        left.put(number)
    began = time.time()
    workers = [Worker(options, left, results)
               for _ in range(min(options.jobs, len(wanted)))]
    for worker in workers:
        worker.start()
    return report(options, results, len(wanted), began)


def report(options, results, count, began):
    groups, failures, reasons, again = {}, 0, {}, 0
    for _ in range(count):
        result = results.get()
        group = groups.setdefault(result.get("group", "?"), [0, 0, 0])
        group[1] += 1
        again += result.get("again", False)
        if not result.get("wrong"):
            group[0] += 1
            if options.case:
                print(result["text"], "\nagrees")
            continue
        reason = result.get("reason")
        if reason:
            group[2] += 1
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            failures += 1
        if not reason or options.known:
            flag = f" --group {options.group}" if options.group else ""
            print(f"{'differs' if not reason else 'explained'}: "
                  f"{result.get('text')}\n  {result['wrong']}\n"
                  f"  again: --case {options.seed}:{result['n']}{flag}\n",
                  flush=True)
    total = [sum(g[i] for g in groups.values()) for i in range(3)]
    for name in sorted(groups):
        good, drawn, listed = groups[name]
        print(f"{name:14} {good} of {drawn} agree"
              + (f", {listed} as docs/differences.md says" if listed else ""))
    print(f"{'all':14} {total[0]} of {total[1]} agree, {total[2]} as "
          f"docs/differences.md says, {failures} differ "
          f"({time.time() - began:.0f} s, seed {options.seed})")
    if again:
        print(f"{again} were run again in a fresh process: the one before "
              "had been damaged")
    if options.known:
        for reason, times in sorted(reasons.items(), key=lambda r: -r[1]):
            print(f"  {times:5} {reason}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
