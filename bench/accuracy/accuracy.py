#!/usr/bin/env python3
"""How far each compute mode is from exact arithmetic on the same weights, and
what each kind of KV cache costs.

    accuracy.py [--build DIR] [--model FILE] [--positions N] [--window N]
                [--kv-window N] [--only modes|kv] [--mark NAME]
                [--llama-logits PROGRAM] [--write docs/accuracy.md]

The reference evaluates a GGUF file (llama, qwen2, gemma3) in float64 with numpy: every
weight is the file's value, every sum, norm and softmax is float64.  Each mode
computes the same windows of text, and for each position the Kullback-Leibler
divergence of its distribution from the reference's is taken, and whether both
have the same likeliest token.  The text is the licence and the documents of
this repository, tokenized by quern.

Kinds of KV cache are compared with a float32 cache in mode auto, over longer
windows.

Needs numpy and gguf (scripts/venv.sh).  Exit codes: 0; 1 a program failed;
9 a bound of docs/accuracy.md is not held.
"""

import argparse
import pathlib
import subprocess
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
# mode: dtype, bound of the mean divergence, bound of the agreement
MODES = {
    "auto": ("auto", 1e-3, 0.99),
    "f32": ("f32", 1e-6, 0.99),
    "bf16": ("bf16", None, None),
    "f16": ("f16", None, None),
}
KINDS = ("f16", "bf16", "affine8", "affine4", "turbo:k8v8", "turbo:k8v5",
         "turbo:k8v4", "turbo:k8v3", "turbo:k8v2", "turbo:k5v4", "turbo:k4v4",
         "turbo:k4v3", "turbo:k2v2")
# kind: bounds of the mean divergence and of the agreement
KIND_BOUNDS = {"f16": (1e-5, 0.99), "affine8": (5e-3, 0.97),
               "turbo:k8v8": (5e-3, 0.97), "turbo:k8v4": (5e-2, 0.9)}


def texts():
    """Real text, always the same order."""
    names = ["README.md", "LICENSE"] + sorted(
        str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")
        if p.name not in ("accuracy.md", "ops.md"))
    return "\n\n".join((ROOT / name).read_text() for name in names)


