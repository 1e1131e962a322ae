"""Whether every command obeys every flag that it takes.

    flags.py QUERN ROOT SCRATCH

`quern help --json` lists the flags of each command.  For each there is a row
below that shows its effect: what the command prints with the flag and not
without it.  A flag without a row fails, so one that is added to a command needs
an effect there.  Modes (a server instead of a model, a history instead of a
measurement, ...) have lists of what they take: everything else of the command
must be refused by name.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

QUERN, ROOT, SCRATCH = sys.argv[1:]
MODELS = os.path.join(ROOT, "tests/vectors/cases/fixtures/models")
TINY = os.path.join(MODELS, "tiny")
WIDE = os.path.join(MODELS, "tiny_h64")
Q4 = os.path.join(MODELS, "tiny_q4")
NOWHERE = "http://127.0.0.1:9"  # nobody listens there


def path(name):
    return os.path.join(SCRATCH, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


# ---- running ----

def run(words, text=None, **environment):
    """The code, and what was written to both, without what is never the same."""
    env = {"PATH": os.environ["PATH"], "HOME": path("home"),
           "TMPDIR": os.environ.get("TMPDIR", "/tmp"), "QUERN_NOPE": "1",
           "QUERN_CACHE": path("cache"), "HF_HUB_OFFLINE": "1"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",
                 "TSAN_OPTIONS", "LLVM_PROFILE_FILE"):
        if name in os.environ:
            env[name] = os.environ[name]
    env.update(environment)
    done = subprocess.run([QUERN] + words, input=(text or "").encode(),
                          env=env, capture_output=True, timeout=300,
                          check=False)
    out = done.stdout.decode("utf-8", "replace")
    return done.returncode, out, done.stderr.decode("utf-8", "replace")


TIMES = re.compile(
    r'"(timings|machine)":\{[^{}]*\},?|"(seconds|first_token_seconds|'
    r'tokens_per_s|ms_per_token|spread_percent|ttft_s|weight_gb_per_s|'
    r'bandwidth_gb_per_s|bandwidth_percent|peak_bytes|disk_free)":[^,}]*,?')


def steady(result):
    code, out, err = result
    return code, TIMES.sub("", out), TIMES.sub("", err)


# ---- rows ----

PLAIN, LOCK = {}, threading.Lock()


class Row:
    """`base` + `flag` against `base`: `shows` (an expression) is found in what
    the first prints and not in what the second does; `hides`: the other way
    around; neither: they differ, and none fails.  `env`, `text`: environment and
    standard input.  `makes`: a file that only the first makes; `files`: what is
    in them counts, too; `roomy`: a machine may be too large to show it."""

    def __init__(self, base, flag, shows=None, hides=None, text=None, env=None,
                 makes=None, files=(), roomy=False):
        self.files, self.roomy = files, roomy
        self.base, self.flag = base, flag
        self.shows, self.hides = shows, hides
        self.text, self.env, self.makes = text, env or {}, makes

    def read(self, result):
        result = steady(result)
        for name in self.files:
            with open(name, "rb") as file:
                result += (file.read(),)
        return result

    def plain(self):
        """Without the flag; those of many rows are the same."""
        if self.makes or self.files:
            return self.read(run(self.base, self.text, **self.env))
        key = (*self.base, self.text, *self.env.items())
        with LOCK:
            kept = PLAIN.setdefault(key, {"lock": threading.Lock()})
        with kept["lock"]:
            if "result" not in kept:
                kept["result"] = steady(run(self.base, self.text, **self.env))
        return kept["result"]

    def fault(self):
        plain = self.plain()
        if self.makes and os.path.exists(self.makes):
            return f"{self.makes} is there without it"
        given = self.read(run(self.base + self.flag, self.text, **self.env))
        if self.roomy and not plain[0]:
            return None  # this machine has room for all that could be asked
        if self.makes:
            return None if os.path.exists(self.makes) else f"{given}"
        if not self.shows and not self.hides:
            if plain[0] or given[0]:
                return f"fails: {plain} {given}"
            return None if plain != given else f"no effect: {plain}"
        has, lacks = (given, plain) if self.shows else (plain, given)
        expression = self.shows or self.hides
        if not re.search(expression, has[1] + has[2]):
            return f"'{expression}' is not in {has}"
        if re.search(expression, lacks[1] + lacks[2]):
            return f"'{expression}' is in {lacks}"
        return None


def manners(base, **more):
    """What every command takes."""
    wrong = write("wrong.toml", "bogus = 1\n")
    warning = "QUERN_NOPE: no such variable"
    return {
        "help": Row(base, ["--help"], "usage: quern ", **more),
        "quiet": Row(base, ["--quiet"], hides=warning, **more),
        "verbose": Row(base, ["--verbose"], warning,
                       env={"QUERN_LOG": "error"}, **more),
        "json": Row(base, ["--json"], r'"schema": ?"quern\.', **more),
        "config": Row(base, ["--config", wrong], "unknown key 'bogus'", **more),
    }


# ---- models ----

def copy(name, model=TINY):
    target = path(name)
    shutil.copytree(model, target)
    os.chmod(target, 0o700)
    for file in os.listdir(target):
        os.chmod(os.path.join(target, file), 0o600)
    return target


def patch(name, model=TINY, **keys):
    """A model with another config.json."""
    target = copy(name, model)
    file = os.path.join(target, "config.json")
    with open(file, encoding="utf-8") as source:
        config = json.load(source)
    config.update(keys)
    with open(file, "w", encoding="utf-8") as out:
        json.dump(config, out)
    return target


def with_more(name):
    """The tiny model with a tensor that it does not use."""
    target = copy(name)
    file = os.path.join(target, "model.safetensors")
    with open(file, "rb") as source:
        data = source.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    end = len(data) - 8 - size
    head["model.nobody.weight"] = {"dtype": "F32", "shape": [1],
                                   "data_offsets": [end, end + 4]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data[8 + size:] +
                  bytes(4))
    return target


def gemma2(name):
    """Of Gemma 2, with a window; its weights are for headers alone."""
    target = patch(name, model_type="gemma2", sliding_window=16, head_dim=16,
                   query_pre_attn_scalar=16, num_hidden_layers=2,
                   num_attention_heads=4, num_key_value_heads=2,
                   hidden_size=64, intermediate_size=96, vocab_size=332,
                   max_position_embeddings=8192,
                   tie_word_embeddings=True)
    wide, narrow, inner = [64, 64], [32, 64], [96, 64]
    layer = {"self_attn.q_proj": wide, "self_attn.k_proj": narrow,
             "self_attn.v_proj": narrow, "self_attn.o_proj": wide,
             "mlp.gate_proj": inner, "mlp.up_proj": inner,
             "mlp.down_proj": [64, 96], "input_layernorm": [64],
             "post_attention_layernorm": [64],
             "pre_feedforward_layernorm": [64],
             "post_feedforward_layernorm": [64]}
    shapes = {"model.embed_tokens": [332, 64], "model.norm": [64]}
    for i in range(2):
        shapes.update({f"model.layers.{i}.{k}": v for k, v in layer.items()})
    head, end = {}, 0
    for module, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        head[module + ".weight"] = {"dtype": "F32", "shape": shape,
                                    "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + bytes(end))
    return target


def with_thoughts(name):
    """The tiny model with the marks of thoughts among its tokens."""
    target = copy(name)
    file = os.path.join(target, "tokenizer.json")
    with open(file, encoding="utf-8") as source:
        text = source.read()
    with open(file, "w", encoding="utf-8") as out:
        out.write(text.replace('"<r>"', '"<think>"')
                  .replace('"<mask>"', '"</think>"'))
    return target


MORE = with_more("more")
LONG = patch("long", model=WIDE, max_position_embeddings=1 << 24)
THINKER = with_thoughts("thinker")
# mlx-lm takes the long factors also for short sequences.
STRETCHED = patch("stretched", original_max_position_embeddings=256,
                  rope_scaling={"type": "longrope", "short_factor": [1.0] * 8,
                                "long_factor": [9.0] * 8})
WINDOWED = gemma2("windowed")
FULL = "{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}"
BARE = write("bare.jinja", FULL)
THINKS = write("think.jinja", FULL + "{% if enable_thinking is not defined or "
               "enable_thinking %}{{ '<think>' }}{% endif %}")


def loading(base, **more):
    """What every command takes that loads a model; `base` makes the words of a
    command line from the model's."""
    tiny, wide = base(TINY), base(WIDE)
    wrong = "head_dim is a multiple of 32"
    return {
        "backend": Row(tiny, ["--backend", "cuda"], "no CUDA", **more),
        "device": Row(tiny, ["--device", "1"], "device 0 alone", **more),
        "tensor-parallel": Row(tiny, ["--tensor-parallel", "2"],
                               "one device", **more),
        # What it does to a file is shown by the models' goldens.
        "gguf-dequant": Row(tiny, ["--gguf-dequant", "f16"], "no GGUF file",
                            **more),
        "pull": Row(base("nobody/nothing"), ["--pull"], "HF_HUB_OFFLINE",
                    **more),
        "threads": Row(tiny, ["--threads", "500"], "500 threads, but", **more),
        "dtype": Row(tiny, ["--dtype", "bf16"], **more),
        "ctx": Row(tiny, ["--ctx", "300"], "allows at most 256", **more),
        "kv": Row(tiny, ["--kv", "affine8"], wrong, **more),
        "kv-bits": Row(tiny, ["--kv-bits", "8"], wrong, **more),
        # There is one group, so all that it can do is to say so.
        "kv-group-size": Row(wide + ["--kv-bits", "8"],
                             ["--kv-group-size", "32"], "expected one of 64",
                             **more),
        "kv-quant-start": Row(wide + ["--kv", "affine4"],
                              ["--kv-quant-start", "1k"], **more),
        "max-kv-size": Row(tiny, ["--max-kv-size", "5"], **more),
        "force": Row(base(LONG) + ["--ctx", "16777216", "--kv", "f32"],
                     ["--force"], hides="the model needs", roomy=True, **more),
        "compat": Row(base(STRETCHED), ["--compat", "mlx-lm"], **more),
        "lenient-weights": Row(base(MORE), ["--lenient-weights"],
                               "warning: .*nobody", **more),
    }


