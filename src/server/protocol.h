/* protocol.h: what stands between HTTP and the runtime.
 *
 * A protocol (OpenAI chat, Anthropic messages, ...) is a table of functions
 * that turn bytes into calls and events into bytes.  They do no I/O, start no
 * threads and keep nothing between calls: times, random numbers and names are
 * given to them, so the same input makes the same bytes.
 *
 *   qn_api_call call = {0};
 *   if (!protocol->parse(&call, body, &server, &error)) ...  HTTP error
 *   ... choose the model by call.model ...
 *   if (!protocol->prepare(&call, &model, &head, &error)) ... HTTP error
 *   ... run call.requests[0 .. call.count) ...
 *   protocol->answer(&out, &call, &head, results);          not streamed
 *   qn_api_call_free(&call);
 *
 * and streamed, where `out` is written to the client after each step:
 *
 *   qn_api_stream s = {.call = &call, .head = &head};
 *   protocol->begin(&s, &out);
 *   protocol->event(&s, i, event, elapsed_ms, &out);   each event of request i
 *   protocol->end(&s, &out);                           all are done
 *   protocol->error(&s, &error, &out);                 or: one has failed
 *   protocol->clear(&s);                               in any case
 *
 * Parsing is split in two because the body says which model it is for, and only
 * then are the model's defaults, template and context known.  The parts find
 * faults in the order of the server specification (2.2): JSON, required fields,
 * types, ranges and combinations; then the model's: template, context. */
#ifndef QN_SERVER_PROTOCOL_H
#define QN_SERVER_PROTOCOL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"

#include <quern/quern.h>

/* ---- errors (api_error.c) ---- */

typedef enum qn_api_code {
#define QN_ERROR(id, ...) QN_API_##id,
#include "errors.def"
#undef QN_ERROR
    QN_API_CODES
} qn_api_code;

/* How a route spells its errors. */
typedef enum qn_api_style { QN_API_OPENAI, QN_API_ANTHROPIC } qn_api_style;

enum { QN_API_PARAM_SIZE = 256, QN_API_MESSAGE_SIZE = 1024 };

typedef struct qn_api_error {
    qn_api_code code;
    char param[QN_API_PARAM_SIZE]; /* "messages[2].content"; "": none */
    char message[QN_API_MESSAGE_SIZE];
} qn_api_error;

/* Fills *error (texts that are too long are cut between characters) and returns
 * false, so that `return qn_api_fail(...)` reads well.  `param` may be NULL. */
bool qn_api_fail(qn_api_error *error, qn_api_code code, const char *param,
                 const char *fmt, ...) QN_PRINTF(4, 5);
/* What an error of the runtime, met while a request was computed, is to a
 * client.  Returns false. */
bool qn_api_fail_runtime(qn_api_error *error, const quern_error *cause);
/* An allocation failed.  Returns false. */
bool qn_api_fail_memory(qn_api_error *error);

/* "invalid_json", and the HTTP status. */
const char *qn_api_code_name(qn_api_code code);
int qn_api_code_status(qn_api_code code, qn_api_style style);
/* The body of the answer.  `request_id` is shown by Anthropic's. */
void qn_api_error_write(qn_buf *out, const qn_api_error *error,
                        qn_api_style style, const char *request_id);

/* ---- facts ---- */

/* Of the server: the same for all requests. */
typedef struct qn_api_server {
    bool strict_fields; /* fields that nobody knows are errors */
    bool many_models;   /* they are loaded and unloaded */
    bool compat_mlx_lm; /* --compat mlx-lm */
    /* What /v1/responses keeps; NULL: nothing.  The one thing that lives longer
     * than a call. */
    struct qn_responses *responses;
} qn_api_server;

