/* select.h: the files of a repository, and which of them a load needs.
 *
 * Names in a listing come from a server or a folder of somebody else's; one
 * that could lead out of the folder that it is put in never gets in here. */
#ifndef QN_HUB_SELECT_H
#define QN_HUB_SELECT_H

#include "hub.h"

#include "base/digest.h"

typedef struct qn_hub_file {
    const char *name; /* "1_Pooling/config.json" */
    uint64_t size;
    bool sized;                /* the size is known */
    char hash[QN_DIGEST_SIZE]; /* SHA-256, or git's SHA-1 of a blob; or "" */
} qn_hub_file;

typedef struct qn_listing {
    const char *id;     /* "org/name", as the hub spells it */
    const char *commit; /* 40 digits */
    qn_hub_file *files;
    size_t count, capacity;
} qn_listing;

/* Whether the name stays inside the folder that it is put in. */
bool qn_hub_name_is_safe(qn_str name);
/* A digest in lower case digits, of either length. */
bool qn_hub_hash_is_good(qn_str hash);

/* The reply of /api/models/ID/revision/REV: id, commit, files with what is said
 * of them.  Texts in the arena. */
qn_status qn_listing_read(qn_listing *out, qn_arena *arena, qn_str json);
/* The reply of /api/models/ID/tree/REV: sizes and digests of files, which it
 * adds to the listing where they are not there. */
qn_status qn_listing_read_tree(qn_listing *out, qn_arena *arena, qn_str json);
/* The regular files in and below a folder, with their sizes. */
qn_status qn_listing_of_folder(qn_listing *out, qn_arena *arena,
                               const char *path);
/* NULL when there is none of the name. */
qn_hub_file *qn_listing_find(const qn_listing *listing, qn_str name);

/* Whether the files of a snapshot (of qn_listing_of_folder) all lie somewhere,
 * and are weights with all their parts among them (cache.c). */
bool qn_snapshot_is_complete(const qn_listing *files, const char *path);

/* ---- choices ---- */

/* `*` stands for any text, `?` for any character, `[abc]`, `[a-z]` and `[!a]`
 * for one of a set.  A pattern without a slash is for the last part of the
 * name. */
bool qn_hub_glob(const char *pattern, const char *name);

/* The quantization that the name of a GGUF file tells ("Q4_K_M"), in upper
 * case, or "". */
enum { QN_QUANT_SIZE = 24 };
const char *qn_gguf_quant(char out[QN_QUANT_SIZE], const char *name);
/* The GGUF file, or first part of one, that the selector chooses: its name, its
 * quantization, else a part of its name, in any case; NULL: the only one there
 * is.  QN_E_NOTFOUND, or QN_E_ARG with the names of the candidates. */
qn_status qn_pick_gguf(const qn_hub_file **out, qn_buf *names,
                       const qn_listing *listing, const char *selector);
/* Whether `file` is `first` or another part of the same split file. */
bool qn_gguf_same(const qn_hub_file *file, const qn_hub_file *first);
/* Whether it is a GGUF file that stands for a model: no projector, no
 * importance matrix, no later part. */
bool qn_gguf_is_model(const char *name);
bool qn_hub_is_weights(const char *name);

typedef struct qn_selection {
    const char *selector; /* of GGUF files; NULL: none */
    const char *const *include, *const *exclude;
    size_t include_count, exclude_count;
} qn_selection;

/* Marks in `chosen` (listing->count values) the files that a load needs.
 * QN_E_ARG when several GGUF files would do and none is chosen: `candidates`
 * (as many values) has them; QN_E_NOTFOUND when the selector or a glob chooses
 * nothing; QN_E_UNSUPPORTED when there are no weights that can be loaded. */
qn_status qn_select(bool *chosen, bool *candidates, const qn_listing *listing,
                    const qn_selection *selection);

#endif
