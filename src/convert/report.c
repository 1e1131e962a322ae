/* report.c: see report.h. */
#include "report.h"

#include <stdio.h>

enum { KINDS = 64 };

/* Modules of one place in a layer that are written alike. */
typedef struct kind {
    char name[64], form[32];
    uint64_t count, parameters, bytes;
} kind;

/* The last part of the module's path. */
static void kind_name(char out[64], const qn_item *item)
{
    const char *name = item->module ? item->module : item->name;
    const char *dot = strrchr(name, '.');
    snprintf(out, 64, "%s", dot ? dot + 1 : name);
}

static void form_name(char out[32], const qn_item *item)
{
    if (item->gguf_type >= 0) {
        snprintf(out, 32, "%s", qn_gguf_type_name(item->gguf_type));
        return;
    }
    const qn_quant *q = item->out_count > 1 && item->action == QN_KEEP
                            ? &item->from
                            : &item->quant;
    if (item->out_count > 1)
        snprintf(out, 32, "%s %d-bit g%d", qn_quant_mode_name(q->mode), q->bits,
                 q->group);
    else
        snprintf(out, 32, "%s", qn_st_dtype_name(item->out[0].dtype));
}

static uint64_t item_bytes(const qn_item *item)
{
    uint64_t bytes = item->gguf_type >= 0 ? item->out[0].size : 0;
    for (int i = 0; i < item->out_count; i++)
        bytes += item->out[i].size;
    return bytes;
}

static size_t collect(kind kinds[KINDS], const qn_origin *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const qn_item *item = &s->items[i];
        kind k = {.count = 0};
        kind_name(k.name, item);
        form_name(k.form, item);
        size_t at = 0;
        while (at < count && (strcmp(kinds[at].name, k.name) ||
                              strcmp(kinds[at].form, k.form)))
            at++;
        if (at == KINDS)
            continue;
        if (at == count)
            kinds[count++] = k;
        kinds[at].count++;
        kinds[at].parameters += item->rows * item->cols;
        kinds[at].bytes += item_bytes(item);
    }
    return count;
}

static void write_kinds(qn_json_writer *w, const qn_origin *s)
{
    kind kinds[KINDS];
    size_t count = collect(kinds, s);
    qn_json_write_key(w, "modules");
    qn_json_write_array(w);
    for (size_t i = 0; i < count; i++) {
        qn_json_write_object(w);
        qn_json_write_key(w, "kind");
        qn_json_write_text(w, kinds[i].name);
        qn_json_write_key(w, "form");
        qn_json_write_text(w, kinds[i].form);
        qn_json_write_key(w, "count");
        qn_json_write_uint(w, kinds[i].count);
        qn_json_write_key(w, "parameters");
        qn_json_write_uint(w, kinds[i].parameters);
        qn_json_write_key(w, "bytes");
        qn_json_write_uint(w, kinds[i].bytes);
        qn_json_write_object_end(w);
    }
    qn_json_write_array_end(w);
}

static void write_names(qn_json_writer *w, const qn_origin *s, const char *key,
                        bool inexact)
{
    qn_json_write_key(w, key);
    qn_json_write_array(w);
    for (size_t i = 0; i < s->count; i++)
        if (inexact ? s->items[i].inexact : s->items[i].undivided)
            qn_json_write_text(w, s->items[i].name);
    qn_json_write_array_end(w);
}

qn_status qn_convert_report(char **out, const qn_origin *s,
                            const char *destination, uint64_t bytes, int files,
                            double seconds)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_writer w;
    uint64_t parameters = 0, before = 0;
    for (size_t i = 0; i < s->count; i++) {
        const qn_item *item = &s->items[i];
        parameters += item->rows * item->cols;
        before += item->main->data.size;
        before += item->scales ? item->scales->data.size : 0;
        before += item->biases ? item->biases->data.size : 0;
    }
    qn_json_write_begin(&w, &text);
    qn_json_write_object(&w);
    qn_json_write_key(&w, "source");
    qn_json_write_text(&w, s->path);
    qn_json_write_key(&w, "destination");
    qn_json_write_text(&w, destination);
    qn_json_write_key(&w, "architecture");
    qn_json_write_text(&w, s->arch);
    qn_json_write_key(&w, "parameters");
    qn_json_write_uint(&w, parameters);
    qn_json_write_key(&w, "source_bytes");
    qn_json_write_uint(&w, before);
    qn_json_write_key(&w, "bytes");
    qn_json_write_uint(&w, bytes);
    qn_json_write_key(&w, "bits_per_weight");
    qn_json_write_double(
        &w, parameters ? 8.0 * (double)bytes / (double)parameters : 0);
    qn_json_write_key(&w, "files");
    qn_json_write_int(&w, files);
    qn_json_write_key(&w, "tensors_skipped");
    qn_json_write_uint(&w, s->skipped);
    write_names(&w, s, "inexact", true);
    write_names(&w, s, "not_divided", false);
    write_kinds(&w, s);
    qn_json_write_key(&w, "seconds");
    qn_json_write_double(&w, seconds);
    qn_json_write_object_end(&w);
    *out = qn_buf_take(&text);
    return *out ? QN_OK : QN_E_NOMEM;
}