/* Of the model that a call is for.  Texts outlive the call. */
typedef struct qn_api_model {
    const char *id;           /* shown to clients */
    const char *fingerprint;  /* "quern-0.1.0-1a2b3c4d" */
    const quern_model *model; /* NULL: not loaded (QN_API_EACH_MODEL) */
    const char *disk;         /* where its prompts are kept; NULL: nowhere */
    const quern_machine *machine; /* as it is with no model loaded */
    int64_t ctx;                  /* tokens of a sequence */
    int parallel;                 /* sequences side by side */
    uint64_t kv_asked;            /* --kv-budget; 0: not said */
    int64_t default_max_tokens;   /* --default-max-tokens */
    bool drafts;                  /* loaded with speculation */
    quern_pooling pooling;        /* --pooling */
    /* Of requests that leave them out, as flags of the server say; NULL: the
     * model's own, with the profile's in place. */
    const quern_sampling *sampling;
} qn_api_model;

/* What an answer is signed with. */
typedef struct qn_api_head {
    int64_t created;    /* seconds since 1970 */
    uint64_t random[2]; /* makes ids: must differ between calls */
    /* Of the call when it names none: 0 .. 2^63-1, drawn for it. */
    uint64_t seed;
    const char *request_id; /* X-Request-Id */
    const char *space;      /* the key's name, "" or NULL: none */
    const char *model;      /* the id really used, and its fingerprint */
    const char *fingerprint;
} qn_api_head;

/* Writes `prefix` and 24 hex digits, which depend on the head's random numbers
 * and on `index`: 0 is the answer's own id, further ones are its parts'. */
enum { QN_API_ID_SIZE = 48 };
void qn_api_id(char out[QN_API_ID_SIZE], const qn_api_head *head,
               const char *prefix, uint64_t index);

/* ---- calls ---- */

typedef enum qn_tool_choice {
    QN_CHOICE_UNSAID,
    QN_CHOICE_NONE,
    QN_CHOICE_AUTO,
    QN_CHOICE_REQUIRED,
    QN_CHOICE_NAMED
} qn_tool_choice;

/* The functions that a request offers (tools.h). */
typedef struct qn_asked_tools {
    const qn_json *list;                     /* NULL: none */
    const struct qn_tool_spelling *spelling; /* of the list */
    qn_tool_choice choice;
    qn_str name;      /* of NAMED */
    bool single;      /* at most one call */
    const char *json; /* after prepare: for the model; NULL: none */
} qn_asked_tools;

typedef struct qn_api_protocol qn_api_protocol;

/* What is to be done once a call is prepared. */
typedef enum qn_api_kind {
    QN_API_GENERATE, /* run `requests` */
    QN_API_EMBED,    /* run `inputs`, then protocol->embeddings */
    QN_API_ANSWERED, /* `body` is the answer */
    QN_API_LOAD,     /* the answer describes the model, now loaded */
    QN_API_UNLOAD    /* or unloaded */
} qn_api_kind;

/* Which model a call needs between parse and prepare. */
typedef enum qn_api_scope {
    QN_API_ONE_MODEL,
    /* The one it names, of which the headers do. */
    QN_API_HEADERS,
    /* All, loaded or not, one after the other: prepare is called for each. */
    QN_API_EACH_MODEL
} qn_api_scope;

typedef struct qn_api_call {
    /* Own everything that the call points to, apart from the buffers below. */
    qn_arena arena;
    qn_json_doc *doc; /* the body */
    const qn_api_server *server;
    qn_api_kind kind;

    /* ---- after parse ---- */
    const char *model; /* as named by the client; NULL: none */
    bool stream, include_usage, return_progress;
    /* Parts of the prefix cache's namespace; NULL: none. */
    const char *cache_salt, *prompt_cache_key;
    bool no_cache;    /* neither read nor store (cache_prompt false) */
    const char *user; /* for logs, as a hash only; NULL: none */
    /* Seconds that the model stays loaded afterwards, -1: forever; INT64_MIN:
     * not said. */
    int64_t keep_alive;
    int64_t context; /* QN_API_LOAD: tokens of a sequence; 0: the usual */
    bool force;      /* QN_API_UNLOAD: also when it has calls */
    int32_t n;       /* answers to each prompt */
    /* What the body says of requests; `given` has a bit for each row of
     * qn_request_fields that was there, which prepare lays over the model's
     * defaults. */
    quern_request asked;
    uint64_t given;
    bool wants_draft; /* speculation is an error where there is none */
    qn_asked_tools tools;
    void *extra; /* the protocol's own, in the arena */

    /* ---- after prepare ---- */
    /* Fields without effect, for X-Quern-Ignored: visible ASCII, commas
     * between names; empty: none. */
    qn_buf ignored;
    /* Prompt-major: request p * n + i is answer i to prompt p.  Prompts are
     * `ids`, which are in the arena; the first of equal ones should run first,
     * so that the others find its prefix. */
    quern_request *requests;
    size_t count;
    bool sampled;  /* X-Quern-Seed is due: */
    uint64_t seed; /* of the first answer; answer i has seed + i */
    quern_embed_input *inputs;
    size_t input_count;
    quern_embed_options embed;
    qn_buf body; /* of QN_API_ANSWERED */
} qn_api_call;