def answering(base, ids, text=None, seeds=()):
    """What every command takes that answers.  `ids` are in the answer with seed
    7; `seeds` are words that make its seed visible."""
    steady_words = ["--seed", "7", "--max-tokens", "12", "--ignore-eos"]

    def row(*flag, more=(), model=TINY, **keys):
        return Row(base(model) + list(more) + steady_words, list(flag),
                   text=text, **keys)

    def likeliest(*flag, more=()):
        return row(*flag, more=["--temperature", "0"] + list(more))

    first = re.search("[a-zA-Z]", run(base(TINY) + steady_words, text)[1])
    ends = patch("ends-" + base("")[0], eos_token_id=sorted(ids))
    thinker = ["--chat-template", THINKS]
    few = ["--seed", "7", "--max-tokens", "12"]
    return {
        "system": row("--system", "Be brief."),
        "max-tokens": Row(base(TINY) + ["--seed", "7", "--ignore-eos"],
                          ["--max-tokens", "3"], text=text),
        "min-tokens": Row(base(ends) + few, ["--min-tokens", "4"], text=text),
        "ignore-eos": Row(base(ends) + few, ["--ignore-eos"], text=text),
        "stop": row("--stop", first.group(0)),
        "temperature": row("--temperature", "0"),
        "top-p": row("--top-p", "0.05"),
        "top-k": row("--top-k", "1"),
        "min-p": row("--min-p", "1"),
        "typical-p": row("--typical-p", "0.01"),
        "xtc-probability": row("--xtc-probability", "1"),
        "xtc-threshold": row("--xtc-threshold", "0.5",
                             more=["--xtc-probability", "1"]),
        "repetition-penalty": likeliest("--repetition-penalty", "9"),
        "repetition-context-size": likeliest("--repetition-context-size", "1",
                                             more=["--repetition-penalty",
                                                   "9"]),
        "presence-penalty": likeliest("--presence-penalty", "2"),
        "presence-context-size": likeliest("--presence-context-size", "1",
                                           more=["--presence-penalty", "2"]),
        "frequency-penalty": likeliest("--frequency-penalty", "2"),
        "frequency-context-size": likeliest("--frequency-context-size", "1",
                                            more=["--frequency-penalty", "2"]),
        "seed": Row(base(TINY) + list(seeds), ["--seed", "35"],
                    r"seed\D+35\b", text=text),
        "think": row("--no-think", model=THINKER, more=thinker),
        "show-thinking": row("--show-thinking", model=THINKER, more=thinker),
        "chat-template": row("--chat-template", BARE),
        "trust-content": Row(base(TINY) + steady_words, ["--trust-content"],
                             text=text and "<|im_end|>\n"),
        "model": Row(base(TINY), ["--model", "x"], "exclude|unexpected|more",
                     text=text),
    }


