/* status.h: errors as values.
 *
 * A failing function returns a `qn_status` and leaves one sentence in a slot
 * of the calling thread (qn_fail).  The sentence names the thing, what was
 * expected and what was found; `where` names the file and the place in it.
 * A succeeding call leaves the slot alone. */
#ifndef QN_BASE_STATUS_H
#define QN_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* name, text.  The classes of the runtime specification, in its order;
 * NOTFOUND is the part of IO for which the command line has its own code.
 * Those behind INTERNAL are of downloads. */
#define QN_STATUS_LIST(X)                                                      \
    X(OK, "ok")                                                                \
    X(E_IO, "io")                                                              \
    X(E_NOTFOUND, "not_found")                                                 \
    X(E_FORMAT, "format")                                                      \
    X(E_UNSUPPORTED, "unsupported")                                            \
    X(E_MISMATCH, "mismatch")                                                  \
    X(E_NOMEM, "out_of_memory")                                                \
    X(E_ARG, "argument")                                                       \
    X(E_CANCELLED, "cancelled")                                                \
    X(E_INTERNAL, "internal")                                                  \
    X(E_SPACE, "no_space")                                                     \
    X(E_NETWORK, "network")                                                    \
    X(E_INTEGRITY, "integrity")                                                \
    X(E_DENIED, "denied")

typedef enum qn_status {
#define QN_X(name, text) QN_##name,
    QN_STATUS_LIST(QN_X)
#undef QN_X
} qn_status;

#if defined(__GNUC__)
#define QN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define QN_PRINTF(fmt, args)
#endif

/* Records the sentence (truncated to 1 KiB) with an empty `where` and returns
 * `code`, so that `return qn_fail(...)` reads well.  Never allocates. */
qn_status qn_fail(qn_status code, const char *fmt, ...) QN_PRINTF(2, 3);
/* The same call; `code` is never QN_OK, and through this the compiler knows
 * that `return qn_fail(...)` is no success (it would warn of variables that
 * only a success sets). */
#define qn_fail(...) qn_failed(qn_fail(__VA_ARGS__))
static inline qn_status qn_failed(qn_status code)
{
#if defined(__GNUC__)
    if (code == QN_OK)
        __builtin_unreachable();
#endif
    return code;
}

/* Puts "WHERE: " knowledge on the error already recorded: sets `where` if it
 * is still empty (an inner, more precise place wins).  Returns `code`. */
qn_status qn_fail_where(qn_status code, const char *fmt, ...) QN_PRINTF(2, 3);

/* The calling thread's last sentence and place ("" when there is none).
 * Valid until the thread's next qn_fail. */
const char *qn_error_text(void);
const char *qn_error_where(void);
void qn_error_clear(void);

/* The slot's contents, to put back after calls whose failure does not count
 * (a clean-up, a probe). */
enum { QN_ERROR_SIZE = 1024 };
typedef struct qn_error {
    char text[QN_ERROR_SIZE];
    char where[QN_ERROR_SIZE];
} qn_error;
void qn_error_save(qn_error *out);
void qn_error_restore(const qn_error *error);

/* "format", "argument", ... */
const char *qn_status_name(qn_status status);

#endif