/* Also of a call whose parse or prepare failed, and of a zeroed one. */
void qn_api_call_free(qn_api_call *call);

/* ---- protocols ---- */

/* A streamed answer.  The caller fills the first two; they outlive it. */
typedef struct qn_api_stream {
    const qn_api_call *call;
    const qn_api_head *head;
    void *state; /* the protocol's; NULL at first */
} qn_api_stream;

/* Functions that write append to `out`, whose sticky failure says that memory
 * was out; the caller then gives up. */
struct qn_api_protocol {
    const char *name;   /* "chat": for logs and metrics */
    qn_api_style style; /* of errors */
    qn_api_scope scope;

    /* Reads a body (of GET: the query) into a zeroed *call.  False: *error is
     * filled; free the call in any case. */
    bool (*parse)(qn_api_call *call, qn_str body, const qn_api_server *server,
                  qn_api_error *error);
    /* Makes what the model has to do of a parsed call: the requests with their
     * tokens, within its context.  Takes as long as tokenizing does.  False:
     * *error is filled. */
    bool (*prepare)(qn_api_call *call, const qn_api_model *model,
                    const qn_api_head *head, qn_api_error *error);

    /* The answer to a call of QN_API_GENERATE: call->count results, which all
     * have succeeded. */
    void (*answer)(qn_buf *out, const qn_api_call *call,
                   const qn_api_head *head, const quern_result *results);
    /* To one of QN_API_EMBED. */
    void (*embeddings)(qn_buf *out, const qn_api_call *call,
                       const qn_api_head *head, const quern_embeddings *made);

    /* The stream, text/event-stream; NULL for routes that have none.  Nothing
     * is owed to the client before begin: until then a failure is an HTTP
     * error.  Call it with the first event. */
    void (*begin)(qn_api_stream *s, qn_buf *out);
    /* Event `event` of request `index`, with QUERN_EVENT_DONE if it succeeded,
     * `elapsed_ms` after the call came in. */
    void (*event)(qn_api_stream *s, size_t index, const quern_event *event,
                  double elapsed_ms, qn_buf *out);
    /* After the DONE of each request. */
    void (*end)(qn_api_stream *s, qn_buf *out);
    /* Instead of `end`; the caller cancels what still runs, and closes. */
    void (*error)(qn_api_stream *s, const qn_api_error *error, qn_buf *out);
    /* Shows that the server lives, in a stream that is silent for long. */
    void (*ping)(qn_api_stream *s, qn_buf *out);
    /* Frees the state of a stream, begun or not. */
    void (*clear)(qn_api_stream *s);
};

extern const qn_api_protocol qn_api_chat;        /* openai_chat.c */
extern const qn_api_protocol qn_api_completions; /* openai_completions.c */
extern const qn_api_protocol qn_api_fit;         /* fit.c */
extern const qn_api_protocol qn_api_flush;       /* flush.c */
extern const qn_api_protocol qn_api_load;        /* residency.c */
extern const qn_api_protocol qn_api_unload;
extern const qn_api_protocol qn_api_messages; /* anthropic.c */
extern const qn_api_protocol qn_api_count_tokens;
extern const qn_api_protocol qn_api_embeddings; /* embeddings.c */
extern const qn_api_protocol qn_api_responses;  /* responses.c */
extern const qn_api_protocol qn_api_tokenize;   /* inspect.c */
extern const qn_api_protocol qn_api_detokenize;
extern const qn_api_protocol qn_api_apply_template;

#endif
