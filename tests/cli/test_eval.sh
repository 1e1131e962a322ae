#!/bin/sh
# quern eval.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
four=$root/tests/vectors/cases/fixtures/models/tiny_q4

i=0
while [ $i -lt 8 ]; do
    echo "Hello there, this is a short text of some words. It goes on and on," \
        "and then it ends. 12345 numbers, too." >>"$scratch/text"
    i=$((i + 1))
done

# mlx-lm gives 17671 for the same windows with its own float32 cache.
q eval "$tiny" --task perplexity --data "$scratch/text" --stride 64 --json \
    --dtype f32 --kv f32
check "perplexity" json "d['schema'] == 'quern.eval/1' and
    d['counts']['windows'] == 8 and len(d['digest']) == 64 and d['counts']['tokens'] > 600 and
    abs(d['metrics']['perplexity'] /
        __import__('math').exp(d['metrics']['loss']) - 1) < 1e-9"
keep_json
q eval "$tiny" --task perplexity --data "$scratch/text" --stride 64 --json \
    --dtype f32 --kv f32
check "the same each time" json "d['metrics'] == first['metrics']"
python3 -c "
import json
lines = open('$scratch/text').read().split('\n')[:2]
open('$scratch/lines', 'w').write(''.join(json.dumps({'text': l}) + '\n' for l in lines))"
q eval "$tiny" --task perplexity --data "$scratch/lines" --json
check "JSON lines" json "d['counts']['windows'] == 2"
q eval "$tiny" --task perplexity --data "$scratch/lines" --limit 1 --json
check "--limit" json "d['counts']['windows'] == 1"
q eval "$tiny" --task perplexity --data "$scratch/text" --max perplexity=5
check "a threshold: exit 9" code_is 9
check "and why" err_has "no more than 5 is allowed"
q eval "$tiny" --task perplexity --data "$scratch/text" --min loss=1
check "a threshold that is kept" code_is 0
fails 2 "expected NAME=VALUE" eval "$tiny" --task perplexity \
    --data "$scratch/text" --max perplexity
# Told before there is work: the model is not even looked for.
for task in perplexity kl choice tokenizer; do
    q eval /nowhere --task $task --data "$scratch/text" --min nothing=1
    check "$task: a metric that is not there" code_is 2
    check "$task: and which ones are" err_has "the metrics of $task are "
done
q eval /nowhere --task kl --data "$scratch/text" --save-logits "$scratch/l" \
    --max kl=1
check "saving makes no metrics" code_is 2

q eval "$tiny" --task kl --ref "$tiny" --data "$scratch/text" --json
check "a model does not differ from itself" json "d['metrics']['kl'] == 0 and
    d['metrics']['kl_p99'] == 0 and d['metrics']['top1'] == 1"
q eval "$four" --task kl --ref "$tiny" --data "$scratch/text" --json
check "a packed one does" json "0 < d['metrics']['kl'] < d['metrics']['kl_p99']"
keep_json
q eval "$tiny" --task kl --save-logits "$scratch/logits" --data "$scratch/text"
check "--save-logits" code_is 0
q eval "$four" --task kl --ref "$scratch/logits" --data "$scratch/text" --json
check "stored probabilities serve as well" json \
    "d['metrics'] == first['metrics']"
head -n 4 "$scratch/text" >"$scratch/half"
fails 4 "goes on where the data ends" eval "$four" --task kl \
    --ref "$scratch/logits" --data "$scratch/half"
fails 2 "at least 2 tokens" eval "$tiny" --task perplexity \
    --data "$scratch/text" --ctx 1
head -c 5000 "$scratch/logits" >"$scratch/short"
fails 4 "ends before" eval "$four" --task kl --ref "$scratch/short" \
    --data "$scratch/text"
python3 -c "
data = bytearray(open('$scratch/logits', 'rb').read())
data[4] ^= 1
open('$scratch/other', 'wb').write(data)"
fails 4 "another vocabulary" eval "$tiny" --task kl --ref "$scratch/other" \
    --data "$scratch/text"
fails 2 "expected another model" eval "$tiny" --task kl --data "$scratch/text"

printf '{"question":"a","choices":["b"],"answer":0}\n' >"$scratch/choice"
q eval "$tiny" --task choice --data "$scratch/choice" --json
check "one choice is right" json "d['metrics']['accuracy'] == 1 and
    d['counts'] == {'questions': 1, 'correct': 1}"
printf '{"question":"a","choices":["b"],"answer":1}\n' >>"$scratch/choice"
fails 4 "line 2" eval "$tiny" --task choice --data "$scratch/choice"
printf '{"question"\n' >"$scratch/choice"
fails 4 "line 1" eval "$tiny" --task choice --data "$scratch/choice"

printf '{"text":"","ids":[]}\n{"text":"a","ids":[1,2]}\n' >"$scratch/ids"
q eval "$tiny" --task tokenizer --data "$scratch/ids" --json
check "tokenizer: the first difference" json "d['metrics']['equal'] == 0.5 and
    d['counts']['first_difference']['line'] == 2"
fails 2 "--data" eval "$tiny" --task perplexity
fails 2 "--task" eval "$tiny" --data "$scratch/text"
fails 3 "cannot" eval "$tiny" --task choice --data "$scratch/none"
: >"$scratch/empty"
fails 4 "no two tokens" eval "$tiny" --task perplexity --data "$scratch/empty"

finish
