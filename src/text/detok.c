/* detok.c: the streaming detokenizer: one run of the tokenizer's decoder,
 * which holds back what is not certain yet (decode.h). */
#include "detok.h"

#include "base/alloc.h"
#include "tokenizer_impl.h"

struct qn_detok {
    const qn_tokenizer *tokenizer;
    qn_decode_run *run;
    bool skip_special;
};

qn_status qn_detok_new(qn_detok **out, const qn_tokenizer *tokenizer,
                       bool skip_special)
{
    qn_detok *detok = qn_calloc(1, sizeof *detok);
    if (!detok)
        return QN_E_NOMEM;
    detok->tokenizer = tokenizer;
    detok->skip_special = skip_special;
    qn_status status = qn_decode_run_new(&detok->run, tokenizer->decoder);
    if (status) {
        qn_free(detok);
        return status;
    }
    *out = detok;
    return QN_OK;
}

void qn_detok_free(qn_detok *detok)
{
    if (!detok)
        return;
    qn_decode_run_free(detok->run);
    qn_free(detok);
}

qn_status qn_detok_add(qn_detok *detok, qn_buf *out, int32_t id)
{
    const qn_tokenizer *t = detok->tokenizer;
    if (!qn_vocab_has(&t->vocab, id))
        return qn_fail(QN_E_ARG, "no token has id %ld", (long)id);
    if (detok->skip_special && qn_tokenizer_is_special(t, id))
        return QN_OK;
    return qn_decode_add(detok->run, out, qn_vocab_text(&t->vocab, id));
}

qn_status qn_detok_finish(qn_detok *detok, qn_buf *out)
{
    return qn_decode_finish(detok->run, out);
}
