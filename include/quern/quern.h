/* quern.h: run language models in the MLX format and in GGUF files.
 *
 *   quern_options options;
 *   quern_options_init(&options);
 *   quern_model *model;
 *   if (quern_model_load(&model, "model.gguf", &options, &error)) ...
 *   quern_session *session;
 *   quern_session_new(&session, model, &error);
 *   quern_request request;
 *   quern_request_init(&request, model);
 *   request.messages = "[{\"role\":\"user\",\"content\":\"Hello\"}]";
 *   quern_generate(session, &request, on_event, data, &result, &error);
 *
 * A model is what was read from files: configuration, weights, tokenizer and
 * chat template.  It never changes, and any number of sessions share it.  A
 * session is one sequence of tokens with its KV cache.
 *
 * Errors.  A function that can fail returns a quern_status and fills *error,
 * which may be NULL.  A function that fails leaves its outputs as they were,
 * except where it says otherwise.  The library never prints and never exits.
 *
 * Threads.  Functions of one model and its sessions may be called from any
 * thread.  A model that is used has one thread of its own, which alone
 * computes: whatever the callers' threads ask for at the same time is computed
 * side by side there, and each gets what it would get alone, to the bit.  One
 * session must not be used by two threads at once, apart from
 * quern_session_cancel.
 *
 * Text is UTF-8.  Structures are filled by their _init function first and
 * changed afterwards, so that members added later keep their defaults. */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors -------------------------------------------------------------- */

typedef enum quern_status {
    QUERN_OK,
    QUERN_E_IO,          /* a file is unreadable or short */
    QUERN_E_NOTFOUND,    /* a file is missing */
    QUERN_E_FORMAT,      /* a file contradicts its own format */
    QUERN_E_UNSUPPORTED, /* valid, but not implemented or not for this model */
    QUERN_E_MISMATCH,    /* parts that belong together disagree */
    QUERN_E_NOMEM,       /* out of memory */
    QUERN_E_ARG,         /* a value of the caller's is out of range */
    QUERN_E_CANCELLED,   /* the caller stopped the work */
    QUERN_E_INTERNAL,    /* a broken invariant */
    QUERN_E_SPACE,       /* the disk is too small */
    QUERN_E_NETWORK,     /* no connection, or offline where one is needed */
    QUERN_E_INTEGRITY,   /* a file is not the one that was announced */
    QUERN_E_DENIED       /* a permission or a licence is missing */
} quern_status;

enum { QUERN_ERROR_SIZE = 1024 };

typedef struct quern_error {
    quern_status status;
    /* The file and the place in it, or the name of the value; may be "". */
    char where[QUERN_ERROR_SIZE];
    /* One sentence: what was expected and what was found. */
    char message[QUERN_ERROR_SIZE];
} quern_error;

/* "io", "not_found", "format", "unsupported", "mismatch", "out_of_memory",
 * "argument", "cancelled", "internal", "no_space", "network", "integrity",
 * "denied"; "ok". */
const char *quern_status_name(quern_status status);

/* The release of this library, such as "0.1.0". */
const char *quern_release(void);

typedef enum quern_log_level {
    QUERN_LOG_ERROR,
    QUERN_LOG_WARN,
    QUERN_LOG_INFO,
    QUERN_LOG_DEBUG
} quern_log_level;

/* ---- the model cache and downloads ----------------------------------------
 */

/* The cache is a folder in the layout of the Hugging Face hub client:
 * $QUERN_CACHE, else $HF_HUB_CACHE, else $HF_HOME/hub, else
 * ~/.cache/huggingface/hub.  Only quern_get and quern_hub_search use the
 * network, by way of libcurl, which is loaded then; they read $HF_ENDPOINT,
 * $HF_TOKEN (or the hub client's token file), $HF_HUB_OFFLINE, and libcurl's
 * own variables for proxies. */

/* What a reference stands for: a path that exists, as it is; else
 * "org/name[@revision][:selector]", looked up in the cache, where the selector
 * chooses a GGUF file by its quantization ("Q4_K_M") or its name; else a part
 * of the id of exactly one cached model, in any case.  "./x" can only be a path
 * and "hf:x" only an id.  QUERN_E_NOTFOUND when nothing fits, QUERN_E_ARG with
 * the candidates when several do.  The caller owns *path (quern_free). */
quern_status quern_resolve(char **path, const char *ref, quern_error *error);

/* A model of the cache; texts live as long as the list. */
typedef struct quern_cached {
    const char *id;       /* "org/name" */
    const char *revision; /* the commit; "" when no file is there yet */
    const char *refs;     /* names of it, such as "main"; may be "" */
    const char *path;     /* of the snapshot, or of the repository */
    uint64_t bytes;       /* of the snapshot's files */
    int64_t last_use;     /* seconds since 1970; of a load, else of a read */
    /* Neither a file nor a part of the weights is missing. */
    bool complete;
} quern_cached;

typedef struct quern_cached_list {
    const quern_cached *items; /* by id, then by revision */
    size_t count;
    void *owned;
} quern_cached_list;

/* An absent cache is an empty one.  Free with quern_cached_list_free. */
quern_status quern_cache_list(quern_cached_list *list, quern_error *error);
void quern_cached_list_free(quern_cached_list *list);

typedef struct quern_gc_options {
    /* Models that were not used for so many seconds; negative: off. */
    double older_than;
    /* Snapshots that no name leads to any more, files of no snapshot, and parts
     * of downloads that were given up.  Without older_than it is on. */
    bool unreferenced;
    const char *const *keep; /* ids or parts of ids that stay */
    size_t keep_count;
    bool dry_run; /* only says what would go */
} quern_gc_options;

void quern_gc_options_init(quern_gc_options *options);

typedef struct quern_gc_item {
    const char *id;
    const char *what; /* "model", "snapshot 3f1c2ab", "partial file ..." */
    const char *path;
    uint64_t bytes; /* that become free */
    bool in_use;    /* somebody loads or fetches it: left alone */
    bool removed;
} quern_gc_item;

typedef struct quern_gc_list {
    const quern_gc_item *items;
    size_t count;
    void *owned;
} quern_gc_list;

