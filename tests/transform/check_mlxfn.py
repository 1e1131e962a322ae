#!/usr/bin/env python3
"""Has MLX read functions that quern exported (write_programs) and compares.

usage: check_mlxfn.py DIR, in a virtual environment with mlx-cpu 0.32.2.
Prints a line for each program that MLX can't read or that gives something
else, and `N of M agree`; exits with 1 if one gives something else.
"""
import os
import pathlib
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)


def load(path):
    return mx.array(np.load(path))


def numbered(name, what):
    found = sorted(name.parent.glob(f"{name.stem}.{what}?.npy"))
    return [np.load(path) for path in found]


def differs(found, wanted):
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape}, expected {wanted.dtype} {wanted.shape}"
    if wanted.dtype.kind in "fc":
        # MLX computes some functions of float64 in float32.
        if np.allclose(found, wanted, rtol=2e-5, atol=2e-5, equal_nan=True):
            return None
    elif (found == wanted).all():
        return None
    return f"{found.ravel()[:4]}, expected {wanted.ravel()[:4]}"


def array(x):
    return mx.array(x, dtype=getattr(mx, str(x.dtype).replace("bool", "bool_")))


def check(file):
    """None, or what is wrong; 1 as the second when MLX gave something else."""
    inputs = [array(x) for x in numbered(file, "in")]
    try:
        outputs = mx.import_function(str(file))(*inputs)
        outputs = [np.array(y) for y in outputs]
    except (RuntimeError, ValueError) as error:
        return str(error), 0
    wanted = numbered(file, "out")
    if file.stem.endswith("partition"):
        # What is in which place but one is nobody's business.
        outputs, wanted = map(np.sort, outputs), map(np.sort, wanted)
    found = [differs(y, w) for y, w in zip(outputs, wanted, strict=True)]
    found = [what for what in found if what]
    return (str(found), 1) if found else (None, 0)


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.mlxfn"))
    agree = wrong = 0
    for file in files:
        # Its own process: a primitive that this MLX has no code for ends it.
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            problem, differ = check(file)
            if problem:
                print(f"{file.stem}: {'DIFFERS: ' if differ else ''}{problem}")
            sys.stdout.flush()
            os._exit(2 if differ else 1 if problem else 0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            print(f"{file.stem}: MLX has no code for it on the CPU")
        agree += status == 0
        wrong += os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2
    print(f"{agree} of {len(files)} agree, {wrong} differ")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
