/* runtime.h: what the files of this room know of each other.
 *
 * model.c loads, cache.c decides how caches store, chat.c renders
 * conversations, session.c computes sequences, scheduler.c decides which ones
 * next, on the model's thread, for feed.c and for job.c, which is one answer:
 * answer.c makes events of tokens (sampler.c picks them, reasoning.c tells
 * thoughts from answers, stops.c ends them, calls.c keeps calls of functions),
 * draft.c guesses ahead, prefix.c keeps what was computed, share.c is for
 * prompts at the same time.  submit.c is how callers see jobs, generate.c waits
 * for one.  saved.c has sessions on disk. */
#ifndef QN_RUNTIME_RUNTIME_H
#define QN_RUNTIME_RUNTIME_H

#include "base/digest.h"
#include "base/status.h"
#include "embed.h"
#include "kv/cache.h"
#include "model/model.h"
#include "model/predict.h"
#include "prefix.h"
#include "reasoning.h"
#include "scheduler.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/tools.h"

#include <quern/quern.h>

#include <pthread.h>
#include <stdatomic.h>

/* A chat template, or why there is none that works. */
typedef struct qn_chat_template {
    qn_template *parsed; /* NULL: see status */
    qn_status status;
    qn_error error;
    char *source; /* NULL when there is none */
} qn_chat_template;

/* A model that was opened for its headers only. */
typedef struct qn_headers {
    qn_weights *weights; /* NULL: the model is loaded */
    qn_config config;
    qn_model_sums sums;
} qn_headers;

struct quern_model {
    char *path;
    int in_use;      /* of qn_use_begin */
    qn_model *model; /* NULL: see headers */
    qn_headers headers;
    qn_tokenizer *tokenizer;
    qn_embedder embedder;
    /* The second one is for requests with tools, where the model has it. */
    qn_chat_template chat, tool_chat;
    const qn_tool_format *tool_format; /* NULL: none */
    bool trust_content;
    quern_sampling defaults;
    qn_ids end_ids;
    int32_t vocab;       /* logits per position */
    int32_t token_count; /* of these, ids that the tokenizer knows */
    qn_kv_shape kv;
    qn_kv_layer *kv_layers; /* of it */
    char kv_name[QN_KV_NAME_SIZE];
    mlx_dtype dtype;
    int64_t ctx;
    qn_held held;        /* predicted */
    uint64_t parameters; /* values in all weights */
    char *heads;         /* folder of what the hub sent, while it is read */
    int prefill_chunk;
    size_t tensors;
    double load_seconds;
    char digest[QN_DIGEST_SIZE]; /* of the files */
    char compute[24];            /* the dtype that was asked for */
    const char *compat;          /* "mlx-lm", or "" */
    void (*log)(void *data, quern_log_level level, const char *text);
    void *log_data;
    mlx_stream stream;
    qn_watch_fn watch; /* see qn_model_open_watched */
    void *watch_data;
    bool hollow; /* see qn_model_audit */
    qn_scheduler scheduler;
    qn_prefixes prefixes;
    qn_markers markers;
    quern_model *draft; /* computed by this model's thread; or NULL */
    int num_draft;      /* tokens to guess at a time; 0: no speculation */
};

enum { QN_UNKNOWN_ID = -1 };

struct quern_session {
    quern_model *model;
    qn_kv_cache *cache;
    qn_ids ids; /* the tokens in the cache */
    /* So many at the beginning are QN_UNKNOWN_ID: what mlx-lm has saved. */
    size_t unknown;
    /* float32 [1, n, vocab], of which `logits_count` rows from `logits_row` on
     * are those of the last tokens, or no array. */
    mlx_array logits;
    size_t logits_row, logits_count;
    atomic_bool cancelled;
    atomic_bool busy; /* a row of the scheduler's */
};

/* Fills *error (may be NULL) from the thread's error slot; returns the status
 * as the public type. */
quern_status qn_give(quern_error *error, qn_status status);

/* Seconds of a clock that only goes forward. */
double qn_now(void);

/* ---- model.c ---- */

/* quern_model_load, with notes of what each matrix is multiplied with (see
 * qn_loader; the dtype must not be automatic).  They are sums that nobody has
 * evaluated, and change while the model computes. */
quern_status qn_model_open_watched(quern_model **out, const char *path,
                                   const quern_options *options,
                                   qn_watch_fn watch, void *data,
                                   quern_error *error);
/* What quern_model_load says of the files at `path`, whatever their size: all
 * is read but the values of weights, so this takes little memory and time. */
quern_status qn_model_audit(const char *path, quern_error *error);

/* ---- hub.c ---- */

/* See quern_resolve. */
qn_status qn_model_path(char **path, const char *ref);
/* The headers of a model of the hub: what to load, and the folder to drop when
 * that is done.  The caller owns both. */
qn_status qn_model_heads(char **path, char **folder, const char *ref);
/* Removes it, frees *folder, and says `ref` instead of it in the error of
 * `status`, which it returns. */
qn_status qn_model_drop_heads(char **folder, const char *ref, qn_status status);
/* Marks a model of the cache as used until qn_use_end; -1 for other paths. */
int qn_use_begin(const char *path);
void qn_use_end(int fd);

