"""Makes tests/vectors/models: what the authors' implementations compute for
tiny models of every family, which test_goldens holds quern to.

    tools/goldens/run.sh [NAME...]      the rows of rows.py that begin with a
                                        NAME, or all of them

A row becomes a folder of three files of a few kilobytes:

    config.json         as a model directory has it; or
    header.gguf         a GGUF file up to where its tensors' data begins
    tensors.json        names, shapes, types and rules (recipe.py) of weights
    golden.safetensors  (of an embedder: ids, positions, hidden [P, width])
                        ids [70], positions [P], logits [P, vocabulary] float32,
                        greedy [30], budget [1]: the length that the sequence
                        was to have

The salt of the rules is chosen so that no greedy step is a close call.
"""

import json
import os
import shutil
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

import recipe
from rows import ROWS

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                   "../../tests/vectors/models")
POSITIONS = [0, 1, 5, 20, 37, 52, 63, 69]
PROMPT, STEPS, BUDGET = 70, 30, 100
MARGIN = 0.02  # a lead that an error of 2e-3 can't turn


class CloseCall(Exception):
    pass


def prompt(salt, vocab):
    return [int(x) for x in recipe.hashes("ids", salt, PROMPT) % vocab]


def greedy(reference, ids):
    ids = list(ids)
    for _ in range(STEPS):
        last = reference.logits(ids)[-1]
        best = np.sort(last)[-2:]
        if not best[1] - best[0] > MARGIN:
            raise CloseCall
        ids.append(int(last.argmax()))
    return ids[PROMPT:]


def golden(reference, salt, vocab):
    ids = prompt(salt, vocab)
    logits = reference.logits(ids)
    assert logits.shape == (PROMPT, vocab), logits.shape
    assert np.isfinite(logits).all()
    # A model that hardly looks at its weights or its past would test nothing.
    assert logits.std() > 0.3, logits.std()
    other = list(ids)
    other[63] = (other[63] + 1) % vocab
    moved = np.abs(reference.logits(other)[69] - logits[69]).max()
    assert moved > 1e-2, moved
    return {
        "ids": np.array(ids, np.int32),
        "positions": np.array(POSITIONS, np.int32),
        "logits": logits[POSITIONS].astype(np.float32),
        "greedy": np.array(greedy(reference, ids), np.int32),
        "budget": np.array([BUDGET], np.int32),
    }


def vectors(reference, salt, vocab):
    """What an embedder's files hold: the vectors of the prompt's tokens."""
    ids = prompt(salt, vocab)
    hidden = reference.hidden(ids)
    assert np.isfinite(hidden).all() and hidden.std() > 0.3, hidden.std()
    other = list(ids)
    other[0] = (other[0] + 1) % vocab
    assert np.abs(reference.hidden(other)[69] - hidden[69]).max() > 1e-2
    return {
        "ids": np.array(ids, np.int32),
        "positions": np.array(POSITIONS, np.int32),
        "hidden": hidden[POSITIONS].astype(np.float32),
    }


def write(row, config, salt, tensors, result, header=None):
    folder = os.path.join(OUT, row["name"])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if header is None:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f, indent=1, sort_keys=True)
            f.write("\n")
    else:
        with open(os.path.join(folder, "header.gguf"), "wb") as f:
            f.write(header)
    lines = [json.dumps([name, *entry]) for name, entry in tensors.items()]
    with open(os.path.join(folder, "tensors.json"), "w") as f:
        f.write('{"salt": %d, "tensors": [\n%s\n]}\n'
                % (salt, ",\n".join(lines)))
    path = os.path.join(folder, "golden.safetensors")
    save_file(result, path)
    os.chmod(path, 0o644)


def list_tensors(row, found, dtype):
    """name -> [dtype, shape, rule] of what `found` has as name -> shape."""
    return {name: [dtype, list(shape),
                   recipe.rule_for(name, shape, row.get("rules", ()))]
            for name, shape in sorted(found.items())}


def arrays(tensors, salt):
    known = {name: (t[1], t[2]) for name, t in tensors.items()}
    return {name: recipe.make(name, salt, t[1], t[2], known)
            for name, t in tensors.items()}


def make_hf(row, folder):
    import hf
    found, config = hf.skeleton(row, folder)
    tensors = list_tensors(row, found, row.get("dtype", "BF16"))
    for key in row.get("drop_config", ()):
        config.pop(key, None)
    config.update(row.get("add_config", {}))
    there, back = hf.FORMS[row.get("blocks")]
    there(tensors)
    return config, tensors, None, \
        lambda salt: hf.Reference(row, folder, back(arrays(tensors, salt)))


def make_mlx(row, folder):
    import hf
    import mlx_form
    if "quant" not in row:
        # A family that transformers has no code for.
        config = {"model_type": row["type"], **row["config"]}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        found = mlx_form.shapes(folder)
        tensors = list_tensors(row, found, row.get("dtype", "F32"))
    else:
        _, config = hf.skeleton(row, folder)
        # Keys that mlx-lm has no defaults for.
        config.update(row.get("add_config", {}))
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        tensors = {}
        for name, (shape, dtype, rule) in mlx_form.packed(folder, row).items():
            rule = rule or recipe.rule_for(name, shape, row.get("rules", ()))
            tensors[name] = [dtype, list(shape), rule]
        with open(os.path.join(folder, "config.json")) as f:
            config = json.load(f)
    return config, tensors, None, \
        lambda salt: mlx_form.Reference(row, folder, arrays(tensors, salt))


def make_gguf(row, folder):
    import gguf_form
    return gguf_form.make(row, folder, arrays)


def make(row):
    row.setdefault("budget", BUDGET)
    with tempfile.TemporaryDirectory() as folder:
        build = {"hf": make_hf, "mlx": make_mlx, "gguf": make_gguf}
        config, tensors, header, reference = build[row["form"]](row, folder)
        vocab = row["config"]["vocab_size"]
        for salt in range(200):
            try:
                make_one = vectors if row.get("vectors") else golden
                result = make_one(reference(salt), salt, vocab)
            except CloseCall:
                continue
            write(row, config, salt, tensors, result, header)
            size = sum(np.prod(t[1]) for t in tensors.values())
            values = result.get("logits", result.get("hidden"))
            print(f"{row['name']}: {size} elements, salt {salt}, values of "
                  f"{values.std():.2f}", flush=True)
            return
    sys.exit(f"{row['name']}: every salt has a close call")


def main():
    names = sys.argv[1:]
    rows = [r for r in ROWS
            if not names or any(r["name"].startswith(n) for n in names)]
    if not rows:
        sys.exit("no row begins so")
    for row in rows:
        make(row)


main()
