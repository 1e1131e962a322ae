/* alloc.c: malloc with recorded failures and, for tests, planned ones.
 *
 * The planned failure is a countdown of the calling thread, so a test that
 * fails its own allocations leaves other threads alone, or one of all threads,
 * which reaches those of the engine. */
#include "alloc.h"

#include "status.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

static _Thread_local long countdown = -1;
static atomic_long countdown_anywhere = -1;

void qn_test_fail_alloc(long n)
{
    countdown = n;
}

long qn_test_fail_alloc_anywhere(long n)
{
    return atomic_exchange(&countdown_anywhere, n);
}

static bool must_fail_anywhere(void)
{
    long left = atomic_load_explicit(&countdown_anywhere, memory_order_relaxed);
    while (left >= 0 &&
           !atomic_compare_exchange_weak(&countdown_anywhere, &left, left - 1))
        ;
    return left == 0;
}

/* True for the allocation that is to fail (the plan is then used up), and for
 * a size that no object can have. */
static bool must_fail(size_t size)
{
    return (countdown >= 0 && countdown-- == 0) || must_fail_anywhere() ||
           size > PTRDIFF_MAX;
}

static void *checked(void *ptr, size_t size)
{
    if (!ptr)
        qn_fail(QN_E_NOMEM, "out of memory: could not allocate %zu bytes",
                size);
    return ptr;
}

static void *too_large(size_t count, size_t size)
{
    qn_fail(QN_E_NOMEM, "out of memory: %zu times %zu bytes", count, size);
    return NULL;
}

void *qn_alloc(size_t size)
{
    return checked(must_fail(size) ? NULL : malloc(size ? size : 1), size);
}

void *qn_calloc(size_t count, size_t size)
{
    size_t total;
    if (!qn_mul_size(&total, count, size))
        return too_large(count, size);
    return checked(must_fail(total) ? NULL : calloc(1, total ? total : 1),
                   total);
}

void *qn_realloc(void *ptr, size_t size)
{
    return checked(must_fail(size) ? NULL : realloc(ptr, size ? size : 1),
                   size);
}

void *qn_reallocarray(void *ptr, size_t count, size_t size)
{
    size_t total;
    if (!qn_mul_size(&total, count, size))
        return too_large(count, size);
    return qn_realloc(ptr, total);
}

void *qn_alloc_aligned(size_t align, size_t size)
{
    void *ptr = NULL;
    /* posix_memalign takes no alignment below that of a pointer. */
    if (align < sizeof(void *))
        align = sizeof(void *);
    if (must_fail(size) || posix_memalign(&ptr, align, size ? size : 1))
        ptr = NULL;
    return checked(ptr, size);
}

void qn_free(void *ptr)
{
    free(ptr);
}

void qn_alloc_trim(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

char *qn_strdup(const char *text)
{
    return qn_strndup(text, strlen(text));
}

char *qn_strndup(const char *text, size_t n)
{
    size_t size;
    if (!qn_add_size(&size, n, 1))
        return too_large(n, 1);
    char *copy = qn_alloc(size);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

bool qn_mul_size(size_t *out, size_t a, size_t b)
{
    if (b && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool qn_add_size(size_t *out, size_t a, size_t b)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}
