/* script.c: scripts into model directories (cases/README.md, Scripted
 * models): pieces become token ids, new ones get entries of the vocabulary. */
#include "case.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

#include <string.h>

enum { FIRST_NEW = 332, MOST_PIECES = 65536 };

/* What is added to the vocabulary. */
typedef struct fresh {
    qn_buf bytes; /* of a token, or the text of an added one */
    bool added;
} fresh;

typedef struct writer {
    const qn_json *tokenizer;
    const qn_json *vocab; /* byte-level spelling -> id */
    fresh *fresh;
    size_t fresh_count;
    int32_t *ids;
    size_t count;
} writer;

/* The byte-level alphabet: printable bytes stand for themselves, the others
 * for characters from U+0100 on. */
static void spell_bytes(qn_buf *out, qn_str bytes)
{
    for (size_t i = 0; i < bytes.size; i++) {
        uint32_t byte = (uint8_t)bytes.data[i], code = byte, others = 0;
        bool plain = false;
        for (uint32_t b = 0; b <= byte; b++) {
            plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            others += !plain;
        }
        if (!plain)
            code = 256 + others - 1;
        qn_buf_add_code(out, code);
    }
}

static void add_id(writer *w, int32_t id)
{
    if (w->count < MOST_PIECES)
        w->ids[w->count++] = id;
}

/* The id of a new entry: the same one for the same piece. */
static void add_fresh(writer *w, qn_str bytes, bool added)
{
    for (size_t i = 0; i < w->fresh_count; i++)
        if (w->fresh[i].added == added &&
            w->fresh[i].bytes.size == bytes.size &&
            !memcmp(w->fresh[i].bytes.data, bytes.data, bytes.size)) {
            add_id(w, FIRST_NEW + (int32_t)i);
            return;
        }
    fresh *f = &w->fresh[w->fresh_count];
    *f = (fresh){.added = added};
    qn_buf_add_str(&f->bytes, bytes);
    add_id(w, FIRST_NEW + (int32_t)w->fresh_count++);
}

static void add_bytes(writer *w, qn_str bytes)
{
    qn_buf spelling = QN_BUF_INIT;
    int64_t id;
    spell_bytes(&spelling, bytes);
    if (qn_json_as_int(qn_json_get_str(w->vocab, qn_buf_str(&spelling)), &id) &&
        id <= 322)
        add_id(w, (int32_t)id);
    else
        add_fresh(w, bytes, false);
    qn_buf_free(&spelling);
}

static void add_added(writer *w, qn_str text)
{
    const qn_json *list = qn_json_get(w->tokenizer, "added_tokens");
    for (uint32_t i = 0; list && i < list->count; i++) {
        qn_str content;
        if (qn_json_as_str(qn_json_get(&list->items[i], "content"), &content) &&
            content.size == text.size &&
            !memcmp(content.data, text.data, text.size)) {
            add_id(w, (int32_t)case_int(&list->items[i], "id", 0));
            return;
        }
    }
    add_fresh(w, text, true);
}

static void add_piece(writer *w, const qn_json *piece)
{
    qn_str text;
    const qn_json *list = qn_json_get(piece, "bytes");
    if (qn_json_as_str(piece, &text)) {
        add_bytes(w, text);
    } else if (qn_json_as_str(qn_json_get(piece, "token"), &text)) {
        add_added(w, text);
    } else if (list) {
        qn_buf bytes = QN_BUF_INIT;
        for (uint32_t i = 0; i < list->count; i++) {
            int64_t byte = 0;
            qn_json_as_int(&list->items[i], &byte);
            qn_buf_add_char(&bytes, (char)byte);
        }
        add_bytes(w, qn_buf_str(&bytes));
        qn_buf_free(&bytes);
    } else {
        case_fail("case: a piece of no known form");
    }
}

static void add_text(writer *w, const qn_json *script, uint32_t which)
{
    qn_buf text = QN_BUF_INIT;
    const qn_json *sizes = qn_json_get(script, "piece_size");
    int64_t size = 0;
    if (sizes && sizes->type == QN_JSON_T_ARRAY)
        sizes = qn_json_at(sizes, which);
    if (!case_long_text(qn_json_get(script, "model_text"), &text) ||
        !qn_json_as_int(sizes, &size) || size < 1)
        case_fail("case: model_text without a piece_size");
    for (size_t at = 0; size > 0 && at < text.size; at += (size_t)size) {
        size_t left = text.size - at;
        add_bytes(w, (qn_str){text.data + at,
                              left < (size_t)size ? left : (size_t)size});
    }
    qn_buf_free(&text);
}

static void copy_member(qn_json_writer *w, qn_str key, const qn_json *value)
{
    qn_json_write_key(w, case_keep(key));
    qn_json_write_value(w, value);
}

/* model, with the new entries in its vocab. */
static void write_model(qn_json_writer *out, const writer *w,
                        const qn_json *model)
{
    qn_json_write_object(out);
    for (uint32_t i = 0; i < model->count; i++) {
        if (!qn_str_is(model->keys[i], "vocab")) {
            copy_member(out, model->keys[i], &model->items[i]);
            continue;
        }
        qn_json_write_key(out, "vocab");
        qn_json_write_object(out);
        for (uint32_t j = 0; j < w->vocab->count; j++)
            copy_member(out, w->vocab->keys[j], &w->vocab->items[j]);
        for (size_t j = 0; j < w->fresh_count; j++) {
            qn_buf spelling = QN_BUF_INIT;
            if (w->fresh[j].added)
                continue;
            spell_bytes(&spelling, qn_buf_str(&w->fresh[j].bytes));
            qn_json_write_key(out, case_keep(qn_buf_str(&spelling)));
            qn_json_write_int(out, FIRST_NEW + (int64_t)j);
            qn_buf_free(&spelling);
        }
        qn_json_write_object_end(out);
    }
    qn_json_write_object_end(out);
}