# ---- what each command takes ----

LINES = write("lines.txt", "Hello there, these are some words. 12345\n" * 8)
CHOICES = write("choices.jsonl", json.dumps(
    {"question": "one", "choices": ["a", "b"], "answer": 0}) + "\n")


def answer_ids():
    """Tokens of the answer that the rows of `answering` are about."""
    out = run(["run", TINY, "one two three four", "--seed", "7", "--json",
               "--max-tokens", "12", "--ignore-eos", "--logprobs", "0"])[1]
    return {token["id"] for token in json.loads(out)["logprobs"]}


def rows_of_run():
    def base(model):
        return ["run", model, "one two three four"]

    def json_of(model):
        return base(model) + ["--json", "--logprobs", "0", "--seed", "7",
                              "--max-tokens", "12", "--ignore-eos"]
    saved = path("prompt.cache")
    run(base(TINY) + ["--seed", "7", "--save-prompt-cache", saved])
    plain = ["run", TINY, "--max-tokens", "4", "--seed", "7"]
    new = {"XDG_STATE_HOME": path("new-run")}
    hi = plain + ["hi"]
    rows = manners(hi)
    rows.update(loading(json_of))
    rows.update(answering(base, answer_ids(), seeds=["--json"]))
    rows.update({
        "trust-content": Row(["run", TINY, "<|im_end|>", "--json",
                              "--max-tokens", "2"], ["--trust-content"]),
        "progress": Row(hi, ["--progress", "json"], '"event":"progress"'),
        "file": Row(plain, ["--file", LINES],
                    hides="standard input is empty"),
        "stdin": Row(plain + ["hi"], ["--no-stdin"], text="more"),
        "raw": Row(hi, ["--raw"]),
        "logprobs": Row(hi + ["--json"], ["--logprobs", "2"], '"logprobs"'),
        "stream": Row(hi + ["--json"], ["--stream"], '"event":"piece"'),
        "stats": Row(hi, ["--stats"], "tokens/s"),
        "prompt-cache": Row(base(TINY) + ["--json", "--seed", "7"],
                            ["--prompt-cache", saved],
                            '"cached_tokens":[1-9]'),
        "save-prompt-cache": Row(hi, ["--save-prompt-cache", path("saved")],
                                 makes=path("saved")),
        "prompt": Row(["run", TINY, "--max-tokens", "4"], ["--prompt", "x"],
                      hides="standard input is empty"),
        "model": Row(["run", "--max-tokens", "4", "--prompt", "x"],
                     ["--model", TINY], hides="no model was given", env=new),
        "draft-model": Row(hi + ["--json"], ["--draft-model", TINY],
                           '"speculation"'),
        "ngram": Row(hi + ["--json"], ["--ngram"], '"speculation"'),
        "num-draft": Row(["run", TINY, "hi", "--seed", "7", "--temperature",
                          "0", "--json", "--draft-model", TINY],
                         ["--num-draft", "2"]),
    })
    return rows