/* Removes what the options name, inside the cache alone.  The first thing that
 * can't be removed is the error; *list is filled all the same.  Free with
 * quern_gc_list_free in any case. */
quern_status quern_cache_gc(quern_gc_list *list,
                            const quern_gc_options *options,
                            quern_error *error);
void quern_gc_list_free(quern_gc_list *list);

/* How far a download has come; texts live until the callback returns. */
typedef struct quern_get_progress {
    const char *file;     /* that came last; "" at first */
    bool file_done;       /* it is complete now */
    bool waiting;         /* another process fetches this model */
    uint64_t done, total; /* bytes of all files, with those that were there */
} quern_get_progress;

typedef struct quern_get_options {
    const char *revision; /* NULL: the reference's, else "main" */
    const char *quant;    /* GGUF: "Q4_K_M"; NULL: the reference's selector */
    /* Globs over the names of files: these instead of what a load needs, and
     * without those. */
    const char *const *include;
    size_t include_count;
    const char *const *exclude;
    size_t exclude_count;
    const char *dir;   /* plain files in this folder instead of the cache */
    int jobs;          /* files at a time, 1..32 */
    int retries;       /* after a failure that may pass, 0..100 */
    uint64_t max_size; /* refuse to fetch more; 0: any size */
    bool offline;      /* what the cache has must do */
    bool dry_run;      /* only fill the result */
    bool no_verify;    /* sizes are checked, digests are not */
    bool no_wait;      /* fail while another process fetches this model */
    /* Called often, also while nothing comes; false stops the work with
     * QUERN_E_CANCELLED.  What has come stays for the next try.  May be
     * NULL. */
    bool (*progress)(void *data, const quern_get_progress *progress);
    /* Warnings and notes; may be NULL. */
    void (*log)(void *data, quern_log_level level, const char *text);
    void *data; /* for both */
} quern_get_options;

void quern_get_options_init(quern_get_options *options);

typedef struct quern_get_file {
    const char *name;
    uint64_t size;
    bool cached;
} quern_get_file;

typedef struct quern_get_result {
    const char *repo, *revision; /* "org/name", the commit */
    const char *path;            /* what quern_model_load takes */
    const quern_get_file *files;
    size_t file_count;
    uint64_t bytes, bytes_cached; /* of the files; of those there before */
    uint64_t bytes_downloaded;
    uint64_t disk_free; /* before */
    double seconds;
    /* With QUERN_E_ARG because several files would do: one of each. */
    const quern_get_file *candidates;
    size_t candidate_count;
    void *owned;
} quern_get_result;

/* Fetches the files of a model that are not in the cache.  *result is filled as
 * far as it came, also on failure; free it with quern_get_result_free in any
 * case.
 *
 * QUERN_E_NOTFOUND: no such model, revision or file; QUERN_E_DENIED: a token or
 * an accepted licence is missing; QUERN_E_NETWORK; QUERN_E_INTEGRITY: a file is
 * not what was announced (it is deleted); QUERN_E_SPACE: before or while
 * writing; QUERN_E_FORMAT and QUERN_E_UNSUPPORTED: the model can't be loaded,
 * as far as its first bytes show. */
quern_status quern_get(quern_get_result *result, const char *ref,
                       const quern_get_options *options, quern_error *error);
void quern_get_result_free(quern_get_result *result);

typedef struct quern_remote {
    const char *id;
    const char *modified; /* "2025-04-28"; may be "" */
    uint64_t downloads, likes;
} quern_remote;

typedef struct quern_remote_list {
    const quern_remote *items;
    size_t count;
    void *owned;
} quern_remote_list;

/* Models of the hub whose name or tags match `query`, those that are fetched
 * most first.  Free with quern_remote_list_free. */
quern_status quern_hub_search(quern_remote_list *list, const char *query,
                              int limit, quern_error *error);
void quern_remote_list_free(quern_remote_list *list);

/* ---- models -------------------------------------------------------------- */

typedef struct quern_model quern_model;

typedef enum quern_dtype {
    /* Activations: float32 on the CPU, rounded to integers of 12 to 15
     * bits, with a scale for each 32, where they meet packed weights.  Cache:
     * float16. */
    QUERN_DTYPE_AUTO,
    QUERN_DTYPE_F32,
    QUERN_DTYPE_F16,
    QUERN_DTYPE_BF16
} quern_dtype;

