/* compile.h: recorded graphs of functions, kept per thread.
 *
 * A function is known by a number of its maker's choosing.  Under it the
 * calling thread's cache keeps a graph for each signature: number, types,
 * dimensions and (unless shapeless) shapes of the inputs, the constants that
 * the maker gives, and the default stream. */
#ifndef QN_TRANSFORM_COMPILE_H
#define QN_TRANSFORM_COMPILE_H

#include "function.h"

#include <stdatomic.h>

/* With the numbers of the MLX C API. */
typedef enum qn_compile_mode {
    QN_COMPILE_DISABLED,    /* call the function every time */
    QN_COMPILE_NO_SIMPLIFY, /* run what was recorded */
    QN_COMPILE_NO_FUSE,
    QN_COMPILE_ENABLED
} qn_compile_mode;

/* The process's; QN_COMPILE_ENABLED at first. */
void qn_compile_set_mode(qn_compile_mode mode);

typedef struct qn_compiled {
    const qn_function *fun;
    uintptr_t id;
    bool shapeless;
    const uint64_t *constants;
    size_t nconstants;
    atomic_size_t *traces; /* counts them */
} qn_compiled;

/* fun(inputs), by its recorded graph.  The caller owns *out. */
qn_status qn_compiled_call(qn_arrays *out, const qn_compiled *compiled,
                           qn_array *const *inputs, size_t ninputs);

/* A thread's cache, which lives as long as its thread; the object, which is
 * counted, lives on. */
typedef struct qn_compile_cache qn_compile_cache;
/* The calling thread's; a new reference. */
qn_status qn_compile_cache_here(qn_compile_cache **out);
/* NULL is fine. */
void qn_compile_cache_unref(qn_compile_cache *cache);
/* Forgets everything, or one function; from any thread. */
void qn_compile_cache_clear(qn_compile_cache *cache);
void qn_compile_cache_erase(qn_compile_cache *cache, uintptr_t id);
/* Forgets a function in the caches of all threads. */
void qn_compile_forget(uintptr_t id);

/* A number that no other function has. */
uintptr_t qn_compile_new_id(void);

#endif