/* ---- cache.c ---- */

/* Whether the options about caches can be; QN_E_ARG, QN_E_UNSUPPORTED. */
qn_status qn_cache_check_options(const quern_options *options);
/* Whether some layer forgets, or will be converted, so that what is kept can't
 * always be cut. */
bool qn_cache_forgets(const quern_model *model);
/* Sets how the model's caches store; dtype and ctx must be known.  `dir` is the
 * model's directory, NULL for a GGUF file. */
qn_status qn_cache_set(quern_model *model, const qn_config *config,
                       const quern_options *options, const char *dir);
/* Sets layers of model->kv_layers, model->kv.layers of them, by the text of a
 * kv_config.json.  QN_E_FORMAT names the entry; QN_E_MISMATCH, QN_E_UNSUPPORTED
 * for a layer that can't store that.  Layers before it are then set. */
qn_status qn_cache_take_config(quern_model *model, qn_str text);

/* ---- fit.c ---- */

/* Sets model->held; dtype must be known. */
void qn_fit_measure(quern_model *model, const qn_weights *weights,
                    const qn_config *config, bool int8);
/* QN_E_NOMEM when the model will not fit, unless options->force.  A context
 * that was not asked for is cut to what fits. */
qn_status qn_fit_admit(quern_model *model, const qn_config *config,
                       const quern_options *options);

/* ---- chat.c ---- */

/* Parses `source` into *out; a template that can't be parsed is kept as its
 * error.  QN_E_NOMEM alone is returned. */
qn_status qn_chat_set(qn_chat_template *out, qn_str source);
/* Marks *out as "this model has no template". */
void qn_chat_set_none(qn_chat_template *out);
void qn_chat_clear(qn_chat_template *chat);
/* Appends the rendered text, and the bitmap of its tainted bytes to `taint`
 * (may be NULL). */
qn_status qn_chat_render(const quern_model *model, const quern_chat *chat,
                         qn_buf *text, qn_buf *taint);
/* qn_tokenizer_encode; QN_E_MISMATCH for an id that the model does not have. */
qn_status qn_model_encode(const quern_model *model, qn_ids *out, qn_str text,
                          unsigned flags, const uint8_t *taint);
/* Appends the ids of the rendered text. */
qn_status qn_chat_ids(const quern_model *model, const quern_chat *chat,
                      qn_ids *out);
/* Appends the ids of what the rendered text has from the last message's content
 * on. */
qn_status qn_chat_tail_ids(const quern_model *model, const quern_chat *chat,
                           qn_ids *out);
/* Appends the ids of a raw prompt; an empty one becomes the begin token. */
qn_status qn_prompt_ids(const quern_model *model, qn_str text, qn_ids *out);

/* ---- saved.c ---- */

/* What tells a model's files from others. */
void qn_model_digest(char out[QN_DIGEST_SIZE], qn_weights *weights,
                     const qn_config *config);
/* Fills QN_MODEL_FACTS of what must be equal for a saved cache of the model to
 * be good (kv/file.h); they are the model's. */
enum { QN_MODEL_FACTS = 4 };
struct qn_kv_fact;
void qn_model_facts(const quern_model *model, struct qn_kv_fact *facts);

/* ---- session.c ---- */

/* What is computed beside the logits of a position. */
typedef struct qn_pick {
    int32_t id;  /* the likeliest token, lowest id first */
    float logit; /* its logit; NaN when any logit is NaN */
} qn_pick;

/* The next tokens of one sequence in a computation of several. */
typedef struct qn_feed {
    quern_session *session;
    const int32_t *ids;
    int count;
    int wanted;     /* positions at the end whose logits are wanted */
    qn_pick *picks; /* as many, beside them; may be NULL */
    int64_t answered;
} qn_feed;

/* Computes the next tokens of `count` different sessions of one model in one
 * evaluation, on the model's thread.  On failure all of them are empty. */
qn_status qn_sessions_compute(const qn_feed *feeds, size_t count);
/* Whether the tokens exist and fit the context. */
qn_status qn_session_check(const quern_session *session, const int32_t *ids,
                           size_t count);
/* Tokens that the next step may have: a step ends where the cache is to be
 * converted. */
size_t qn_session_room(const quern_session *session);
/* Whether the session was cancelled; it no longer is. */
bool qn_session_take_cancel(quern_session *session);
/* Marks the session as used by a computation; QN_E_ARG when it is. */
qn_status qn_session_take(quern_session *session);
void qn_session_give_back(quern_session *session);

/* The logits of the last position but `back`, borrowed until the next
 * computation. */
qn_status qn_session_last(quern_session *session, size_t back,
                          const float **out);
/* Keeps the first `length` tokens. */
qn_status qn_session_keep(quern_session *session, size_t length);
/* Says that the sequence is to reach `tokens`.  False when what the session has
 * was computed for a length of which it would not be the same (rotary positions
 * of some models): then it has been forgotten. */
bool qn_session_aim(quern_session *session, int64_t tokens);

#endif