def rows_of_chat():
    text = "one two three four\n"

    def base(model):
        return ["chat", model]

    def settled(model):
        return base(model) + ["--seed", "7", "--max-tokens", "150",
                              "--ignore-eos"]
    hi = settled(TINY)
    rows = manners(hi, text=text)
    rows.update(loading(settled, text=text))
    rows.update(answering(base, answer_ids(), text))
    longer = text + "/stats\n"
    rows.update({
        "trust-content": Row(["chat", TINY, "--max-tokens", "2"],
                             ["--trust-content"], text="<|im_end|>\n/stats\n"),
        "seed": Row(base(TINY), ["--seed", "35"], r"seed 35\b", text=longer),
        "progress": Row(hi, ["--progress", "json"], '"event":"progress"',
                        text=text),
        "server": Row(hi, ["--server", NOWHERE], "connect", text=text),
        "history": Row(hi, ["--history", path("history")],
                       makes=path("history"), text=text),
        "model": Row(["chat", "--max-tokens", "4"], ["--model", TINY],
                     hides="no model was given", text=text,
                     env={"XDG_STATE_HOME": path("new-chat")}),
        # The answer is the same, so these show by what they refuse.
        "draft-model": Row(hi, ["--draft-model", "/nowhere"], "/nowhere",
                           text=text),
        "ngram": Row(hi + ["--draft-model", TINY], ["--ngram"],
                     "exclude each other", text=text),
        "num-draft": Row(hi, ["--num-draft", "3"], "needs --draft-model",
                         text=text),
    })
    return rows