typedef struct quern_options {
    quern_dtype dtype; /* of activations */
    /* How keys and values are stored: "f32", "f16", "bf16"; "affine4",
     * "affine8"; "turbo:kXvY" with keys of 2, 4, 5 or 8 bits and values of 2,
     * 3, 4, 5 or 8, "turbo" being turbo:k8v3.  NULL: f16, bf16 where
     * activations are.  Layers with a sliding window stay in floats with turbo.
     * "config": as the directory's kv_config.json says, layer by layer. */
    const char *kv;
    /* With packed forms: tokens of a sequence from which on it is stored so;
     * until then it is stored as floats. */
    int64_t kv_quant_start;
    /* Tokens that layers without a window of their own remember: the first 4 of
     * a sequence and the last ones; 0: all. */
    int64_t max_kv_size;
    /* Longest sequence, in tokens; 0: 8192, or the model's maximum where that
     * is less.  More than the model's maximum is an error. */
    int64_t ctx;
    /* Threads that compute, 1..512; 0: one for each core that this process
     * may use.  They belong to the process: the last load that names a number
     * decides. */
    int threads;
    /* Prompt tokens that are computed in one piece; 0: 256. */
    int prefill_chunk;
    /* Requests that are computed side by side, 1..1024; further ones wait for
     * their turn.  0: 32. */
    int parallel;
    /* Speculation: further tokens are guessed and checked together, which is
     * faster where guesses are good.  Answers stay the same, to the bit.  The
     * guesses come from a small model of the same vocabulary, `draft` (a path;
     * another vocabulary is QUERN_E_MISMATCH), or, with `ngram`, from what
     * followed the last tokens earlier on; not from both. */
    const char *draft;
    bool ngram;
    /* Tokens that are guessed at a time, 1..16; 0: 4, with ngram 10. */
    int num_draft;
    /* While more requests than this are computed nothing is guessed, 1..64; 0:
     * 4. */
    int spec_max_rows;
    /* Prompts are cut into smaller pieces so that a step takes no longer, as
     * far as the last ones tell, and who decodes beside them waits no longer;
     * 0: they are not. */
    int max_step_ms;
    /* Bytes that sequences of finished jobs without a session may hold, so that
     * prompts which begin like them are not computed again; 0: none are kept.
     * Answers stay the same, to the bit. */
    uint64_t prefix_cache;
    /* A folder where these are also written, when there is nothing to compute
     * and when the model is freed, and found again, also by the next process;
     * NULL: none.  It is made if it is not there; QUERN_E_ARG where others may
     * enter it (its mode must be 0700) or another process uses it.  What was
     * computed in another way (release, kind of processor, types) is not used.
     * At most `prefix_disk_limit` bytes; 0: 20 GiB. */
    const char *prefix_disk;
    uint64_t prefix_disk_limit;
    /* Bytes of KV cache that sequences have together, which whoever submits
     * them sees to (quern_model_kv_bytes): no more is counted when the model is
     * to fit.  0: what `parallel` of the longest take. */
    uint64_t kv_budget;
    /* Loads also what does not fit in memory. */
    bool force;
    /* Reads headers, tokenizer and template, not the weights: for
     * quern_model_info and quern_model_tensor.  Sessions can't be made. */
    bool headers_only;
    /* With headers_only: `path` is a model of the hub, of which the headers of
     * the weights and the configuration are fetched and nothing is kept; for
     * quern_model_fit.  Its tokenizer stays unknown. */
    bool remote;
    /* Tensors that the model does not use are reported, not refused. */
    bool lenient_weights;
    /* Text of messages may spell special tokens. */
    bool trust_content;
    /* "f32", "f16" or "bf16": packed matrices of a GGUF file become floats,
     * rounded to this type, when they are loaded (and are then held in the type
     * of activations); NULL: they stay packed.  QUERN_E_UNSUPPORTED for a model
     * directory. */
    const char *gguf_dequant;
    /* "mlx-lm": what that program computes otherwise than the models' authors
     * is computed as there (Gemma 1 and 2, MiniCPM, longrope); NULL: as the
     * authors do.  What was saved or kept under one does not serve under the
     * other. */
    const char *compat;
    /* Jinja source that replaces the model's chat template; NULL: the
     * model's. */
    const char *chat_template;
    /* How the model writes calls of functions, by name (docs/tools.md);
     * "none": it does not.  NULL: as its template shows. */
    const char *tool_format;
    /* Gets warnings and notes while the model is loaded and used, perhaps
     * from another thread; may be NULL. */
    void (*log)(void *data, quern_log_level level, const char *text);
    void *log_data;
} quern_options;

void quern_options_init(quern_options *options);

/* Loads a model.  `path` is a .gguf file, a directory with config.json and
 * safetensors, a .safetensors file in such a directory, or a reference (see
 * quern_resolve).  `options` may be NULL.  The caller owns *out
 * (quern_model_free). */
quern_status quern_model_load(quern_model **out, const char *path,
                              const quern_options *options, quern_error *error);
/* Gives up the model.  Its sessions must be gone.  NULL is ignored. */
void quern_model_free(quern_model *model);

/* What is known of a model.  Texts live as long as the model. */
typedef struct quern_info {
    const char *path;
    const char *format;       /* "gguf", "mlx" */
    const char *family;       /* "llama" */
    const char *name;         /* the file's own name for it, or "" */
    const char *quantization; /* most common form: "affine 4-bit g32", "f16" */
    const char *dtype;        /* activations: "f32" */
    const char *kv;           /* KV cache: "f16", "turbo:k8v3" */
    const char *tokenizer;    /* "bpe" */
    /* How vectors of texts are made: "mean", "cls", "last"; NULL: the model's
     * files say nothing of them. */
    const char *pooling;
    bool encoder;                   /* vectors of texts is all that it makes */
    int32_t token_count;            /* ids that the tokenizer knows */
    int32_t bos_id, unk_id, pad_id; /* -1: none */
    bool has_chat_template;
    const char *chat_template; /* its source; NULL: none */
    /* How calls of functions are written, such as "hermes_json"; NULL: the
     * template shows none that is known. */
    const char *tool_format;
    bool tied_embeddings;
    int32_t vocab_size; /* logits per position */
    int32_t layers, hidden, intermediate, heads, kv_heads, head_dim;
    int32_t sliding_window; /* 0: none */
    /* What is kept of a sequence can't be cut at any length, so that
     * checkpoints pay (quern_request). */
    bool forgets;
    int64_t max_ctx;       /* what the model allows */
    int64_t ctx;           /* what this load allows */
    int32_t prefill_chunk; /* tokens of a prompt that a step takes */
    uint64_t parameters;   /* values in all weights */
    uint64_t weight_bytes; /* as they are held */
    double bits_per_weight;
    size_t kv_bytes_per_token;
    size_t tensors;      /* in the file or files */
    double load_seconds; /* of quern_model_load */
    /* Tells models from one another: 64 hexadecimal digits of their shapes and
     * of samples of their weights; "" when opened with headers_only. */
    const char *digest;
} quern_info;

void quern_model_info(const quern_model *model, quern_info *info);

/* A tensor as it lies in the file; texts and shape live as long as the
 * model. */
typedef struct quern_tensor {
    const char *name;
    const char *type; /* of the file's format: "Q4_1", "BF16" */
    int ndim;
    const int64_t *shape; /* slowest dimension first */
    uint64_t bytes;
} quern_tensor;

/* Tensor `index` (0 .. info.tensors-1) of a model opened with headers_only;
 * false for others and beyond the last. */
bool quern_model_tensor(const quern_model *model, size_t index,
                        quern_tensor *out);

/* Bytes that arrays of this process use now, the most since the last reset,
 * and freed bytes that are kept for reuse.  Pointers may be NULL. */
