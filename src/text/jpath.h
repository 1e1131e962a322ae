/* jpath.h: where in tokenizer.json a value stands, and typed reads that name
 * the place when they fail.
 *
 * A path is a chain of stack frames, from a value up to the root: building it
 * costs nothing until an error is reported. */
#ifndef QN_TEXT_JPATH_H
#define QN_TEXT_JPATH_H

#include "base/json.h"

typedef struct qn_jpath {
    const struct qn_jpath *up; /* NULL: the root's member */
    const char *key;           /* NULL: an array item */
    size_t index;
} qn_jpath;

#define QN_JPATH_KEY(up, key) (&(const qn_jpath){(up), (key), 0})
#define QN_JPATH_ITEM(up, index) (&(const qn_jpath){(up), NULL, (index)})

/* qn_fail, and `where` = "tokenizer.json: model.merges[3]". */
qn_status qn_jpath_fail(const qn_jpath *at, qn_status code, const char *fmt,
                        ...) QN_PRINTF(3, 4);
/* Sets `where` on an error that is already recorded. */
qn_status qn_jpath_where(const qn_jpath *at, qn_status code);

/* The status of a reader of tokenizer.json that met an error. */
qn_status qn_jpath_reader_failed(const qn_json_reader *reader);

/* Members of the object that stands at `at`.  Absent or null: *out keeps its
 * value.  Another type: QN_E_FORMAT. */
qn_status qn_jpath_bool(const qn_jpath *at, const qn_json *object,
                        const char *key, bool *out);
qn_status qn_jpath_str(const qn_jpath *at, const qn_json *object,
                       const char *key, qn_str *out);
qn_status qn_jpath_int(const qn_jpath *at, const qn_json *object,
                       const char *key, int64_t *out);
/* The same for members that must be there. */
qn_status qn_jpath_need_str(const qn_jpath *at, const qn_json *object,
                            const char *key, qn_str *out);
qn_status qn_jpath_need_array(const qn_jpath *at, const qn_json *object,
                              const char *key, const qn_json **out);
/* The `type` of a component. */
qn_status qn_jpath_type(const qn_jpath *at, const qn_json *value, qn_str *out);

#endif