def rows_of_bench():
    def base(model):
        return ["bench", model, "-p", "4", "-n", "8", "-r", "1", "--warmup",
                "0", "--json", "--no-record"]
    plain = ["bench", TINY, "-r", "1", "--json", "--no-record"]
    tiny = base(TINY)
    small = plain + ["-p", "4", "-n", "2"]
    earlier = path("earlier.jsonl")
    with open(earlier, "w", encoding="utf-8") as file:
        for line in run(small)[1].splitlines():
            cell = json.loads(line)
            cell["tokens_per_s"] = 1e12
            file.write(json.dumps(cell) + "\n")
    state = {"XDG_STATE_HOME": path("state")}
    rows = manners(["bench", TINY, "-p", "4", "-n", "0", "-r", "1"])
    rows.update(loading(base))
    rows.update({
        # Speeds show nothing of these, so what they refuse must do.
        "compat": Row(tiny, ["--compat", "x"], "expected one of mlx-lm"),
        "max-kv-size": Row(tiny, ["--max-kv-size", "4"], "from 5"),
        "kv-quant-start": Row(tiny, ["--kv-quant-start", "9"],
                              "needs a packed --kv"),
        "progress": Row(tiny, ["--progress", "json"], '"event":"progress"'),
        "server": Row(["bench", "--concurrency", "1", "-r", "1"],
                      ["--server", NOWHERE], "connect"),
        "concurrency": Row(["bench", "--server", NOWHERE],
                           ["--concurrency", "0"], "from 1 to 1024"),
        "prompt": Row(plain + ["-n", "0"], ["--prompt", "4"], '"pp4"'),
        "decode": Row(plain + ["-p", "0"], ["--decode", "4"], '"tg4"'),
        "depth": Row(small, ["--depth", "6"], '"depth":6'),
        "batch": Row(small, ["--batch", "3"], '"batch":3'),
        "repeat": Row(["bench", TINY, "-p", "4", "-n", "0", "--json",
                       "--no-record"], ["--repeat", "2"], '"runs":2'),
        "warmup": Row(small + ["--progress", "json"], ["--warmup", "3"],
                      '"total":8'),
        "history": Row(["bench"], ["--history"], hides="no model",
                       env={"XDG_STATE_HOME": path("new-bench")}),
        "record": Row(["bench", TINY, "-p", "4", "-n", "0", "-r", "1"],
                      ["--record"], makes=path("state/quern/runs.jsonl"),
                      env=state),
        "compare": Row(small, ["--compare", earlier], "is allowed"),
        "max-regression": Row(small + ["--compare", earlier],
                              ["--max-regression", "100%"],
                              hides="is allowed"),
        "draft-model": Row(tiny, ["--draft-model", TINY], r"tg8\+draft"),
        "ngram": Row(tiny, ["--ngram"], r"tg8\+ngram"),
        "num-draft": Row(tiny, ["--num-draft", "3"], "needs --draft-model"),
    })
    # What is kept is kept unless it is told otherwise.
    rows["record"] = Row(["bench", TINY, "-p", "4", "-n", "0", "-r", "1",
                          "--no-record"], [], env=state)
    rows["record"].fault = lambda: recorded(["bench", TINY, "-p", "4", "-n",
                                             "0", "-r", "1"], "bench")
    return rows


def recorded(base, name):
    """Whether a run is kept, and with --no-record is not."""
    for flag, kept in (["--no-record"], False), ([], True):
        state = path("state-" + name)
        run(base + flag, XDG_STATE_HOME=state)
        if os.path.exists(state + "/quern/runs.jsonl") != kept:
            return f"{flag}: kept: {not kept}"
    return None


def rows_of_eval():
    def base(model):
        return ["eval", model, "--task", "perplexity", "--data", LINES,
                "--json", "--no-record"]
    tiny = base(TINY)
    kl = ["eval", TINY, "--task", "kl", "--data", LINES, "--no-record"]
    rows = manners(["eval", TINY, "--task", "perplexity", "--data", LINES])
    rows.update(loading(base))
    rows["record"] = Row([], [])
    rows["record"].fault = lambda: recorded(
        ["eval", TINY, "--task", "perplexity", "--data", LINES], "eval")
    rows.update({
        "progress": Row(tiny, ["--progress", "json"], '"event":"progress"'),
        "task": Row(["eval", TINY, "--data", CHOICES],
                    ["--task", "choice"], "accuracy"),
        "data": Row(["eval", TINY, "--task", "perplexity"], ["--data", LINES],
                    "perplexity +[0-9]"),
        "limit": Row(tiny + ["--ctx", "64"], ["--limit", "1"],
                     '"windows":1,|"windows":1}'),
        "stride": Row(tiny + ["--ctx", "64"], ["--stride", "32"]),
        "ref": Row(kl, ["--ref", Q4], "top1"),
        "save-logits": Row(kl, ["--save-logits", path("logits")],
                           makes=path("logits")),
        "min": Row(tiny, ["--min", "loss=1e9"], "no less than"),
        "max": Row(tiny, ["--max", "loss=0"], "no more than"),
    })
    return rows


def rows_of_embed():
    def base(model):
        return ["embed", model, "one two three four five six seven eight",
                "--pooling", "last"]
    tiny = base(TINY)
    plain = ["embed", TINY, "one"]
    pooled = plain + ["--pooling", "mean"]
    rows = manners(pooled)
    rows.update(loading(base))
    rows.update({
        "progress": Row(tiny, ["--progress", "json"], '"event":"progress"'),
        "file": Row(["embed", TINY, "--pooling", "mean"], ["--file", LINES]),
        "pooling": Row(plain, ["--pooling", "mean"], r"\[-?0\."),
        "normalize": Row(pooled, ["--no-normalize"]),
        "dim": Row(pooled, ["--dim", "3"]),
        "truncate": Row(["embed", TINY, "word " * 300, "--pooling", "mean"],
                        ["--truncate"], r"\[-?0\."),
        "format": Row(pooled, ["--format", "f32"]),
    })
    rows["file"] = Row(["embed", TINY, "--pooling", "mean"], ["--file", LINES],
                       r"\[-?[0-9]")
    return rows


