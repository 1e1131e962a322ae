/* gguf_spm.c: tokenizers that merge by scores, from their tokenizer.json.
 *
 * A tokenizer.json of that kind lists the merges of each piece in the order of
 * the pieces' scores (settings_tokenizer.c makes such a list).  So a score is
 * the place of the piece in that list, as a negative number.  This says the
 * same only where the merges of a piece stand together and are all that there
 * can be; others are refused. */
#include "gguf_head.h"

#include "base/alloc.h"
#include "base/map.h"

#define MARK "\xe2\x96\x81"

typedef struct ranks {
    const qn_json *vocab;
    qn_map *ids;
    size_t count;
    uint32_t *merges; /* of each token, as listed */
    float *scores;    /* 0: not met yet */
} ranks;

static qn_status refuse(const char *why)
{
    return qn_fail(QN_E_UNSUPPORTED, "to gguf: tokenizer.json: %s", why);
}

/* ---- the form ---- */

static bool text_is(const qn_json *object, const char *key, const char *text)
{
    qn_str found = {"", 0};
    return qn_json_as_str(qn_json_get(object, key), &found) &&
           qn_str_is(found, text);
}

static bool marks_spaces(const qn_json *step)
{
    return text_is(step, "type", "Replace") &&
           text_is(qn_json_get(step, "pattern"), "String", " ") &&
           text_is(step, "content", MARK);
}

/* The steps that GGUF files stand for: a mark in front, or none, and marks
 * instead of spaces.  Splitting at spaces then finds none. */
static bool read_form(bool *prefix, const qn_json *root)
{
    const qn_json *first = qn_json_get(root, "normalizer");
    const qn_json *list = qn_json_get(first, "normalizers");
    const qn_json *pre = qn_json_get(root, "pre_tokenizer");
    bool split = text_is(pre, "type", "Split") &&
                 text_is(qn_json_get(pre, "pattern"), "String", " ");
    if (pre && pre->type != QN_JSON_T_NULL && !split)
        return false;
    *prefix = false;
    if (!list)
        return marks_spaces(first);
    const qn_json *step = qn_json_at(list, 0);
    *prefix = list->count == 2 && text_is(step, "type", "Prepend") &&
              text_is(step, "prepend", MARK);
    return list->count == (uint32_t)*prefix + 1 &&
           marks_spaces(qn_json_at(list, *prefix));
}

bool qn_gguf_is_spm(const qn_json *root)
{
    const qn_json *model = qn_json_get(root, "model");
    bool bytes = false;
    return text_is(model, "type", "BPE") &&
           qn_json_as_bool(qn_json_get(model, "byte_fallback"), &bytes) &&
           bytes;
}

/* ---- scores ---- */

static qn_status map_vocab(ranks *r)
{
    for (uint32_t i = 0; i < r->vocab->count; i++) {
        int64_t id = -1;
        qn_map_value *slot = qn_map_put(r->ids, r->vocab->keys[i], NULL);
        if (!slot)
            return QN_E_NOMEM;
        if (!qn_json_as_int(&r->vocab->items[i], &id) || id < 0 ||
            (uint64_t)id >= r->count)
            return refuse("a token's id is not one of the vocabulary");
        slot->u64 = (uint64_t)id;
    }
    return QN_OK;
}

/* The two halves of a merge, one behind the other. */
static bool join(qn_buf *out, const qn_json *merge)
{
    qn_buf_clear(out);
    if (merge->type == QN_JSON_T_STRING) {
        const char *space = memchr(merge->text.data, ' ', merge->text.size);
        size_t left = space ? (size_t)(space - merge->text.data) : 0;
        qn_buf_add(out, merge->text.data, left);
        if (space)
            qn_buf_add(out, space + 1, merge->text.size - left - 1);
        return space != NULL;
    }
    for (uint32_t i = 0; i < 2; i++) {
        qn_str half;
        if (!qn_json_as_str(qn_json_at(merge, i), &half))
            return false;
        qn_buf_add_str(out, half);
    }
    return merge->count == 2;
}

static qn_status rank(ranks *r, const qn_json *merges)
{
    qn_buf piece = QN_BUF_INIT;
    qn_status status = QN_OK;
    uint64_t last = r->count;
    float score = 0;
    for (uint32_t i = 0; i < merges->count && !status; i++) {
        const qn_map_value *id = join(&piece, &merges->items[i])
                                     ? qn_map_get(r->ids, qn_buf_str(&piece))
                                     : NULL;
        if (piece.failed)
            status = QN_E_NOMEM;
        else if (!id)
            status = refuse("a merge makes no token");
        else if (id->u64 != last && r->merges[id->u64])
            status = refuse("merges are not in the order of scores");
        if (status)
            break;
        if (id->u64 != last)
            r->scores[id->u64] = score -= 1;
        last = id->u64;
        r->merges[last]++;
    }
    /* What nothing makes is below all that is made. */
    for (size_t i = 0; i < r->count; i++)
        if (!r->merges[i])
            r->scores[i] = score -= 1;
    qn_buf_free(&piece);
    return status;
}

/* How many pairs of tokens make the text. */
static uint32_t ways(const ranks *r, qn_str text)
{
    uint32_t count = 0;
    for (size_t i = 1; i < text.size; i++)
        if ((text.data[i] & 0xc0) != 0x80)
            count += qn_map_get(r->ids, (qn_str){text.data, i}) &&
                     qn_map_get(r->ids, (qn_str){text.data + i, text.size - i});
    return count;
}

static qn_status check_all_listed(const ranks *r, const uint8_t *apart)
{
    for (uint32_t i = 0; i < r->vocab->count; i++) {
        qn_str text = r->vocab->keys[i];
        uint64_t id = qn_map_get(r->ids, text)->u64;
        if (!apart[id] && ways(r, text) != r->merges[id])
            return refuse("merges are not those of scores");
    }
    return QN_OK;
}

qn_status qn_gguf_spm(float *scores, bool *prefix, const qn_json *root,
                      const uint8_t *apart, size_t count)
{
    const qn_json *model = qn_json_get(root, "model");
    const qn_json *merges = qn_json_get(model, "merges");
    ranks r = {
        .vocab = qn_json_get(model, "vocab"), .count = count, .scores = scores};
    if (!read_form(prefix, root))
        return refuse("steps that GGUF files have no name for");
    if (!r.vocab || !merges || count >= 1 << 23)
        return refuse("no vocabulary or no merges");
    r.ids = qn_map_new(r.vocab->count);
    r.merges = qn_calloc(count, sizeof *r.merges);
    qn_status status = r.ids && r.merges ? map_vocab(&r) : QN_E_NOMEM;
    if (!status)
        status = rank(&r, merges);
    if (!status)
        status = check_all_listed(&r, apart);
    qn_map_free(r.ids, NULL);
    qn_free(r.merges);
    return status;
}
