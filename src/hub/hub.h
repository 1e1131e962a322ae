/* hub.h: the model cache on disk, and the hub that fills it.
 *
 * The cache has the layout of the Hugging Face hub client, so that files are
 * shared with other tools:
 *
 *   models--org--name/refs/main            the commit that the name stands for
 *   models--org--name/snapshots/<commit>/  links, with the names of the files
 *   models--org--name/blobs/<digest>       what they lead to
 *   models--org--name/blobs/<digest>.incomplete
 *   .locks/models--org--name/              quern.lock, use.lock (lock.h)
 *
 * ref.c reads references, cache.c looks into the cache, gc.c cleans it.
 * listing.c reads what the hub says of a repository and select.c chooses among
 * its files, both without a network; http.c speaks HTTP, ask.c asks the hub,
 * fetch.c fetches a file, get.c a model, and heads.c what its headers say. */
#ifndef QN_HUB_HUB_H
#define QN_HUB_HUB_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#include <quern/quern.h>

/* Where the cache is and who is asked, by the environment. */
typedef struct qn_hub {
    char *root;     /* of the cache */
    char *endpoint; /* NULL before qn_hub_open_network;
                       "https://huggingface.co", without a slash at the end */
    char *token;    /* NULL: none */
    bool offline;
} qn_hub;

/* Finds the cache.  Free with qn_hub_close in any case. */
qn_status qn_hub_open(qn_hub *hub);
/* Finds endpoint and token, too.  QN_E_ARG when a variable can't be used. */
qn_status qn_hub_open_network(qn_hub *hub);
void qn_hub_close(qn_hub *hub);
/* Whether the cache can be one: what is not there yet is an empty one, and what
 * is no folder is QN_E_ARG with the variable that names it. */
qn_status qn_hub_check_root(const qn_hub *hub);

/* ---- texts ---- */

/* printf into the arena; NULL when memory is out. */
char *qn_hub_text(qn_arena *arena, const char *fmt, ...) QN_PRINTF(2, 3);
bool qn_has_suffix(const char *name, const char *suffix); /* in any case */

/* ---- references (ref.c) ---- */

/* The parts of "org/name[@revision][:selector]". */
typedef struct qn_ref {
    char *id;       /* as it was given: perhaps a part of one */
    char *revision; /* NULL: not given */
    char *selector; /* NULL: not given */
} qn_ref;

/* Whether the text can only be a path: "./x", "/x", "~/x", "x.gguf". */
bool qn_ref_is_path(const char *text);
/* Parses a reference that is no path.  QN_E_ARG for what is none: empty, a URL,
 * control characters, "..".  Free with qn_ref_clear in any case. */
qn_status qn_ref_parse(qn_ref *out, const char *text);
void qn_ref_clear(qn_ref *ref);
/* Whether it is a whole id, as the hub allows them: one or two names of
 * letters, digits, '.', '_' and '-'. */
bool qn_ref_is_id(const char *id);

/* See quern_resolve. */
qn_status qn_hub_resolve(char **path, const qn_hub *hub, const char *ref);

/* ---- the cache (cache.c) ---- */

/* "<root>/models--org--name" for the id; NULL when memory is out. */
char *qn_cache_repo(const qn_hub *hub, const char *id);
/* "models--org--name" to "org/name" in place; false for other names. */
bool qn_cache_id(char *name);
/* The commit that refs/<revision> names, else that of the snapshot that
 * `revision` is or begins; NULL `revision`: main, else the only snapshot.
 * QN_E_NOTFOUND when there is none.  `out` gets a NUL. */
enum { QN_COMMIT_SIZE = 128 };
qn_status qn_cache_commit(char out[QN_COMMIT_SIZE], const char *repo,
                          const char *revision, const char *ref);
/* Rows of the cache, by id; texts in the arena. */
qn_status qn_cache_list(qn_arena *arena, quern_cached **out, size_t *count,
                        const qn_hub *hub);
/* Names of the entries of a folder that begin with `prefix`, sorted; an absent
 * folder has none. */
qn_status qn_cache_names(qn_arena *arena, char ***out, size_t *count,
                         const char *dir, const char *prefix);
/* "x-00002-of-00005.gguf": true with the numbers.  A file of one part is 1 of
 * 1. */
bool qn_gguf_part(const char *name, int *part, int *parts);

/* ---- what can go (gc.c) ---- */

qn_status qn_cache_gc(qn_arena *arena, quern_gc_item **out, size_t *count,
                      const qn_hub *hub, const quern_gc_options *options);

/* ---- the network (get.c, ask.c) ---- */

/* Whether the model in the snapshot `path`, whose small files are there, can be
 * loaded as far as they show. */
typedef qn_status (*qn_hub_check)(const char *path);

/* Makes a folder with what the headers of a model's files say: its
 * configuration, and weights that are empty but for their headers.  *path is
 * what to load, *folder what to remove afterwards (qn_hub_remove_heads); the
 * caller owns both. */
qn_status qn_hub_heads(char **path, char **folder, const qn_hub *hub,
                       const char *ref);
/* NULL is ignored. */
void qn_hub_remove_heads(const char *folder);

/* See quern_get; texts in the arena. */
qn_status qn_hub_get(qn_arena *arena, quern_get_result *result,
                     const qn_hub *hub, const char *ref,
                     const quern_get_options *options, qn_hub_check check);
qn_status qn_hub_search(qn_arena *arena, quern_remote **out, size_t *count,
                        const qn_hub *hub, const char *query, int limit);

#endif