def rows_of_show():
    rows = manners(["show", TINY])
    rows.update({
        "tensors": Row(["show", TINY, "--json"], ["--tensors"],
                       "model.embed_tokens.weight"),
        "template": Row(["show", TINY, "--json"], ["--template"],
                        "add_generation_prompt"),
        "tokenizer": Row(["show", TINY], ["--tokenizer"],
                         hides="architecture"),
    })
    return rows


def writing(command):
    """Of convert and quantize, each row with a DEST of its own."""
    numbers = iter(range(1000))
    quantize = ["--quantize"] if command == "convert" else []
    form = quantize + ["--group-size", "32"]
    text = write("calibration.txt", "These are words about words. " * 400)

    def row(flag, shows=None, more=(), source=TINY, **keys):
        base = [command, source, path(f"{command}-{next(numbers)}")]
        return Row(base + ["--overwrite"] + list(more), flag, shows, **keys)

    def weights(flag, more=()):
        """Seen in the bytes that are written."""
        made = row(flag, more=more)
        made.files = [os.path.join(made.base[2], "model.safetensors")]
        return made
    taken = [command, TINY, path(command + "-taken")] + form
    run(taken)
    rows = {name: row(of.flag, of.shows, form, hides=of.hides, env=of.env)
            for name, of in manners([]).items()}
    rows.update({
        "progress": row(["--progress", "json"], '"event":"progress"', form),
        "dtype": weights(["--dtype", "f16"], form),
        "bits": weights(["--bits", "8"], form),
        "group-size": row(["--group-size", "32"], "g32", quantize),
        "mode": row(["--mode", "mxfp8"], "mxfp8", quantize),
        "recipe": weights(["--recipe", "mixed_3_6"], form),
        "override": weights(["--override", "*.o_proj=8"], form),
        "keep-head": weights(["--keep-head"], form),
        "requantize": row(["--requantize"], "bits per weight", form, Q4),
        "target-bpw": row(["--target-bpw", "31"], "target|reach", form),
        "method": weights(["--method", "awq"], form),
        "calibration": row(["--calibration", text],
                           "for a target or method awq", form),
        "shard-size": row(["--shard-size", "1"], "from 1048576", form),
        "overwrite": Row(taken, ["--overwrite"], "bits per weight"),
        "check": row(["--no-check"], "bits per weight", form, MORE),
    })
    if command == "convert":
        rows.update({
            "to": row(["--to", "gguf"], r"ends in \.gguf"),
            "quantize": row(["--quantize"], "affine", ["--no-check"]),
            "dequantize": row(["--dequantize"], source=Q4),
            "exact": row(["--exact"], "exactly", ["--dtype", "f16"]),
        })
    else:
        rows["report"] = row(["--report", path("report.json")], None, form,
                             makes=path("report.json"))
    return rows


def rows_of_fit():
    tiny = ["fit", TINY]
    spec = write("spec.json", '{"memory": "1GiB", "bandwidth_gb_per_s": 7}')
    rows = manners(tiny)
    rows.update({
        "ctx": Row(tiny, ["--ctx", "77"], "x 77 x"),
        "parallel": Row(tiny, ["--parallel", "3"], "x 3$|x 3\n"),
        "kv": Row(tiny, ["--kv", "f32"]),
        "compat": Row(["fit", WINDOWED], ["--compat", "mlx-lm"]),
        "device": Row(tiny, ["--device", "1"], "device 0 alone"),
        "tensor-parallel": Row(tiny, ["--tensor-parallel", "2"], "one device"),
        "gguf-dequant": Row(tiny, ["--gguf-dequant", "f16"], "no GGUF file"),
        "memory": Row(tiny, ["--memory", "3G"], "3.00 GiB"),
        "device-spec": Row(tiny, ["--device-spec", spec], "1.00 GiB"),
        "all": Row(["fit"], ["--all"], "model +weights"),
        "cached": Row(tiny, ["--cached"], hides="decoding"),
        "pull": Row(["fit", "nobody/nothing"], ["--pull"], "HF_HUB_OFFLINE"),
        "remote": Row(["fit", "nobody/nothing"], ["--remote"],
                      "HF_HUB_OFFLINE|offline|forbidden"),
    })
    rows["cached"].fault = measured
    return rows