void quern_memory(size_t *active, size_t *peak, size_t *cached);
void quern_memory_reset_peak(void);

/* ---- text and tokens ----------------------------------------------------- */

/* Texts and lists that the library hands out are freed with this. */
void quern_free(void *ptr);

enum {
    QUERN_ADD_SPECIAL = 1,  /* begin-of-text and the like, where the model
                               has them */
    QUERN_PARSE_SPECIAL = 2 /* special tokens spelled in the text count */
};

/* The ids of `text` (`size` bytes).  The caller owns *ids (quern_free).
 * QUERN_E_MISMATCH when the tokenizer has ids that the model does not compute,
 * and the text one of them. */
quern_status quern_tokenize(const quern_model *model, const char *text,
                            size_t size, unsigned flags, int32_t **ids,
                            size_t *count, quern_error *error);
/* The text of `ids`, NUL-terminated; *size (may be NULL) is its length.  The
 * caller owns *text (quern_free). */
quern_status quern_detokenize(const quern_model *model, const int32_t *ids,
                              size_t count, bool skip_special, char **text,
                              size_t *size, quern_error *error);
/* The bytes of one token as it stands in running text, which may be a part of a
 * character; *size is their number.  The caller owns *bytes (quern_free). */
quern_status quern_token_bytes(const quern_model *model, int32_t id,
                               char **bytes, size_t *size, quern_error *error);
/* Ids of the tokens that end an answer.  Borrowed from the model. */
const int32_t *quern_end_ids(const quern_model *model, size_t *count);

/* Conversations, for rendering and for requests. */
typedef struct quern_chat {
    /* JSON array of messages: {"role": ..., "content": ...}, and whatever
     * else the template reads. */
    const char *messages;
    const char *tools;     /* JSON array, or NULL */
    const char *variables; /* JSON object of further variables, or NULL */
    bool add_generation_prompt;
    /* The last message is an answer that has begun: the text ends with its
     * content, and no new turn begins. */
    bool continue_final_message;
} quern_chat;

/* All NULL, with the generation prompt. */
void quern_chat_init(quern_chat *chat);

/* The text that the model's template makes of a conversation, NUL-terminated;
 * the caller owns *text (quern_free).  QUERN_E_UNSUPPORTED when there is no
 * template or it uses what is not implemented; QUERN_E_ARG with the
 * template's words when it refuses the messages. */
quern_status quern_render(const quern_model *model, const quern_chat *chat,
                          char **text, size_t *size, quern_error *error);
/* The ids of that text, as quern_generate would feed them: special tokens
 * count where the template wrote them, not inside the messages (unless
 * options.trust_content). */
quern_status quern_render_ids(const quern_model *model, const quern_chat *chat,
                              int32_t **ids, size_t *count, quern_error *error);

/* ---- sessions ------------------------------------------------------------ */

typedef struct quern_session quern_session;

/* The caller owns *out (quern_session_free).  The model must outlive it. */
quern_status quern_session_new(quern_session **out, quern_model *model,
                               quern_error *error);
void quern_session_free(quern_session *session);

/* Stops the call that runs on the session, at its next step, with
 * QUERN_E_CANCELLED; without one, the next call is stopped.  May be called
 * from any thread and from a signal handler. */
void quern_session_cancel(quern_session *session);

/* Appends `ids` to the sequence: a prompt, or one token of an answer.  When
 * cancelled the sequence keeps the part that was computed; when a computation
 * fails it is empty.  More tokens than the context holds: QUERN_E_UNSUPPORTED
 * with both numbers, nothing computed. */
quern_status quern_session_feed(quern_session *session, const int32_t *ids,
                                size_t count, quern_error *error);
/* Several sequences of one model at once, each with its own tokens. */
typedef struct quern_feed {
    quern_session *session;
    const int32_t *ids;
    size_t count;
    quern_status status; /* result, for this sequence */
} quern_feed;
/* As quern_session_feed for each item, side by side: the weights are read once
 * for all, so a token for each of eight sequences costs little more than one.
 * Sequences may have any lengths, and prompts may be among those that decode;
 * each gets exactly the logits that it gets alone.  Sessions must be different
 * and belong to one model.
 *
 * A session that is cancelled keeps the part that was computed, and the others
 * go on: its item has QUERN_E_CANCELLED and the call still returns QUERN_OK.
 * So do they when one has no room for its tokens; QUERN_E_NOMEM is its status
 * then, and that of the call.
 * When a computation fails the sequences that took part are empty. */
quern_status quern_sessions_feed(quern_feed *items, size_t count,
                                 quern_error *error);

/* The logits of the last position, and the natural logarithms of its
 * probabilities: info.vocab_size floats.  QUERN_E_ARG while the sequence is
 * empty, or after a trim until the next feed. */
quern_status quern_session_logits(quern_session *session, float *out,
                                  quern_error *error);
quern_status quern_session_log_probs(quern_session *session, float *out,
                                     quern_error *error);
/* The logits after one token of a sequence, info.vocab_size of them; false ends
 * the call with QUERN_E_CANCELLED. */
typedef bool (*quern_score_fn)(void *data, size_t index, const float *logits);
/* As quern_session_feed, with the logits after each of the tokens. */
quern_status quern_session_score(quern_session *session, const int32_t *ids,
                                 size_t count, quern_score_fn score, void *data,
                                 quern_error *error);
/* Number of tokens in the sequence, and the tokens (borrowed until the next
 * call on the session). */
size_t quern_session_length(const quern_session *session);
const int32_t *quern_session_ids(const quern_session *session);
/* Forgets the tokens from `length` on. */
quern_status quern_session_trim(quern_session *session, size_t length,
                                quern_error *error);
/* Forgets everything.  The memory is kept for what comes next. */
void quern_session_reset(quern_session *session);

/* Writes the sequence and what is stored of it to a file, which takes its name
 * once it is whole.  QUERN_E_ARG while the sequence is empty. */
quern_status quern_session_save(quern_session *session, const char *path,
                                quern_error *error);