class Reference:
    """A model of the llama family in float64."""

    paired = True  # rows of q and k stand in the order of adjacent pairs
    embed_scale = 1.0
    window = 0  # of layers that have one

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.arch = reader.get_field("general.architecture").contents()
        # In float64 once: a window is then a few large products.
        self.weights = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type)
            .astype(np.float64) for t in reader.tensors}

        def field(key, default=None):
            found = reader.get_field(f"{self.arch}.{key}")
            return default if found is None else found.contents()
        self.layers = field("block_count")
        self.heads = field("attention.head_count")
        self.kv_heads = field("attention.head_count_kv", self.heads)
        self.eps = field("attention.layer_norm_rms_epsilon")
        self.base = field("rope.freq_base", 10000.0)
        self.width = field("embedding_length")
        self.dim = field("rope.dimension_count",
                         field("attention.key_length",
                               self.width // self.heads))
        self.window = field("attention.sliding_window", 0)

    def weight(self, name):
        return self.weights[name]

    def norm(self, x, name):
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * scale * self.weight(name)

    def base_of(self, layer):
        return self.base

    def window_of(self, layer):
        return self.window

    def turn(self, x, layer):
        half = np.arange(self.dim // 2)
        angle = np.arange(len(x))[:, None] * self.base_of(layer) ** (
            -2.0 * half / self.dim)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        first, second = ((slice(0, None, 2), slice(1, None, 2))
                         if self.paired else
                         (slice(0, self.dim // 2), slice(self.dim // 2, None)))
        a, b = x[..., first], x[..., second]
        out = np.empty_like(x)
        out[..., first] = a * cos - b * sin
        out[..., second] = a * sin + b * cos
        return out

    def norm_heads(self, x, name, layer):
        return x

    def attend(self, x, layer):
        n = len(x)
        q, k, v = (
            (x @ self.weight(f"blk.{layer}.attn_{name}.weight").T
             + self.weights.get(f"blk.{layer}.attn_{name}.bias", 0)).reshape(
                n, heads, -1)
            for name, heads in (("q", self.heads), ("k", self.kv_heads),
                                ("v", self.kv_heads)))
        q, k = (self.turn(self.norm_heads(y, name, layer), layer)
                for y, name in ((q, "q"), (k, "k")))
        group = self.heads // self.kv_heads
        q, k, v = (y.transpose(1, 0, 2) for y in (
            q, np.repeat(k, group, 1), np.repeat(v, group, 1)))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full((n, n), -np.inf), 1)
        if self.window_of(layer):
            scores += np.tril(np.full((n, n), -np.inf), -self.window_of(layer))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        out = (scores @ v).transpose(1, 0, 2).reshape(n, -1)
        return out @ self.weight(f"blk.{layer}.attn_output.weight").T

    def gate(self, x):
        return x / (1 + np.exp(-x))

    def feed(self, x, layer):
        gate = x @ self.weight(f"blk.{layer}.ffn_gate.weight").T
        up = x @ self.weight(f"blk.{layer}.ffn_up.weight").T
        return (self.gate(gate) * up) @ self.weight(
            f"blk.{layer}.ffn_down.weight").T

    def after(self, x, name):
        return x

    def log_probs(self, ids):
        x = self.weights["token_embd.weight"][ids] * self.embed_scale
        for i in range(self.layers):
            y = self.attend(self.norm(x, f"blk.{i}.attn_norm.weight"), i)
            x = x + self.after(y, f"blk.{i}.post_attention_norm.weight")
            y = self.feed(self.norm(x, f"blk.{i}.ffn_norm.weight"), i)
            x = x + self.after(y, f"blk.{i}.post_ffw_norm.weight")
        x = self.norm(x, "output_norm.weight")
        head = "output.weight"
        if head not in self.weights:
            head = "token_embd.weight"
        return log_softmax(x @ self.weight(head).T)


class Qwen2(Reference):
    """The same with biases, and pairs of q and k in two halves."""

    paired = False


class Gemma3(Reference):
    """Gemma 3 in float64; the scale of embeddings is in bfloat16, as in its
    authors' program."""

    paired = False

    def __init__(self, path):
        super().__init__(path)
        bits = int(np.float32(np.sqrt(self.width)).view(np.uint32))
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
        self.embed_scale = float(np.uint32(bits).view(np.float32))

    def is_global(self, layer):
        return (layer + 1) % 6 == 0

    def base_of(self, layer):
        return self.base if self.is_global(layer) else 10000.0

    def window_of(self, layer):
        return 0 if self.is_global(layer) else self.window

    def norm_heads(self, x, name, layer):
        return self.norm(x, f"blk.{layer}.attn_{name}_norm.weight")

    def gate(self, x):
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi)
                                    * (x + 0.044715 * x ** 3)))

    def after(self, x, name):
        return self.norm(x, name)


def reference_of(path):
    arch = gguf.GGUFReader(path).get_field("general.architecture").contents()
    kinds = {"llama": Reference, "qwen2": Qwen2, "gemma3": Gemma3}
    if arch not in kinds:
        sys.exit(f"accuracy: no float64 evaluation of {arch} models")
    return kinds[arch](path)


def log_softmax(x):
    """In place, row by row: a window of a large vocabulary is gigabytes."""
    for row in x:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    return x


def tokens(program, model, count):
    out = subprocess.run([program, model, "ids"], input=texts().encode(),
                         capture_output=True)
    if out.returncode:
        sys.exit(f"accuracy: {out.stderr.decode().strip()}")
    return np.frombuffer(out.stdout, "<i4")[:count]


class Row:
    """What was found of a program's distributions beside exact ones."""

    def __init__(self, name):
        self.name, self.divergence, self.same = name, [], []

    def note(self, exact, found):
        for p, q in zip(exact, found):
            self.divergence.append(max(np.dot(np.exp(p), p - q), 0))
            self.same.append(p.argmax() == q.argmax())

    def row(self):
        kl = np.array(self.divergence)
        return (self.name, kl.mean(), np.quantile(kl, 0.99), np.mean(self.same))


class Mode(Row):
    """A program that writes logits, beside a reference."""

    def __init__(self, name, command):
        super().__init__(name)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def log_probs(self, ids, vocab):
        self.process.stdin.write(ids.astype("<i4").tobytes())
        self.process.stdin.flush()
        size = len(ids) * vocab * 4
        data = self.process.stdout.read(size)
        if len(data) != size:
            sys.exit(f"accuracy: {self.name} stopped early")
        return log_softmax(np.frombuffer(data, "<f4").reshape(
            len(ids), vocab).astype(np.float64))

    def compare(self, ids, exact):
        found = self.log_probs(ids, exact.shape[1])
        self.note(exact, found)
        return found


def table(what, rows, positions):
    lines = [f"| {what} | mean KL | p99 KL | same likeliest token |",
             "|---|---|---|---|"]
    for name, mean, high, same in rows:
        lines.append(f"| {name} | {mean:.1e} | {high:.1e} | {100 * same:.2f} % |")
    return "\n".join(lines) + f"\n\n{positions} positions.\n"


def replace(path, mark, text):
    """The text between two marks of a page."""
    page = path.read_text()
    head, _, rest = page.partition(f"<!-- {mark} -->\n")
    _, _, tail = rest.partition("<!-- end -->")
    path.write_text(f"{head}<!-- {mark} -->\n{text}<!-- end -->{tail}")


def windows(ids, size):
    for first in range(0, len(ids), size):
        yield ids[first:first + size]
        print(f"{min(first + size, len(ids))} of {len(ids)}", file=sys.stderr)


def logits_of(options, name, dtype, kv, window):
    return Mode(name, [options.build / "quern-bench-logits", options.model,
                       dtype, kv, str(window)])


def compare_modes(options, ids):
    reference = reference_of(options.model)
    modes = [logits_of(options, name, dtype, "f32", options.window)
             for name, (dtype, _, _) in MODES.items()]
    rows = list(modes)
    peer = None
    if options.llama_logits:
        peer = Mode("llama.cpp", [
            options.llama_logits, options.model, str(options.threads),
            str(options.window)])
        rows.append(peer)
    # llama.cpp does not round the scale of Gemma's embeddings: it is held to
    # what it means to compute, too.
    own = Row("llama.cpp, its own embedding scale")
    twice = peer and isinstance(reference, Gemma3)
    if twice:
        rows.append(own)
    for part in windows(ids, options.window):
        exact = reference.log_probs(part)
        for mode in modes:
            mode.compare(part, exact)
        if peer:
            found = peer.compare(part, exact)
        if twice:
            rounded = reference.embed_scale
            reference.embed_scale = np.sqrt(reference.width)
            own.note(reference.log_probs(part), found)
            reference.embed_scale = rounded
    return [row.row() for row in rows]


def compare_kinds(options, ids):
    vocab = next(t.shape[1] for t in gguf.GGUFReader(options.model).tensors
                 if t.name == "token_embd.weight")
    base = logits_of(options, "f32", "auto", "f32", options.kv_window)
    kinds = [logits_of(options, kind, "auto", kind, options.kv_window)
             for kind in KINDS]
    for part in windows(ids, options.kv_window):
        exact = base.log_probs(part, int(vocab))
        for kind in kinds:
            kind.compare(part, exact)
    return [kind.row() for kind in kinds]


def beyond(rows, bounds):
    return [name for name, mean, _, same in rows
            if bounds.get(name) and bounds[name][0] is not None
            and (mean > bounds[name][0] or same < bounds[name][1])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--model", default=pathlib.Path.home() /
                        ".cache/quern/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--positions", type=int, default=2048)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--kv-window", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("modes", "kv"))
    parser.add_argument("--llama-logits", help="beside quern's modes")
    parser.add_argument("--mark", default="table",
                        help="which table of the file --only modes replaces")
    parser.add_argument("--write", type=pathlib.Path,
                        help="replace the tables of this file")
    options = parser.parse_args()
    ids = tokens(options.build / "quern-bench-logits", options.model, options.positions)
    bad = []
    parts = {
        "modes": ("mode", options.mark, compare_modes,
                  {name: row[1:] for name, row in MODES.items()}),
        "kv": ("KV cache", "kv", compare_kinds, KIND_BOUNDS),
    }
    for name, (what, mark, compare, bounds) in parts.items():
        if options.only not in (None, name):
            continue
        rows = compare(options, ids)
        text = table(what, rows, len(ids))
        print(text)
        bad += beyond(rows, bounds)
        if options.write:
            replace(options.write, mark, text)
    if bad:
        print(f"accuracy: beyond its bound: {', '.join(bad)}", file=sys.stderr)
    return 9 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