def measured():
    """With --cached no speeds that were not measured before."""
    for flag, there in (["--cached"], False), ([], True), (["--cached"], True):
        out = run(["fit", TINY] + flag, XDG_CACHE_HOME=path("speeds"))[1]
        if ("decoding" in out) != there:
            return f"{flag}: {out}"
    return None


def rows_of_list():
    rows = manners(["list"])
    rows.update({
        "sort": Elsewhere("sort", "test_config.sh"),
        "remote": Row(["list"], ["--remote", "x"], "HF_HUB_OFFLINE|offline"),
    })
    return rows


def rows_of_gc():
    rows = manners(["gc"])
    rows.update({
        "older-than": Row(["gc", "--no-unreferenced"], ["--older-than", "1h"],
                          "could be freed"),
        "keep": Elsewhere("keep", "test_config.sh"),
        "unreferenced": Row(["gc"], ["--no-unreferenced"],
                            "nothing to look for"),
        "yes": Row(["gc"], ["--yes"], "B freed"),
        "dry-run": Row(["gc", "--yes"], ["--dry-run"], "exclude each other"),
    })
    return rows


class Elsewhere:
    """Shown by another test, which has the flag in a line."""

    def __init__(self, flag, test):
        self.flag, self.test = flag, test

    def fault(self):
        with open(os.path.join(ROOT, "tests/cli", self.test),
                  encoding="utf-8") as file:
            text = file.read()
        if re.search(rf"--(no-)?{self.flag}\b", text):
            return None
        return f"{self.test} does not use it"


class Read:
    """A flag whose effect shows in requests alone (the server's tests): here,
    that the command asks for its value."""

    def __init__(self, command, flag):
        self.command, self.flag = command, flag

    def fault(self):
        with open(os.path.join(ROOT, "src/cli/flags.def"),
                  encoding="utf-8") as file:
            ids = re.findall(rf'QN_FLAG\((\w+),\s+"{self.flag}",(.*)',
                             file.read())
        text = ""
        for name in (self.command, self.command + "_models", "model",
                     "request", "progress"):
            with open(os.path.join(ROOT, "src/cli", name + ".c"),
                      encoding="utf-8") as file:
                text += file.read()
        if any(re.search(rf"QN_FLAG_{id}\b|\({id}\)", text)
               for id, _ in ids):
            return None
        return f"{ids}: nothing reads it"


def rows_of_serve(flags):
    def base(model):
        return ["serve", model, "--check"]
    rows = {flag: Read("serve", flag) for flag in flags}
    rows.update(manners(base("nobody/nothing")))
    shown = loading(base)
    for flag in ("compat", "dtype", "kv-quant-start", "max-kv-size"):
        del shown[flag]
    rows.update(shown)
    rows.update({
        "draft-model": Row(base(TINY), ["--draft-model", "/nowhere"],
                           "/nowhere"),
        "ngram": Row(base(TINY) + ["--draft-model", TINY], ["--ngram"],
                     "exclude each other"),
        "num-draft": Row(base(TINY), ["--num-draft", "3"],
                         "needs --draft-model"),
        "check": Row(["serve", TINY, "--host", "192.0.2.1", "--api-key", "k"],
                     ["--check"], hides="192.0.2.1"),
        "print-config": Row(base(TINY), ["--print-config"], "default"),
    })
    return rows


def rows_of_get():
    rows = manners(["get", "nobody/nothing"])
    rows["json"] = Row(["get", "nobody/nothing"], ["--json"],
                       '"schema":"quern.error/1"')
    for flag in ("revision", "include", "exclude", "quant", "jobs", "dir",
                 "offline", "verify", "max-size", "retries", "wait", "dry-run",
                 "progress"):
        rows[flag] = Elsewhere(flag, "test_get.sh")
    return rows


TABLE = {
    "run": rows_of_run, "chat": rows_of_chat, "bench": rows_of_bench,
    "serve": rows_of_serve, "get": rows_of_get, "list": rows_of_list, "gc": rows_of_gc,
    "embed": rows_of_embed, "show": rows_of_show,
    "convert": lambda: writing("convert"),
    "quantize": lambda: writing("quantize"), "fit": rows_of_fit,
    "eval": rows_of_eval,
    "doctor": lambda: {**manners(["doctor"]),
                       "config": Row(["doctor"], ["--config"], "default")},
    "completion": lambda: manners(["completion", "bash"]),
    "version": lambda: manners(["version"]),
    "help": lambda: {**manners(["help"]),
                     "help": Row(["help"], ["--help", "--json"],
                                 "quern.help")},
}

# ---- modes ----

