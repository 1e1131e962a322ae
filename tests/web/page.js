/* node page.js PAGE: what the page's script does without a document. */
"use strict";

const assert = require("assert");
const fs = require("fs");
const vm = require("vm");

const page = fs.readFileSync(process.argv[2], "utf8");
const source = page.split("<script>")[1].split("</script>")[0];
const scope = {};
vm.createContext(scope);
vm.runInContext(source, scope, {filename: "page.html"});
const {reader, fault, take, metric, size, summary} = scope;
const same = (a, b) => assert.deepStrictEqual(
  JSON.parse(JSON.stringify(a)), b);

const tests = {
  events_wherever_the_stream_is_cut() {
    const stream =
      "data: {\"a\":1}\n\n: keepalive\n\ndata:x\r\ndata: y\r\n\r\n" +
      "event: ping\nid: 4\n\ndata: \u00e9\u{1f600}\r\rdata:  two\n\n";
    const all = ["{\"a\":1}", "x\ny", "\u00e9\u{1f600}", " two"];
    for (let width = 1; width <= stream.length; width++) {
      const found = [], feed = reader(data => found.push(data));
      for (let i = 0; i < stream.length; i += width)
        feed(stream.slice(i, i + width));
      assert.deepStrictEqual(found, all, `pieces of ${width}`);
    }
    const found = [];
    reader(data => found.push(data))("data: half");
    assert.deepStrictEqual(found, []);
  },

  answers_grow_by_chunks() {
    const answer = {text: "", finish: "", whole: false};
    const chunk = more => JSON.stringify({choices: [{index: 0, ...more}]});
    same(take(answer, chunk({delta: {role: "assistant", content: ""}})),
         {text: "", thought: ""});
    same(take(answer, chunk({delta: {reasoning_content: "hm"}})),
         {text: "", thought: "hm"});
    same(take(answer, chunk({delta: {reasoning: "so"}})),
         {text: "", thought: "so"});
    same(take(answer, chunk({delta: {content: "<b>"}})),
         {text: "<b>", thought: ""});
    take(answer, chunk({delta: {content: "!"}, finish_reason: null}));
    take(answer, chunk({delta: {}, finish_reason: "length"}));
    assert.strictEqual(answer.whole, false);
    take(answer, JSON.stringify({
      choices: [],
      usage: {prompt_tokens: 9, completion_tokens: 2,
              prompt_tokens_details: {cached_tokens: 5}},
      timings: {ttft_ms: 120, decode_per_second: 41.26}}));
    take(answer, "[DONE]");
    assert.strictEqual(answer.whole, true);
    assert.strictEqual(answer.text, "<b>!");
    assert.strictEqual(
      summary(answer),
      "2 tokens \u00b7 41.3 tokens/s \u00b7 first after 0.12 s \u00b7 " +
      "5 of 9 prompt tokens kept from before \u00b7 cut at the longest length");
  },

  errors_say_what_the_server_says() {
    const error = {message: "expected 0..5, found 9", param: "temperature"};
    const body = JSON.stringify({error});
    assert.strictEqual(fault(body, 400),
                       "temperature: expected 0..5, found 9");
    assert.strictEqual(fault("{\"error\":{\"message\":\"no\"}}", 401), "no");
    for (const other of ["<html>", "", "null", "{}", "{\"error\":{}}"])
      assert.strictEqual(fault(other, 502),
                         "the server answered with status 502");
    assert.throws(() => take({text: ""}, body), /expected 0\.\.5/);
  },

  numbers_of_metrics_are_added_up() {
    const text = "# TYPE quern_a gauge\nquern_a 3\nquern_ab 9\n" +
      "quern_b{tier=\"memory\"} 1\nquern_b{tier=\"disk\"} 2.5\n";
    assert.strictEqual(metric(text, "quern_a"), 3);
    assert.strictEqual(metric(text, "quern_b"), 3.5);
    assert.strictEqual(metric(text, "quern_c"), undefined);
    assert.strictEqual(size(1000), "1000 B");
    assert.strictEqual(size(1536), "1.5 KiB");
    assert.strictEqual(size(3 * 2 ** 30), "3.0 GiB");
    assert.strictEqual(size(5000 * 2 ** 40), "5000.0 TiB");
  },
};

for (const [name, run] of Object.entries(tests)) {
  try {
    run();
  } catch (error) {
    console.log(`FAILED ${name}: ${error.message}`);
    process.exitCode = 1;
  }
}
console.log(`${Object.keys(tests).length} tests`);