/* The session becomes what was saved, without logits.  QUERN_E_NOTFOUND;
 * QUERN_E_FORMAT: cut, changed, or another kind of file; QUERN_E_MISMATCH, by
 * the name of what differs: of another model, adapter or KV kind;
 * QUERN_E_UNSUPPORTED: computed in another way (by name: dtype, kv_dtype,
 * release, MLX version, backend, device, instruction set, compat), which would
 * go on in another way but may be good elsewhere, or longer than the context.
 * On failure the session is empty.
 *
 * A prompt cache that mlx-lm has saved (of caches with all tokens, stored as
 * the session stores them) is read, too.  It does not say which tokens they
 * are: their ids are -1, and a request's prompt is what comes behind them, of
 * messages what the template writes from the last content on. */
quern_status quern_session_load(quern_session *session, const char *path,
                                quern_error *error);

/* ---- generation ---------------------------------------------------------- */

typedef struct quern_logit_bias {
    int32_t id;
    float bias; /* -100..100, -100 bans the token */
} quern_logit_bias;

/* Steps are applied in this order: logit_bias, repetition, presence and
 * frequency penalty; these give the reported log probabilities; then
 * temperature 0 takes the likeliest token, else top_p, min_p, typical_p, XTC,
 * top_k and a draw. A window counts the last tokens of prompt and answer
 * together; 0 is the whole sequence. */
typedef struct quern_sampling {
    double temperature;     /* 0..5, 0: the likeliest token, lowest id first */
    double top_p;           /* (0,1], 1: off */
    int32_t top_k;          /* 0 or -1: off */
    double min_p;           /* 0..1, 0: off */
    double typical_p;       /* (0,1], 1: off */
    double xtc_probability; /* 0..1, 0: off */
    double xtc_threshold;   /* 0..0.5 */
    double repetition_penalty; /* 0 or 1: off, else up to 10 */
    double presence_penalty;   /* -2..2, 0: off */
    double frequency_penalty;  /* -2..2, 0: off */
    int32_t repetition_context_size;
    int32_t presence_context_size;
    int32_t frequency_context_size;
    const quern_logit_bias *logit_bias; /* at most 1024 */
    size_t logit_bias_count;
    /* Absent: drawn from the system and reported in the result. */
    bool has_seed;
    uint64_t seed; /* 0..2^63-1 */
} quern_sampling;

/* The first `tokens` tokens of a prompt are worth keeping: later ones begin
 * with them and go on in another way.  Where the model's caches can be cut at
 * any length only pins need it. */
typedef struct quern_checkpoint {
    size_t tokens;
    /* It stays for so long, counted from its last use here; 0: as long as
     * others.  All pins together have half of options.prefix_cache, beyond that
     * the oldest become ordinary. */
    int64_t pin_seconds;
} quern_checkpoint;

enum { QUERN_CHECKPOINTS = 64, QUERN_MOST_ANSWERS = 16 };

typedef struct quern_request {
    /* The prompt: exactly one of chat.messages, `prompt` (raw text, in which
     * special tokens count) and `ids`. */
    quern_chat chat;
    const char *prompt;
    const int32_t *ids;
    size_t id_count;

    quern_sampling sampling;
    /* At most so many tokens, at least 1; the answer also ends where the
     * context does. */
    int64_t max_tokens;
    /* End tokens are masked until there are so many tokens. */
    int64_t min_tokens;
    /* End tokens are never taken. */
    bool ignore_eos;
    /* Up to 16 texts of 1..256 bytes that end the answer; they are cut off. */
    const char *const *stops;
    size_t stop_count;
    /* Log probabilities of each token, and of the `top_logprobs` (0..20)
     * likeliest beside it. */
    bool logprobs;
    int top_logprobs;
    /* The same for the tokens of the prompt; only with logprobs.  All of it is
     * computed for that, whatever is kept. */
    bool prompt_logprobs;
    /* Tokens that are guessed at a time: 0 turns speculation off, -1 is what
     * the model was loaded with; at most 16, and without effect where it was
     * loaded without. */
    int num_draft;
    /* At most so many tokens of thoughts: then the mark that ends them is
     * taken, whatever the model would say.  0: none; -1: as many as it likes.
     * Without effect where the vocabulary has no such marks. */
    int64_t reasoning_budget;
    /* The functions that the answer may call, a JSON array as chat.tools (which
     * counts where this is NULL, if the model's format is known): calls of them
     * are events of their own and no text.  Up to 256, names
     * [A-Za-z0-9_.-]{1,64}; QUERN_E_UNSUPPORTED where info.tool_format is NULL.
     * What begins like a call and is none, or is one of another function, stays
     * text.  Stops count in a call as elsewhere, and end it. */
    const char *tools;
    /* The answer ends behind its first call. */
    bool single_call;

    /* For jobs without a session, where the model keeps sequences
     * (options.prefix_cache).  Only requests of one space (NULL: "") have
     * anything from each other.  Checkpoints in ascending order, at most
     * QUERN_CHECKPOINTS. */
    bool no_cache; /* nothing is looked for, and nothing kept */
    const char *cache_space;
    const quern_checkpoint *checkpoints;
    size_t checkpoint_count;

    /* For quern_submit.  `wake`, which may be NULL, is called when
     * quern_job_next has something to give after it had nothing: on the
     * model's thread, so it must return soon and call nothing of the library.
     * A job with more than `unread_limit` bytes of text that nobody has taken
     * pauses; 0: never. */
    void (*wake)(void *data);
    void *wake_data;
    size_t unread_limit;
} quern_request;

/* An empty prompt with the defaults of the model (generation_config.json),
 * else temperature 1 and no filters; 512 tokens. */
void quern_request_init(quern_request *request, const quern_model *model);

typedef struct quern_top_logprob {
    int32_t id;
    float logprob;
    const char *bytes; /* may be a part of a character */
    size_t byte_count;
} quern_top_logprob;

typedef struct quern_token {
    int32_t id;
    float logprob;                /* 0 unless asked for */
    const quern_top_logprob *top; /* likeliest first, lower id first */
    int top_count;
    const char *bytes; /* may be a part of a character */
    size_t byte_count;
    bool called;  /* it is a part of a call */
    bool thought; /* part of what the model thinks, or a mark around it */
} quern_token;

