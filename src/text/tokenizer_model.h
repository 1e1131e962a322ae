/* tokenizer_model.h: the `model` of a tokenizer.json, from its parts. */
#ifndef QN_TEXT_TOKENIZER_MODEL_H
#define QN_TEXT_TOKENIZER_MODEL_H

#include "base/json.h"
#include "tokenizer_impl.h"

/* What stands in the model's object.  Texts are empty where the member is
 * absent. */
typedef struct qn_tokenizer_model {
    const qn_json *options; /* its small members: strings, flags, integers */
    bool has_vocab;         /* `vocab` was an object and is in t->vocab */
    qn_str vocab_list;      /* `vocab` as it stands, when it is no object */
    qn_str merges;
} qn_tokenizer_model;

/* Makes t->model; t->normalizer and t->pretok are there already. */
qn_status qn_tokenizer_load_model(qn_tokenizer *t,
                                  const qn_tokenizer_model *parts);

#endif
