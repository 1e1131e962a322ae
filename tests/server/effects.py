"""What each field of a request does.

    effects.py QUERN_TEST ROOT

The model is a small one with weights, whose answers follow from what is
computed, or one that plays a script, where an exact text is needed.
"""

import base64
import json
import math
import os
import struct
import sys
import tempfile

from asking import Server, models, scripted

QUERN, ROOT = sys.argv[1:]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hi"}
END = {"324": 100}  # the model's end, whatever it thinks
TESTS = []


def test(*flags, **model):
    def add(function):
        TESTS.append((function, flags, model))
        return function
    return add


def same(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def text_of(s, **more):
    """The text of a completion of 24 tokens."""
    body = {"prompt": "Once", "max_tokens": 24, "ignore_eos": True, **more}
    return s.ask(TEXT, **body)["choices"][0]["text"]


def pieces_of(s, **more):
    body = {"prompt": "Once", "max_tokens": 24, "ignore_eos": True,
            "logprobs": 0, **more}
    return s.ask(TEXT, **body)["choices"][0]["logprobs"]["tokens"]


# ---- sampling ----

@test()
def narrow_choices_are_greedy(s):
    greedy = text_of(s, temperature=0)
    for more in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1}):
        for seed in range(3):
            same(text_of(s, temperature=5, seed=seed, **more), greedy)
    assert text_of(s, temperature=5, seed=1) != greedy
    # All of them and none of them.
    free = text_of(s, temperature=1, seed=1)
    for more in ({"top_k": 0}, {"top_k": -1}, {"top_k": 332}, {"top_p": 1},
                 {"min_p": 0}, {"typical_p": 1}, {"xtc_probability": 0},
                 {"repetition_penalty": 1}, {"repetition_penalty": 0},
                 {"presence_penalty": 0}, {"frequency_penalty": 0},
                 {"logit_bias": {}}, {"stop": []}, {"stop": ""}):
        same(text_of(s, temperature=1, seed=1, **more), free)


@test()
def few_choices_leave_out_the_others(s):
    def first(seed, **more):
        return pieces_of(s, temperature=5, seed=seed, max_tokens=1, **more)[0]
    likely = s.ask(TEXT, prompt="Once", max_tokens=1, temperature=0,
                   logprobs=3)["choices"][0]["logprobs"]["top_logprobs"][0]
    found = {first(seed, top_k=3) for seed in range(40)}
    same(found, set(likely))
    assert len({first(seed) for seed in range(40)}) > 10
    # The likeliest goes, where others would do.
    best = max(likely, key=likely.get)
    assert all(first(seed, xtc_probability=1, xtc_threshold=0) != best
               for seed in range(10))
    assert len({first(seed, typical_p=1e-9) for seed in range(10)}) == 1


