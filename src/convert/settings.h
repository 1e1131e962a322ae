/* settings.h: the files of a model directory, made of the metadata of a GGUF
 * file. */
#ifndef QN_CONVERT_SETTINGS_H
#define QN_CONVERT_SETTINGS_H

#include "convert.h"

/* The tail of a metadata key, and the key of config.json. */
typedef struct qn_settings_key {
    const char *tail, *key;
    bool real;
} qn_settings_key;

const qn_settings_key *qn_settings_keys(size_t *count);

/* The keys of config.json.  QN_E_UNSUPPORTED for an architecture that is not
 * known. */
qn_status qn_settings_from_gguf(qn_json_writer *w, const qn_origin *source);
/* tokenizer.json, tokenizer_config.json and generation_config.json. */
qn_status qn_settings_tokenizer(const qn_origin *source, const char *dir);

#endif