static void write_added(qn_json_writer *out, const writer *w,
                        const qn_json *list)
{
    static const char *const no[] = {"single_word", "lstrip", "rstrip",
                                     "normalized", "special"};
    qn_json_write_array(out);
    for (uint32_t i = 0; i < list->count; i++)
        qn_json_write_value(out, &list->items[i]);
    for (size_t j = 0; j < w->fresh_count; j++) {
        if (!w->fresh[j].added)
            continue;
        qn_json_write_object(out);
        qn_json_write_key(out, "id");
        qn_json_write_int(out, FIRST_NEW + (int64_t)j);
        qn_json_write_key(out, "content");
        qn_json_write_str(out, qn_buf_str(&w->fresh[j].bytes));
        for (size_t k = 0; k < sizeof no / sizeof *no; k++) {
            qn_json_write_key(out, no[k]);
            qn_json_write_bool(out, false);
        }
        qn_json_write_object_end(out);
    }
    qn_json_write_array_end(out);
}

static bool write_tokenizer(const writer *w, const char *path)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer out;
    qn_json_write_begin(&out, &text);
    qn_json_write_object(&out);
    for (uint32_t i = 0; i < w->tokenizer->count; i++) {
        qn_str key = w->tokenizer->keys[i];
        const qn_json *value = &w->tokenizer->items[i];
        if (qn_str_is(key, "model")) {
            qn_json_write_key(&out, "model");
            write_model(&out, w, value);
        } else if (qn_str_is(key, "added_tokens")) {
            qn_json_write_key(&out, "added_tokens");
            write_added(&out, w, value);
        } else {
            copy_member(&out, key, value);
        }
    }
    qn_json_write_object_end(&out);
    bool good = !qn_buf_status(&text) &&
                !qn_file_write_atomic(path, text.data, text.size);
    qn_buf_free(&text);
    return good;
}

/* The id of the added token that ends an answer. */
static int64_t end_id(const writer *w, const qn_json *script)
{
    qn_str name = {"<|im_end|>", 10};
    const qn_json *list = qn_json_get(w->tokenizer, "added_tokens");
    qn_json_as_str(qn_json_get(script, "end_token"), &name);
    for (uint32_t i = 0; list && i < list->count; i++) {
        qn_str content;
        if (qn_json_as_str(qn_json_get(&list->items[i], "content"), &content) &&
            content.size == name.size &&
            !memcmp(content.data, name.data, name.size))
            return case_int(&list->items[i], "id", 0);
    }
    case_fail("case: no token is called %.*s", (int)name.size, name.data);
    return 0;
}

static bool write_config(const writer *w, const char *folder,
                         const qn_json *script)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer out;
    qn_json_doc *doc = NULL;
    qn_json_write_begin(&out, &text);
    qn_json_write_object(&out);
    for (uint32_t i = 0; i < script->count; i++)
        copy_member(&out, script->keys[i], &script->items[i]);
    qn_json_write_key(&out, qn_json_get(script, "prefer") ? "prefer_ids"
                                                          : "script_ids");
    qn_json_write_array(&out);
    for (size_t i = 0; i < w->count; i++)
        qn_json_write_int(&out, w->ids[i]);
    qn_json_write_array_end(&out);
    qn_json_write_key(&out, "eos_token_id");
    qn_json_write_int(&out, end_id(w, script));
    qn_json_write_key(&out, "vocab_size");
    qn_json_write_int(&out, FIRST_NEW + (int64_t)w->fresh_count);
    qn_json_write_object_end(&out);
    bool good = !qn_buf_status(&text) &&
                !qn_json_parse(&doc, qn_buf_str(&text), 0) &&
                case_patch_config(folder, qn_json_root(doc));
    qn_json_doc_free(doc);
    qn_buf_free(&text);
    return good;
}

static void add_all(writer *w, const qn_json *script, uint32_t which)
{
    const qn_json *pieces = qn_json_get(script, "token_pieces");
    if (!pieces)
        pieces = qn_json_get(script, "prefer");
    if (!pieces) {
        add_text(w, script, which);
        return;
    }
    for (uint32_t i = 0; i < pieces->count; i++)
        add_piece(w, &pieces->items[i]);
}

void case_write_script(const char *folder, const qn_json *script,
                       uint32_t which, int64_t *length)
{
    char *path = qn_path_join(folder, "tokenizer.json"), *text = NULL;
    size_t size;
    qn_json_doc *doc = NULL;
    writer w = {.ids = qn_calloc(MOST_PIECES, sizeof *w.ids),
                .fresh = qn_calloc(MOST_PIECES, sizeof *w.fresh)};
    *length = -1;
    if (path && w.ids && w.fresh &&
        !qn_file_read(&text, &size, path, 1 << 24) &&
        !qn_json_parse(&doc, (qn_str){text, size}, 0)) {
        w.tokenizer = qn_json_root(doc);
        w.vocab = qn_json_get(qn_json_get(w.tokenizer, "model"), "vocab");
        add_all(&w, script, which);
        if (write_tokenizer(&w, path) && write_config(&w, folder, script))
            *length = (int64_t)w.count;
    }
    if (*length < 0)
        case_fail("case: the script can't be written");
    for (size_t i = 0; i < w.fresh_count; i++)
        qn_buf_free(&w.fresh[i].bytes);
    qn_free(w.fresh);
    qn_free(w.ids);
    qn_json_doc_free(doc);
    qn_free(text);
    qn_free(path);
}
