/* alloc.h: the one door to malloc.
 *
 * Every allocation of both libraries goes through here, so that tests can
 * fail the n-th one (qn_test_fail_alloc).  A NULL return has recorded
 * QN_E_NOMEM by qn_fail; callers return QN_E_NOMEM. */
#ifndef QN_BASE_ALLOC_H
#define QN_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* size 0 gives a unique pointer, as malloc(1) does. */
void *qn_alloc(size_t size);
/* count * size with an overflow check, zeroed. */
void *qn_calloc(size_t count, size_t size);
/* Like realloc; on failure `ptr` stays valid. */
void *qn_realloc(void *ptr, size_t size);
/* count * size with an overflow check, contents kept. */
void *qn_reallocarray(void *ptr, size_t count, size_t size);
/* `align` is a power of two; free with qn_free. */
void *qn_alloc_aligned(size_t align, size_t size);
void qn_free(void *ptr);
/* Gives what was freed back to the system, where it can be asked for that: for
 * those who freed much and will not want it again soon. */
void qn_alloc_trim(void);

char *qn_strdup(const char *text);
/* Copies n bytes and appends a NUL. */
char *qn_strndup(const char *text, size_t n);

/* Fails the n-th allocation from now on this thread (0 = the next), once;
 * a negative n switches failing off. */
void qn_test_fail_alloc(long n);
/* The same for the allocations of all threads together.  Returns what was left
 * of the plan before: negative when its allocation has failed. */
long qn_test_fail_alloc_anywhere(long n);

/* out = a * b; false when it would wrap. */
bool qn_mul_size(size_t *out, size_t a, size_t b);
bool qn_add_size(size_t *out, size_t a, size_t b);

#endif