typedef enum quern_event_type {
    /* The request's turn has come: `done` of `total` prompt tokens are in the
     * session's cache already. */
    QUERN_EVENT_START,
    /* `done` of `total` prompt tokens are computed. */
    QUERN_EVENT_PROMPT,
    /* More of the answer: `text`, whole characters, and the tokens that it
     * comes from.  Text that might begin a stop waits for what follows. */
    QUERN_EVENT_TEXT,
    /* The same for what a model thinks before it answers, between the marks of
     * its kind (<think>, <|channel>thought, the channel "analysis").  Stops do
     * not count there. */
    QUERN_EVENT_REASONING,
    /* The end: `result` and `error`.  Only from quern_job_next. */
    QUERN_EVENT_DONE,
    /* Call number `call` begins: `text` is the function's name.  What comes up
     * to its end is the call's. */
    QUERN_EVENT_CALL,
    /* More of its arguments: `text`, the next part of a JSON object. */
    QUERN_EVENT_ARGUMENTS,
    /* Its end; `whole`: the arguments are an object, else they break off. */
    QUERN_EVENT_CALL_END
} quern_event_type;

struct quern_result;

/* Everything in an event is borrowed: until the callback returns, or until the
 * next call of quern_job_next. */
typedef struct quern_event {
    quern_event_type type;
    int64_t done, total;
    const char *text; /* NUL-terminated */
    size_t size;
    const quern_token *tokens;
    size_t token_count;
    const struct quern_result *result; /* of DONE */
    const quern_error *error;          /* of DONE; status QUERN_OK: none */
    size_t call;                       /* of CALL, ARGUMENTS and CALL_END */
    bool whole;                        /* of CALL_END */
} quern_event;

/* Returns true to go on, false to stop with QUERN_E_CANCELLED. */
typedef bool (*quern_event_fn)(void *data, const quern_event *event);

typedef enum quern_finish {
    QUERN_FINISH_NONE,   /* the call failed */
    QUERN_FINISH_STOP,   /* an end token or a stop text */
    QUERN_FINISH_LENGTH, /* max_tokens or the context */
    QUERN_FINISH_CANCELLED,
    QUERN_FINISH_TOOL_CALLS /* as STOP, and a call is whole */
} quern_finish;

/* "stop", "length", "cancelled", "tool_calls", "error" for NONE. */
const char *quern_finish_name(quern_finish finish);

/* A call of a function. */
typedef struct quern_call {
    const char *name;
    const char *arguments; /* JSON, an object when it is whole */
    size_t size;           /* of these */
    bool whole;
    size_t text_before; /* bytes of the answer's text that came before it */
} quern_call;

typedef struct quern_result {
    char *text; /* the whole answer, NUL-terminated */
    size_t size;
    char *reasoning; /* what the model thought, NUL-terminated */
    size_t reasoning_size;
    quern_token *tokens; /* of both, with their log probabilities, if asked */
    size_t token_count;
    /* The prompt's, if asked, prompt_tokens of them; nothing comes before the
     * first one, whose log probability is NaN.  NULL else, and where another
     * answer of quern_submit_n has them. */
    quern_token *prompt;
    quern_finish finish;
    int stop;       /* which of request.stops ended it, or -1 */
    int32_t end_id; /* the end token that ended it, or -1 */
    uint64_t seed;  /* the one used */
    int64_t prompt_tokens;
    int64_t cached_tokens;     /* of these, not computed: the session or the
                                  model had them, or another job did */
    int64_t completion_tokens; /* the end token included */
    int64_t reasoning_tokens;  /* of these, thought */
    int64_t drafted, accepted; /* guessed tokens, and those that were right */
    /* Speculation was on, and had to end before the answer did. */
    bool draft_stopped;
    double queue_seconds;       /* until its turn came */
    double prompt_seconds;      /* computing the prompt */
    double first_token_seconds; /* from the call to the first token */
    double decode_seconds;      /* after the first token */
    void *owned;                /* what the members above point into */
    quern_call *calls;          /* in order */
    size_t call_count;
    int64_t call_failures; /* texts that began like a call and were none */
} quern_result;

/* Answers a request.  The session's sequence becomes the prompt and the
 * answer; the longest beginning that it shares with the prompt is not
 * computed again.  `on_event` may be NULL; it is called on this thread.
 * *result, which may be NULL, is filled also when the work was cancelled or
 * failed on the way; free it with quern_result_free in any case. */
quern_status quern_generate(quern_session *session,
                            const quern_request *request,
                            quern_event_fn on_event, void *data,
                            quern_result *result, quern_error *error);
void quern_result_free(quern_result *result);

/* ---- generation without waiting ------------------------------------------ */

/* An answer in the making.  Many jobs of a model run side by side. */
typedef struct quern_job quern_job;

/* Asks for an answer as quern_generate does, and returns at once: what is wrong
 * with the request is told here, everything else by events.  The request is
 * copied.  The session, which nobody may use until the job is freed, becomes
 * the prompt and the answer; NULL: the job has one of its own.  The caller
 * owns *out (quern_job_free). */
quern_status quern_submit(quern_job **out, quern_model *model,
                          quern_session *session, const quern_request *request,
                          quern_error *error);
/* `count` (1..QUERN_MOST_ANSWERS) answers to one prompt, which is computed
 * once: out[i] is what quern_submit gives for the request with seed + i,
 * without a session.  The caller owns each.  On failure there are none. */
quern_status quern_submit_n(quern_job **out, size_t count, quern_model *model,
                            const quern_request *request, quern_error *error);
/* The next event, in order; waits up to `timeout_ms` milliseconds for it (0:
 * not at all; negative: as long as it takes) and returns false when there is
 * none.  After the last one it is QUERN_EVENT_DONE, again and again.  One
 * thread at a time. */
bool quern_job_next(quern_job *job, int timeout_ms, quern_event *event);
/* A descriptor for poll(), readable while quern_job_next has something to
 * give; the job's own, closed with it.  -1 when the system has none left. */