# What a command with these words takes of its flags.  All others are refused,
# and the line names both.
SPEAKING = {"help", "quiet", "verbose", "json", "config"}
SAMPLING = {
    "system", "max-tokens", "min-tokens", "ignore-eos", "stop", "temperature",
    "top-p", "top-k", "min-p", "typical-p", "xtc-probability", "xtc-threshold",
    "repetition-penalty", "repetition-context-size", "presence-penalty",
    "presence-context-size", "frequency-penalty", "frequency-context-size",
    "seed", "think"}
MODES = [
    ("chat", ["--server", NOWHERE],
     SPEAKING | SAMPLING | {"server", "show-thinking", "history", "model"}),
    ("bench", ["--server", NOWHERE],
     SPEAKING | {"server", "progress", "prompt", "decode", "repeat", "warmup",
                 "concurrency", "record"}),
    ("bench", ["--history"], SPEAKING),
    ("list", ["--remote", "x"], SPEAKING | {"remote"}),
    ("fit", ["--all"], SPEAKING | {"all", "ctx", "parallel", "kv", "memory",
                                   "device-spec", "cached", "compat", "device",
                                   "tensor-parallel", "gguf-dequant"}),
    ("get", ["nobody/nothing", "--offline"],
     SPEAKING | {"offline", "revision", "quant", "dry-run", "progress"}),
    ("run", [TINY, "hi", "--raw"], None),
]
REFUSED_WHEN_RAW = {"system", "chat-template", "trust-content", "think"}

# Values that are good for a flag by themselves.
VALUES = {
    "system": "x", "stop": "x", "server": NOWHERE, "history": "x",
    "model": "x", "prompt": "4", "decode": "4", "depth": "4", "batch": "2",
    "concurrency": "2", "compare": "x", "max-regression": "3", "kv": "f32",
    "draft-model": "x", "chat-template": "chatml", "file": "x",
    "prompt-cache": "x", "save-prompt-cache": "x", "revision": "x",
    "include": "x", "exclude": "x", "quant": "x", "dir": "x", "remote": "x",
    "ctx": "9", "device-spec": "x", "keep": "x", "config": "x"}
NEEDED = {"kv-group-size": "kv-bits", "max-regression": "compare",
          "num-draft": "draft-model"}


def words_for(flag):
    """The flag with a value, in the form that says something."""
    name, kind = flag["name"], flag["kind"]
    if kind == "bool":
        return ["--no-" + name if flag["default"] == "on" else "--" + name]
    if kind == "choice":
        words = [w for w in flag["values"].split("|") if w != "auto"]
        return ["--" + name, words[0]]
    return ["--" + name, VALUES.get(name, {
        "integer": "3", "count": "7", "size": "2G", "number": "0.5",
        "duration": "1h"}.get(kind, "x"))]


def mode_fault(command, words, flag):
    name = flag["name"]
    code, _, err = run([command] + words + words_for(flag))
    mode = next(w for w in reversed(words) if w.startswith("--"))
    # What needs another flag is told so, and that one excludes the mode.
    says = [rf"{mode} and --(no-)?{name}\b", rf"--(no-)?{name} and {mode}\b",
            rf"--{name} needs --{NEEDED.get(name)}\b"]
    if name == "model":
        says.append(f"{mode} and a model")
    if code == 2 and any(re.search(text, err) for text in says):
        return None
    return f"{words} {words_for(flag)}: {code} {err}"


# ---- the test ----

def main():
    os.makedirs(path("home"), exist_ok=True)
    os.makedirs(path("cache"), exist_ok=True)
    listed = json.loads(run(["help", "--json"])[1])["commands"]
    jobs = []
    for command in listed:
        name = command["name"]
        if name not in TABLE:
            jobs.append((name, lambda n=name: f"no table for {n}"))
            continue
        flags = {f["name"]: f for f in command["flags"]}
        rows = TABLE[name](flags) if name == "serve" else TABLE[name]()
        for flag in flags:
            row = rows.get(flag)
            jobs.append((f"{name} --{flag}",
                         row.fault if row else lambda: "nothing shows it"))
        for of, words, takes in MODES:
            if of != name:
                continue
            for flag in flags.values():
                refused = (flag["name"] in REFUSED_WHEN_RAW if takes is None
                           else flag["name"] not in takes)
                given = "--" + flag["name"] in words
                if refused and not given:
                    jobs.append((f"{name} {words} --{flag['name']}",
                                 lambda c=name, w=words, f=flag:
                                 mode_fault(c, w, f)))
    bad = 0
    with ThreadPoolExecutor(max_workers=4) as pool:
        for (name, _), fault in zip(jobs, pool.map(lambda j: j[1](), jobs)):
            if fault:
                bad += 1
                print(f"{name}: {fault[:700]}")
    print(f"{len(jobs)} flags of {len(listed)} commands and their modes, {bad} "
          "without effect")
    return 1 if bad else 0


sys.exit(main())