@test()
def a_seed_is_an_answer(s):
    same(text_of(s, temperature=1, seed=7), text_of(s, temperature=1, seed=7))
    several = s.ask(TEXT, prompt=["Once", "Two"], max_tokens=24, n=3, seed=7,
                    best_of=3, temperature=1, ignore_eos=True)["choices"]
    same([c["index"] for c in several], list(range(6)))
    assert len({c["text"] for c in several}) == 6
    for i, choice in enumerate(several):
        same(choice["text"], text_of(s, temperature=1, seed=7 + i % 3,
                                     prompt=["Once", "Two"][i // 3]))
    # A drawn one is told, and repeats the answer.
    status, headers, text = s.post(TEXT, {"prompt": "Once", "temperature": 1})
    same(status, 200)
    again = s.ask(TEXT, prompt="Once", temperature=1,
                  seed=int(headers["X-Quern-Seed"]))
    same(again["choices"], json.loads(text)["choices"])
    status, headers, _ = s.post(TEXT, {"prompt": "Once", "temperature": 0})
    same(headers["X-Quern-Seed"], None)


@test()
def a_bias_bans_and_forces(s):
    same(text_of(s, logit_bias={"65": 100}, temperature=0), "A" * 24)
    greedy = pieces_of(s, temperature=0)
    ids = s.ask("/v1/tokenize", content=greedy[0])["tokens"]
    same(len(ids), 1)
    banned = pieces_of(s, temperature=0, logit_bias={str(ids[0]): -100})
    assert greedy[0] not in banned


@test()
def penalties_lower_what_was_said(s):
    plain = pieces_of(s, temperature=0, logit_bias={"65": 3, "66": 3})
    for more in ({"repetition_penalty": 10}, {"presence_penalty": 2},
                 {"frequency_penalty": 2}, {"repeat_penalty": 10}):
        found = pieces_of(s, temperature=0, logit_bias={"65": 3, "66": 3},
                          **more)
        assert len(set(found)) > len(set(plain)), (more, found, plain)
        same(pieces_of(s, temperature=0, logit_bias={"65": 3, "66": 3},
                       repeat_last_n=0, **more), plain)
    # A window of one token: never the same twice in a row.
    both = {"temperature": 0, "logit_bias": {"65": 100, "66": 100}}
    found = pieces_of(s, repetition_penalty=10, repetition_context_size=1, **both)
    assert "".join(found) in ("AB" * 12, "BA" * 12), found
    # What is counted again and again is balanced, unless only the last counts.
    all_of_it = pieces_of(s, frequency_penalty=2, frequency_context_size=0, **both)
    assert abs(all_of_it.count("A") - all_of_it.count("B")) < 5, all_of_it
    last = pieces_of(s, frequency_penalty=2, frequency_context_size=1, **both)
    same(pieces_of(s, presence_penalty=2, presence_context_size=1, **both), last)
    assert last != all_of_it


# ---- ends ----

@test()
def an_answer_ends_where_it_is_told(s):
    def end(**more):
        made = s.ask(TEXT, prompt="Once", **{"max_tokens": 12, **more})
        return (made["usage"]["completion_tokens"],
                made["choices"][0]["finish_reason"])
    same(end(logit_bias=END), (1, "stop"))
    same(end(logit_bias=END, min_tokens=5), (6, "stop"))
    same(end(logit_bias=END, min_tokens=12), (12, "length"))
    same(end(logit_bias=END, ignore_eos=True), (12, "length"))
    same(end(logit_bias={"65": 100}, max_tokens=1), (1, "length"))
    same(s.ask(TEXT, prompt="Once", ignore_eos=True)["usage"]
         ["completion_tokens"], 16)
    same(s.ask(CHAT, messages=[USER], ignore_eos=True)["usage"]
         ["completion_tokens"], 20)
    room = 256 - s.ask(TEXT, prompt="Once", max_tokens=1)["usage"][
        "prompt_tokens"]
    same(end(ignore_eos=True, max_tokens=room), (room, "length"))
    made = s.ask(TEXT, prompt="Once", ignore_eos=True, n_predict=-1)
    same(made["usage"]["completion_tokens"], room)


@test(text="one two three")
def stops_are_not_shown(s):
    def end(**more):
        choice = s.ask(CHAT, messages=[USER], **more)["choices"][0]
        return choice["message"]["content"], choice["finish_reason"]
    same(end(), ("one two three", "stop"))
    for stop, text in (("two", "one "), (["x", "three"], "one two "),
                       (["three", "two"], "one "), ("o", ""), ("ee", "one two thr"),
                       (["one two three"], ""), ("e t", "on"), ("threes", "one two three")):
        same(end(stop=stop), (text, "stop"))
    made = s.ask(MESSAGES, max_tokens=50, messages=[USER],
                 stop_sequences=["three", "two"])
    same((made["stop_reason"], made["stop_sequence"], made["content"]),
         ("stop_sequence", "two", [{"type": "text", "text": "one "}]))
    same(s.ask(RESPONSES, input="a", stop="two")["output"][0]["content"][0][
        "text"], "one ")


# ---- prompts ----

@test()
def a_chat_is_a_completion_of_its_prompt(s):
    for more, shown in (
            ({}, {}),
            ({"messages": [{"role": "developer", "content": "Be kind."}, USER]},
             {}),
            ({"messages": [USER, {"role": "assistant", "content": "So "}],
              "continue_final_message": True}, {"continue_final_message": True})):
        messages = more.pop("messages", [USER])
        made = s.ask(CHAT, messages=messages, temperature=0, ignore_eos=True,
                     max_tokens=20, **more)
        prompt = s.ask("/v1/apply-template", messages=messages, **shown)
        same(made["usage"]["prompt_tokens"], len(prompt["tokens"]))
        for form in (prompt["tokens"], prompt["prompt"]):
            same(text_of(s, prompt=form, temperature=0, max_tokens=20),
                 made["choices"][0]["message"]["content"])
    made = s.ask(MESSAGES, max_tokens=20, temperature=0, messages=[
        USER, {"role": "assistant", "content": "So "}])
    same(made["usage"]["input_tokens"] +
         made["usage"]["cache_read_input_tokens"], len(prompt["tokens"]))
    kind = [{"role": "system", "content": "Be kind."}, USER]
    wanted = s.ask(CHAT, messages=kind, temperature=0, max_tokens=20)
    text = wanted["choices"][0]["message"]["content"]
    made = s.ask(RESPONSES, input="Hi", instructions="Be kind.", temperature=0,
                 max_output_tokens=20)
    same(made["output"][-1]["content"][0]["text"], text)
    same(made["usage"]["input_tokens"], wanted["usage"]["prompt_tokens"])
    made = s.ask(MESSAGES, messages=[USER], system="Be kind.", temperature=0,
                 max_tokens=20)
    same("".join(b["text"] for b in made["content"]), text)
    # A response that goes on is the conversation; instructions stay behind.
    first = s.ask(RESPONSES, input="Hi", instructions="Be kind.", temperature=0,
                  max_output_tokens=5)
    said = first["output"][-1]["content"][0]["text"]
    next_one = s.ask(RESPONSES, input="And?", previous_response_id=first["id"],
                     temperature=0, max_output_tokens=5)
    wanted = s.ask(CHAT, messages=[
        USER, {"role": "assistant", "content": said},
        {"role": "user", "content": "And?"}], temperature=0, max_tokens=5)
    same(next_one["usage"]["input_tokens"], wanted["usage"]["prompt_tokens"])
    same(next_one["output"][-1]["content"][0]["text"],
         wanted["choices"][0]["message"]["content"])


@test()
def an_echo_is_the_prompt(s):
    text = text_of(s, temperature=0)
    same(text_of(s, temperature=0, echo=True), "Once" + text)
    ids = s.ask("/v1/tokenize", content="Once", add_special=True)["tokens"]
    same(text_of(s, temperature=0, prompt=ids), text)
    made = s.ask(TEXT, prompt=["Once", "Two"], echo=True, max_tokens=0,
                 logprobs=1)
    same([c["text"] for c in made["choices"]], ["Once", "Two"])
    same(made["usage"]["completion_tokens"], 0)
    found = made["choices"][0]["logprobs"]
    same("".join(found["tokens"])[-4:], "Once")
    same(found["text_offset"][-1], 4 - len(found["tokens"][-1]))


@test(text="in between", added=["<|fim_prefix|>", "<|fim_suffix|>",
                                "<|fim_middle|>"])
def a_suffix_stands_behind_the_gap(s):
    made = s.ask(TEXT, prompt="be", suffix="after", echo=True, max_tokens=20)
    same(made["choices"][0]["text"], "bein between")
    around = "<|fim_prefix|>be<|fim_suffix|>after<|fim_middle|>"
    wanted = s.ask("/v1/tokenize", content=around)["tokens"]
    same(made["usage"]["prompt_tokens"], len(wanted))
    same(wanted[0], 332)


@test()
def log_probabilities_are_those_of_the_choice(s):
    def tokens(**more):
        return s.ask(CHAT, messages=[USER], max_tokens=6, logprobs=True,
                     ignore_eos=True, **more)["choices"][0]["logprobs"]["content"]
    for token in tokens(temperature=0, top_logprobs=20):
        top = token["top_logprobs"]
        same(len(top), 20)
        same(top[0]["logprob"], token["logprob"])
        same(sorted((t["logprob"] for t in top), reverse=True),
             [t["logprob"] for t in top])
        same(bytes(token["bytes"]).decode(errors="replace"), token["token"])
        assert sum(math.exp(t["logprob"]) for t in top) < 1.0001
    assert all(t["top_logprobs"] == [] for t in tokens())


# ---- thoughts ----

THINKS = {"thoughts": "abcdef", "text": "gh", "added": ["<think>", "</think>"]}


@test(**THINKS)
def thoughts_have_a_budget(s):
    def said(**more):
        message = s.ask(CHAT, messages=[USER], **more)["choices"][0]["message"]
        return message.get("reasoning_content"), message["content"]
    same(said(), ("abcdef", "gh"))
    same(said(reasoning_budget=-1), ("abcdef", "gh"))
    # Then the script goes on, as an answer.
    same(said(reasoning_budget=3)[0], "abc")
    same(said(reasoning_budget=0)[0], None)
    same(said(stop="c"), ("abcdef", "gh"))
    same(said(max_tokens=3), ("ab", ""))
    made = s.ask(MESSAGES, max_tokens=50, messages=[USER], thinking={
        "type": "enabled", "budget_tokens": 3})
    same(made["content"][0]["thinking"], "abc")
    made = s.ask(MESSAGES, max_tokens=50, messages=[USER],
                 thinking={"type": "disabled"})
    same([b["type"] for b in made["content"]], ["text"])
    usage = s.ask(CHAT, messages=[USER])["usage"]
    same(usage["completion_tokens_details"]["reasoning_tokens"], 8)


@test(thoughts="ab日", text="c", added=["<think>", "</think>"])
def marks_are_no_part_of_a_message(s):
    # The budget ends in the middle of a character.
    body = {"input": "Hi", "include": ["message.output_text.logprobs"],
            "reasoning_budget": 3, "max_output_tokens": 20}
    for stream in (False, True):
        status, _, text = s.post(RESPONSES, {**body, "stream": stream})
        same(status, 200)
        assert b'"token":"c"' in text and b"</think>" not in text, text


TEMPLATE = ("{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if enable_thinking is defined and not enable_thinking %}!"
            "{% endif %}{{ reasoning_effort or '' }}{{ mine or '' }}")


@test(template=TEMPLATE, text="x")
def variables_reach_the_template(s):
    def size(**more):
        return s.ask(CHAT, messages=[USER], **more)["usage"]["prompt_tokens"]
    same(size(), 2)
    same(size(reasoning_effort="high"), 6)
    same(size(reasoning_effort="none"), 7)
    same(size(chat_template_kwargs={"mine": "abc"}), 5)
    same(size(chat_template_kwargs={"enable_thinking": False}), 3)
    same(s.ask("/v1/apply-template", messages=[USER],
               chat_template_kwargs={"mine": "abc"})["prompt"], "Hiabc")
    same(s.ask(RESPONSES, input="Hi", reasoning={"effort": "high"})["usage"]
         ["input_tokens"], 6)
    for thinking, tokens in (("adaptive", 2), ("disabled", 3)):
        same(s.ask(MESSAGES + "/count_tokens", messages=[USER],
                   thinking={"type": thinking})["input_tokens"], tokens)


# ---- caches and guesses ----

@test()
def a_cache_is_shared_by_those_who_say_so(s):
    def cached(name, **more):
        made = s.ask(TEXT, prompt=name + 60 * "z", max_tokens=1,
                     temperature=0, **more)
        return made["usage"]["prompt_tokens_details"]["cached_tokens"] > 50
    same([cached("a"), cached("a")], [False, True])
    same([cached("b", cache_prompt=False), cached("b", cache_prompt=False),
          cached("b")], [False, False, False])
    for field in ("cache_salt", "prompt_cache_key"):
        same([cached(field), cached(field, **{field: "x"}),
              cached(field, **{field: "x"}), cached(field, **{field: "y"}),
              cached(field, **{field: ""})],
             [False, False, True, False, True])


@test("--ngram")
def guesses_change_nothing_but_time(s):
    def made(**more):
        answer = s.ask(TEXT, prompt="abcabcabcabc", max_tokens=40,
                       temperature=0, ignore_eos=True, **more)
        details = answer["usage"]["completion_tokens_details"]
        return (answer["choices"][0]["text"],
                details["accepted_prediction_tokens"] +
                details["rejected_prediction_tokens"])
    text, guessed = made()
    assert guessed > 0
    for more in ({"enabled": False}, {"num_draft": 0}):
        same(made(speculative=more), (text, 0))
    for more in ({"enabled": True}, {"num_draft": 16}, {"num_draft": 1}):
        found, guessed = made(speculative=more)
        same(found, text)
        assert guessed > 0


# ---- vectors ----

def vectors(s, **body):
    return [d["embedding"] for d in s.ask("/v1/embeddings", **body)["data"]]


def length(v):
    return math.sqrt(sum(x * x for x in v))


@test("--pooling", "mean")
def vectors_are_cut_and_made_unit_again(s):
    full, = vectors(s, input="Once")
    same(len(full), 32)
    assert abs(length(full) - 1) < 1e-6
    short, = vectors(s, input="Once", dimensions=8)
    for x, y in zip(short, full[:8]):
        assert abs(x - y / length(full[:8])) < 1e-6
    raw, = vectors(s, input="Once", normalize=False)
    assert abs(length(raw) - 1) > 1e-3
    for x, y in zip(raw, full):
        assert abs(x / length(raw) - y) < 1e-6
    text, = vectors(s, input="Once", encoding_format="base64")
    same(list(struct.unpack("<32f", base64.b64decode(text))),
         [struct.unpack("<f", struct.pack("<f", x))[0] for x in full])
    # Alone and among others, as a text and as tokens.
    ids = s.ask("/v1/tokenize", content="Once", add_special=True)["tokens"]
    same(vectors(s, input=["Two words", "Once", "x" * 100])[1], full)
    same(vectors(s, input=ids), [full])
    same(vectors(s, input=[[65], ids])[1], full)
    long, = vectors(s, input="x" * 300, truncate=True)
    count = 256 - len(ids) + len(s.ask("/v1/tokenize", content="Once")["tokens"])
    same(long, vectors(s, input="x" * count)[0])
    usage = s.ask("/v1/embeddings", input=["Once", "Once"])["usage"]
    same(usage, {"prompt_tokens": 2 * len(ids), "total_tokens": 2 * len(ids)})


# ---- tokens ----

@test()
def texts_are_tokens_and_texts_again(s):
    def tokens(content, **more):
        return s.ask("/v1/tokenize", content=content, **more)["tokens"]

    def text(ids, **more):
        return s.ask("/v1/detokenize", tokens=ids, **more)["content"]
    for content in ("", "Hello world", "日本語 👍 é", "<|im_end|>", "a\0b"):
        same(text(tokens(content)), content)
        same(text(tokens(content, parse_special=False)), content)
        same(tokens(content, with_pieces=False), tokens(content))
        pieces = tokens(content, with_pieces=True)
        same([p["id"] for p in pieces], tokens(content))
        same(b"".join(p["piece"].encode() if isinstance(p["piece"], str)
                      else bytes(p["piece"]) for p in pieces).decode(), content)
    same(tokens("<|im_end|>"), [324])
    assert len(tokens("<|im_end|>", parse_special=False)) > 1
    same(text([324, 72], skip_special=True), "H")
    same(text([324, 72], skip_special=False), "<|im_end|>H")


# ---- all ----

def run(folder, function, flags, model):
    path = os.path.join(models(ROOT), "tiny")
    if model:
        ids = list(model["text"].encode())
        if "thoughts" in model:
            ids = [332, *model["thoughts"].encode(), 333, *ids]
        path = scripted(ROOT, os.path.join(folder, function.__name__), ids,
                        model.get("added", ()))
    if "template" in model:
        name = os.path.join(path, "own.jinja")
        with open(name, "w", encoding="utf-8") as file:
            file.write(model["template"])
        flags = [*flags, "--chat-template", name]
    with Server(QUERN, path, "--default-max-tokens", "20", *flags) as server:
        function(server)
    return server.asked


def main():
    asked = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for function, flags, model in TESTS:
            try:
                asked += run(folder, function, flags, model)
            except Exception as error:  # pylint: disable=broad-except
                bad += 1
                trace = error.__traceback__
                lines = []
                while trace:
                    lines.append(str(trace.tb_lineno))
                    trace = trace.tb_next
                print(f"FAILED {function.__name__} ({' '.join(lines)}): "
                      f"{type(error).__name__} {error}"[:800])
    print(f"{len(TESTS)} tests, {asked} requests, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
