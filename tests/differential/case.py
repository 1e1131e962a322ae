"""One case: a call of a C function and the same call of MLX, and how the
answers are judged.

`judge` is one of
  exact   the same bits (any NaN equals any NaN)
  each    floats: element by element against a float64 result
  sum     floats: sums of products; an ulp is one of the sum of magnitudes
  scaled  floats: an ulp is one of the largest magnitude of the answer
  loose   the answers are equal up to `loose` ulp of the largest magnitude
  error   only whether the call is refused, and dtype and shape
Integers and booleans are always compared exactly.

`ref` computes the float64 result from the arguments (arrays as float64 or
complex128 numpy arrays), or is None: then the engine's own float64 run is
taken, after MLX's float64 run has confirmed it.
"""

import dataclasses
import typing

from arrays import Arr


@dataclasses.dataclass
class Case:
    group: str
    function: str
    args: dict
    peer: typing.Callable
    judge: str = "exact"
    ref: typing.Callable = None
    loose: float = 8
    # The least magnitude that `loose` takes an ulp of.
    floor: float = 0
    # How far MLX's own float64 run is from float64 at worst.
    trust: float = 1e-5
    # What is compared of the answers, on both sides: lists of Arr.
    pick: typing.Callable = None
    # (kind, ...) for transforms: see run.py.
    transform: tuple = None
    # Checks beyond comparison: answers and arguments to a text, or None.
    check: typing.Callable = None
    # A scale of an ulp, from the arguments.
    scale: typing.Callable = None
    # Whether `ref` takes the arguments in the dtype of the result.
    cast: bool = True

    def arrays(self):
        """Every Arr among the arguments, by name."""
        out = []
        for name, value in self.args.items():
            if isinstance(value, Arr):
                out.append((name, value))
            elif isinstance(value, list):
                out += [(f"{name}[{i}]", item)
                        for i, item in enumerate(value)
                        if isinstance(item, Arr)]
        return out

    def dtypes(self):
        return [arr.dtype for _, arr in self.arrays()]

    def __str__(self):
        lines = [self.function + (f"  {self.transform}" if self.transform
                                  else "")]
        for name, value in self.args.items():
            lines.append(f"    {name} = {value!r}")
        return "\n".join(lines)
