/* source.h: the values of a configuration by key, wherever they stand.
 *
 * A source is a config.json or the metadata of a GGUF file.  Each value is
 * asked for by the names that it has in both: the key of config.json, which
 * may stand under text_config, and the tail of the metadata key below the name
 * of the architecture; NULL where a form doesn't have it.
 *
 * A source keeps the first error, and then further reads do nothing, so that a
 * list of reads is checked once, by `status`.  A read leaves *out alone when
 * the value is absent; a `need` makes that an error (QN_E_FORMAT, naming the
 * key), as is a value of another type or out of bounds. */
#ifndef QN_MODEL_SOURCE_H
#define QN_MODEL_SOURCE_H

#include "base/gguf.h"
#include "base/json.h"

typedef struct qn_source {
    const char *path; /* for errors */
    qn_status status;
    /* config.json, and the part of it that wins for the text model or NULL. */
    const qn_json *root, *text;
    const qn_gguf *gguf; /* NULL: config.json */
    char arch[64];       /* general.architecture */
} qn_source;

bool qn_source_has(const qn_source *s, const char *json, const char *gguf);

void qn_read_int(qn_source *s, int *out, const char *json, const char *gguf,
                 int low, int high);
void qn_need_int(qn_source *s, int *out, const char *json, const char *gguf,
                 int low, int high);
/* Finite ones alone. */
void qn_read_real(qn_source *s, double *out, const char *json,
                  const char *gguf);
void qn_need_real(qn_source *s, double *out, const char *json,
                  const char *gguf);
void qn_read_bool(qn_source *s, bool *out, const char *json, const char *gguf);
/* Cut to nothing: a text that does not fit is an error. */
void qn_read_text(qn_source *s, char *out, size_t size, const char *json,
                  const char *gguf);
/* A list of exactly `count` integers, or one that stands for all of them. */
void qn_read_ints(qn_source *s, int *out, int count, const char *json,
                  const char *gguf, int low, int high);
/* A list of integers of any length up to `capacity`; *count is how many, -1
 * when the value is absent. */
void qn_read_list(qn_source *s, int *out, int capacity, int *count,
                  const char *json, const char *gguf, int low, int high);

/* For values of other forms: what config.json has under `key`, NULL when it is
 * absent or null, or the source is a GGUF file. */
const qn_json *qn_source_json(const qn_source *s, const char *key);
/* The number under `key` of an object in config.json. */
void qn_read_member(qn_source *s, double *out, const qn_json *object,
                    const char *key);

/* Keeps an error about a key, with qn_fail's sentence: `status` unless there
 * is one already. */
void qn_source_fail(qn_source *s, qn_status status, const char *json,
                    const char *gguf);
void qn_source_missing(qn_source *s, const char *json, const char *gguf);
void qn_source_wrong(qn_source *s, const char *json, const char *expected,
                     const qn_json *found);

#endif
