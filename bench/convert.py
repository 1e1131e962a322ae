"""How much memory `quern convert` takes for a model of 2 GB, beside its bound:
twice the largest tensor and 256 MiB.

The model has the shape of a Llama of a billion parameters, with random
bfloat16 weights in four files.  What is held to the bound is the kernel's own
peak of the process, which counts the pages of mapped files that are in it.
The anonymous part alone, seen every 5 ms, is shown beside it.
"""

import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "tests/vectors/cases/fixtures/models/tiny"
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, VOCAB = 16, 2048, 8192, 32, 8, 32000
FILES, MIB = 4, 1 << 20
SPARE = 256 * MIB
RUNS = (
    ("a copy", ["convert"]),
    ("in float16", ["convert", "--dtype", "f16"]),
    ("packed, 4 bits", ["convert", "--quantize", "--bits", "4"]),
    ("as GGUF", ["convert", "--to", "gguf"]),
)


def shapes():
    side = HIDDEN * KV_HEADS // HEADS
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", side), ("v", side), ("o", HIDDEN)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, HIDDEN)
        yield layer + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)


def size_of(shape):
    size = 2
    for n in shape:
        size *= n
    return size


def random_halves(size):
    """bfloat16 numbers between 2^-9 and 2^-3, either sign."""
    pair = bytearray(os.urandom(size))
    high = bytes((b & 0x80) | 0x3B + b % 3 // 2 for b in range(256))
    pair[1::2] = pair[1::2].translate(high)
    return pair


def write_file(path, tensors):
    header, at = {}, 0
    for name, shape in tensors:
        end = at + size_of(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        while at:
            part = random_halves(min(at, 16 * MIB))
            out.write(part)
            at -= len(part)


def make_model(folder):
    """The bytes of all tensors, and those of the largest."""
    folder.mkdir()
    shutil.copy(TINY / "tokenizer.json", folder)
    config = json.loads((TINY / "config.json").read_text())
    config.update(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        vocab_size=VOCAB, head_dim=HIDDEN // HEADS, tie_word_embeddings=True,
        torch_dtype="bfloat16")  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = list(shapes())
    total = sum(size_of(shape) for _, shape in tensors)
    files, room = [[]], 0
    for tensor in tensors:
        if room > total / FILES:
            files.append([])
            room = 0
        files[-1].append(tensor)
        room += size_of(tensor[1])
    where = {}
    for i, part in enumerate(files):
        name = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        write_file(folder / name, part)
        where.update((tensor, name) for tensor, _ in part)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total, max(size_of(shape) for _, shape in tensors)


def allocated(pid):
    """What a process has allocated, in bytes; 0 once it is over."""
    try:
        lines = open(f"/proc/{pid}/status").read().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    return 0


def measure(command):
    began, anon = time.monotonic(), 0
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        anon = max(anon, allocated(child.pid))
        time.sleep(0.005)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit {child.returncode}")
    return usage.ru_maxrss * 1024, anon, time.monotonic() - began


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--build", required=True, type=pathlib.Path)
    args.add_argument("--folder", help="on a disk with 6 GB of room")
    args = args.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="convert-") as name:
        scratch = pathlib.Path(name)
        total, largest = make_model(scratch / "model")
        bound, over = 2 * largest + SPARE, False
        print(f"model of {total / MIB:.0f} MiB, largest tensor "
              f"{largest / MIB:.0f} MiB, bound {bound / MIB:.0f} MiB")  # fmt: skip
        print(f"{'':16} {'peak':>10} {'anonymous':>12} {'time':>8}")
        for label, words in RUNS:
            made = scratch / ("made.gguf" if "gguf" in words else "made")
            command = [args.build / "quern", words[0], scratch / "model", made]
            peak, anon, seconds = measure([*command, *words[1:], "-q"])
            over |= peak > bound
            print(f"{label:16} {peak / MIB:6.0f} MiB {anon / MIB:8.0f} MiB "
                  f"{seconds:6.1f} s", flush=True)  # fmt: skip
            made.unlink() if made.is_file() else shutil.rmtree(made)
    sys.exit("the bound is exceeded" if over else 0)


if __name__ == "__main__":
    main()