int quern_job_fd(quern_job *job);
/* Stops the job at its next step; it ends with QUERN_E_CANCELLED.  May be
 * called from any thread, any number of times. */
void quern_job_cancel(quern_job *job);
/* Waits for the end and hands the result over, once; free it with
 * quern_result_free.  Returns the status with which the job ended. */
quern_status quern_job_result(quern_job *job, quern_result *result,
                              quern_error *error);
/* Cancels a job that still runs, waits for that, and frees it.  NULL is
 * ignored. */
void quern_job_free(quern_job *job);

/* Bytes of KV cache that an answer takes at most when it has `tokens` tokens
 * with its prompt and no session: of all layers, as they store, windows and
 * states included, rounded up to what is allocated.  With `guesses` also what
 * speculation takes beside it, where the model has that.  Answers that begin
 * alike share nothing once they go on. */
uint64_t quern_model_kv_bytes(const quern_model *model, int64_t tokens,
                              bool guesses);

/* Of all jobs of a model: those that are computed, and those that wait. */
void quern_model_jobs(const quern_model *model, size_t *running,
                      size_t *waiting);

/* What a model's steps took so far: [0] those with pieces of prompts, [1] the
 * others.  Bucket i has those up to quern_step_bounds()[i] seconds that no
 * bucket before it has, the last one the longer ones; likewise for the
 * sequences of a step, up to 1, 2, 4, 8, 16, 32, 64. */
enum { QUERN_STEP_BUCKETS = 15, QUERN_ROW_BUCKETS = 8 };
typedef struct quern_steps {
    uint64_t count[2];
    double seconds[2];
    uint64_t buckets[2][QUERN_STEP_BUCKETS];
    uint64_t rows; /* of all steps together */
    uint64_t row_buckets[QUERN_ROW_BUCKETS];
} quern_steps;

/* 0.001, 0.0025, 0.005, 0.01 and so on, 10 and 60. */
const double *quern_step_bounds(void);
void quern_model_steps(const quern_model *model, quern_steps *out);

/* What a model keeps (options.prefix_cache). */
typedef struct quern_prefix_stats {
    uint64_t limit;
    size_t entries;
    uint64_t bytes, pinned_bytes;
    /* So far: prompts that found something, and that did not; tokens that were
     * found; entries that had to go for others. */
    uint64_t hits, misses, hit_tokens, evictions;
    /* In options.prefix_disk: the model's files, the bytes of all; so far:
     * files that had to go, and that could not be used (computed in another
     * way, or damaged). */
    size_t disk_entries;
    uint64_t disk_bytes, disk_evictions, disk_refused;
} quern_prefix_stats;

void quern_model_prefixes(quern_model *model, quern_prefix_stats *out);
/* Drops all of it, pins too.  *entries and *bytes, which may be NULL, are what
 * there was. */
quern_status quern_model_flush(quern_model *model, size_t *entries,
                               uint64_t *bytes, quern_error *error);
/* The same of what the model has on the disk (options.prefix_disk). */
quern_status quern_model_flush_disk(quern_model *model, size_t *entries,
                                    uint64_t *bytes, quern_error *error);
/* The same of what all models have in a folder that none uses now; one that is
 * not there is empty.  QUERN_E_ARG as for options.prefix_disk. */
quern_status quern_prefix_flush(const char *folder, size_t *entries,
                                uint64_t *bytes, quern_error *error);

/* ---- vectors of texts ---------------------------------------------------- */

/* How the vectors of a text's tokens become one. */
typedef enum quern_pooling {
    QUERN_POOLING_MODEL, /* as the model's files say */
    QUERN_POOLING_MEAN,
    QUERN_POOLING_CLS, /* the first token's */
    QUERN_POOLING_LAST /* the last token's, an end token behind the text */
} quern_pooling;

/* "model", "mean", "cls", "last". */
const char *quern_pooling_name(quern_pooling pooling);

typedef struct quern_embed_options {
    quern_pooling pooling;
    int normalize; /* to length 1: 1, 0, or -1: as the model's files say */
    int dim;       /* only so many numbers of each, before that; 0: all */
    bool truncate; /* cut what is too long, which else is an error */
    /* The texts are queries, for which the model is told what to look for, in
     * its own form ("Instruct: ...\nQuery:"); NULL: they are as they are.
     * QUERN_E_UNSUPPORTED where a model's files know no such form. */
    const char *instruction;
    /* Asked before each step, of as many texts as go well together; false stops
     * with QUERN_E_CANCELLED.  NULL: nobody is asked. */
    bool (*go_on)(void *data);
    void *data;
} quern_embed_options;

void quern_embed_options_init(quern_embed_options *options);

/* A text, or (text NULL) the ids of one with all special tokens. */
typedef struct quern_embed_input {
    const char *text;
    size_t size;
    const int32_t *ids;
    size_t id_count;
} quern_embed_input;

typedef struct quern_embeddings {
    float *data; /* count * dim, one vector after the other */
    size_t count, dim;
    int64_t tokens; /* of all texts */
} quern_embeddings;

/* The vectors of `count` texts, computed side by side; each is what it is
 * alone, to the bit.  `options` may be NULL.  QUERN_E_UNSUPPORTED when the
 * model says nothing of pooling and neither do the options, and for a text that
 * is too long.  The caller owns what *out has (quern_embeddings_free). */
quern_status quern_embed(quern_model *model, const quern_embed_input *inputs,
                         size_t count, const quern_embed_options *options,
                         quern_embeddings *out, quern_error *error);
void quern_embeddings_free(quern_embeddings *embeddings);

/* ---- fitting ---------------------------------------------------------------
 */

/* The memory and the speed of a machine. */
typedef struct quern_machine {
    uint64_t memory;   /* what there is: the group's limit, or all */
    uint64_t usable;   /* nine tenths of what is free of that */
    bool limited;      /* by a control group */
    double bandwidth;  /* bytes a second that are read; 0: not known */
    double operations; /* multiplications and additions of packed products a
                          second; 0: not known */
} quern_machine;

