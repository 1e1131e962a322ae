#!/usr/bin/env python3
"""Writes tests/vectors/base/gguf_blocks.jsonl: random blocks of each GGUF type
that base/gguf_blocks.c expands, with the elements that the package `gguf`
(version 0.19.0) makes of them, as float32 bits.

usage: make_gguf_blocks.py FILE
"""
import json
import sys

import gguf.quants
import numpy as np

# type, bytes of a block, where its float16 scales are
TYPES = [
    ("Q4_0", 18, [0]),
    ("Q4_1", 20, [0, 2]),
    ("Q5_0", 22, [0]),
    ("Q5_1", 24, [0, 2]),
    ("Q8_0", 34, [0]),
    ("Q2_K", 84, [80, 82]),
    ("Q3_K", 110, [108]),
    ("Q4_K", 144, [0, 2]),
    ("Q5_K", 176, [0, 2]),
    ("Q6_K", 210, [208]),
    ("IQ4_NL", 18, [0]),
    ("IQ4_XS", 136, [0]),
    ("MXFP4", 17, []),
]


def main():
    rng = np.random.default_rng(20240)
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for name, size, scales in TYPES:
            kind = getattr(gguf.quants.GGMLQuantizationType, name)
            for _ in range(2):
                block = rng.integers(0, 256, size, dtype=np.uint8)
                for at in scales:
                    half = np.float16(rng.uniform(-2, 2)).tobytes()
                    block[at : at + 2] = np.frombuffer(half, np.uint8)
                if name == "MXFP4":
                    block[0] = rng.integers(100, 150)
                values = gguf.quants.dequantize(block[None, :], kind)
                bits = values.astype("<f4").tobytes().hex()
                line = {"type": name, "block": block.tobytes().hex()}
                out.write(json.dumps({**line, "float32": bits}) + "\n")


if __name__ == "__main__":
    main()