/* This machine.  The speeds are measured once, in half a second, and then kept
 * in $XDG_CACHE_HOME/quern; with `measure` false they are 0 unless they are
 * kept. */
void quern_machine_get(quern_machine *out, bool measure);

/* What a fit is asked for; zeros: as the model was opened. */
typedef struct quern_fit_options {
    int64_t ctx;        /* tokens of a sequence */
    int parallel;       /* sequences side by side; 0: 1 */
    const char *kv;     /* how keys and values are stored */
    uint64_t kv_budget; /* bytes of all sequences together; 0: no limit */
    /* Another machine; NULL: this one, whose speeds are not measured. */
    const quern_machine *machine;
} quern_fit_options;

/* One way to need less. */
typedef struct quern_remedy {
    const char *flag; /* "ctx", "parallel", "kv", "kv-budget" */
    char value[24];
    uint64_t saves; /* bytes */
} quern_remedy;

enum { QUERN_REMEDIES = 4 };

/* What a model takes, and whether there is so much.  The same numbers decide
 * when a model is loaded. */
typedef struct quern_fit {
    bool fits;
    uint64_t usable, required;
    /* Parts of `required`.  `workspace` is what a step of the longest piece of
     * a prompt needs, `base` the program with the tokenizer. */
    uint64_t weights, kv, state, workspace, prefix, draft, base;
    uint64_t guesses; /* of `draft`: what each sequence takes, together */
    uint64_t kv_per_token;
    int64_t context;     /* asked for */
    int64_t max_context; /* the longest that fits; 0: none */
    int64_t model_context;
    int parallel;
    int remedy_count;
    quern_remedy remedies[QUERN_REMEDIES]; /* each enough by itself, or as far
                                              as it goes */
    /* Tokens a second, from the machine's speeds; 0: not known. */
    double decode_rate, prefill_rate;
} quern_fit;

/* `model` may be opened with headers_only. */
quern_status quern_model_fit(quern_fit *out, const quern_model *model,
                             const quern_fit_options *options,
                             quern_error *error);
/* The object of the server's /v1/fit; the caller frees *json (quern_free). */
quern_status quern_fit_json(const quern_fit *fit, char **json,
                            quern_error *error);

/* ---- evaluation ------------------------------------------------------------
 */

typedef struct quern_eval_options {
    /* "perplexity": of texts; "kl": the divergence from another model's
     * probabilities; "choice": questions of which one answer is likeliest;
     * "tokenizer": ids against expected ones. */
    const char *task;
    /* Text, or JSON lines where the task has them: {"text"} for the first two,
     * {"question", "choices", "answer"}, {"text", "ids"}. */
    const char *data;
    size_t size;
    int64_t limit;  /* windows or lines; 0: all */
    int64_t stride; /* new tokens of a window; 0: 512 */
    /* For kl, one of them: the model to compare with; a file of probabilities
     * to read; one to write. */
    const quern_model *reference;
    const char *logits, *save_logits;
    bool (*progress)(void *data, const char *phase, int64_t done,
                     int64_t total);
    void *progress_data;
} quern_eval_options;

void quern_eval_options_init(quern_eval_options *options);
/* Names of the numbers that are found out, ended by NULL; NULL: there is no
 * such task.  They are not made where logits are saved. */
const char *const *quern_eval_metrics(const char *task);
/* *report: {"task", "metrics": {NAME: VALUE}, "counts": {...}, "seconds",
 * "digest" (the model's)}, which the caller frees (quern_free).  A bad line of
 * data is QUERN_E_FORMAT with its number; another vocabulary QUERN_E_MISMATCH.
 */
quern_status quern_eval(quern_model *model, const quern_eval_options *options,
                        char **report, quern_error *error);

/* ---- converting ---------------------------------------------------------- */

/* How far a long step has come; false stops it with QUERN_E_CANCELLED. */
typedef bool (*quern_progress_fn)(void *data, const char *phase, int64_t done,
                                  int64_t total);

typedef struct quern_convert_options {
    const char *to;    /* "mlx": a model directory (NULL); "gguf": a file */
    const char *dtype; /* of values that are not packed: "f32", "f16", "bf16";
                          NULL: as they are */
    bool dequantize;   /* packed modules become floats */
    /* Weights become groups of `group_size` codes of `bits` bits; 0: what the
     * mode means by itself. */
    bool quantize;
    int bits, group_size;
    const char *mode;   /* "affine" (NULL), "mxfp4", "mxfp8", "nvfp4" */
    const char *recipe; /* "mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6" */
    /* "GLOB=bits[:group[:mode]]" or "GLOB=none", of module paths; the last
     * that matches counts. */
    const char *const *overrides;
    size_t override_count;
    bool keep_head;      /* what makes logits stays in floats */
    bool requantize;     /* packed modules may be packed again */
    bool exact;          /* QUERN_E_UNSUPPORTED where a value would change */
    bool overwrite;      /* a model that is there is replaced */
    bool unchecked;      /* the result is not loaded */
    uint64_t shard_size; /* bytes of a file, at least 1 MiB */
    quern_progress_fn progress;
    void *progress_data;
    void (*log)(void *data, quern_log_level level, const char *text);
    void *log_data;
    /* Bits per weight of the whole, within 0.05: each module gets a width by
     * what rounding does to its products on a text (affine only; 0: none). */
    double target_bpw;
    /* "rtn" (NULL); "awq": columns are scaled before they are rounded, by the
     * size of their inputs on the text, and the norms before them back. */
    const char *method;
    /* The text for both; NULL: one of 64 KiB that is built in. */
    const char *calibration;
    size_t calibration_size;
} quern_convert_options;

/* Nothing quantized, files of 5 GiB. */
void quern_convert_options_init(quern_convert_options *options);

/* Writes the model at `source` (what quern_model_load takes) as `destination`,
 * a piece at a time, into a sibling that takes the name at the end: a failure
 * leaves nothing.  *report (may be NULL) is a JSON object of what was done,
 * which the caller frees (quern_free). */
quern_status quern_convert(const char *source, const char *destination,
                           const quern_convert_options *options, char **report,
                           quern_error *error);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
