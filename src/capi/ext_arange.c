/* ext_arange.c: ranges of numbers, the long ones of which are kept.
 *
 * What is kept is a leaf: its elements are there from the start, it has no
 * stream and no node.  So any thread may use it on any stream, also after the
 * thread that made it is gone.  Callers get views; that the cache holds the
 * buffer, too, keeps it from being donated to an operation.
 *
 * The entries stand in the order of their last use and together have at most
 * MOST_BYTES.  A range that is pushed out lives on in its views. */
#include "ext_arange.h"

#include "handles.h"
#include "ops_entry.h"

#include "backend/ref/loops.h"
#include "core/lock.h"
#include "quern/ext.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    MIN_COUNT = 65536, /* shorter ones are made again as fast */
    MOST_BYTES = 8 << 20,
    MOST_ENTRIES = MOST_BYTES / MIN_COUNT /* of one byte an element */
};

/* ---- what is asked for ---- */

typedef struct range_key {
    double start, step;
    int count;
    qn_dtype dtype;
} range_key;

static bool same_key(const range_key *a, const range_key *b)
{
    return a->start == b->start && a->step == b->step && a->count == b->count &&
           a->dtype == b->dtype;
}

static size_t bytes_of(const range_key *key)
{
    return (size_t)key->count * qn_dtype_size(key->dtype);
}

static qn_status read_key(range_key *out, double start, double stop,
                          double step, qn_dtype dtype)
{
    if (dtype == QN_BOOL)
        return qn_fail(QN_E_ARG, "[arange] Expected a type of numbers, found "
                                 "bool.");
    const double given[] = {start, stop, step};
    for (int i = 0; i < 3; i++)
        if (!isfinite(given[i]))
            return qn_fail(QN_E_ARG,
                           "[arange] Expected finite numbers, found %g.",
                           given[i]);
    if (start != trunc(start) || step != trunc(step) || step == 0)
        return qn_fail(QN_E_ARG,
                       "[arange] Expected a whole start and a whole step that "
                       "is not 0, found (%.17g, %.17g, %.17g).",
                       start, stop, step);
    double count = ceil((stop - start) / step);
    if (count > INT_MAX)
        return qn_fail(QN_E_ARG,
                       "[arange] Expected at most %d elements, found %.0f.",
                       INT_MAX, count);
    *out = (range_key){start, step, count > 0 ? (int)count : 0, dtype};
    return QN_OK;
}

/* ---- the cache; under QN_LOCK_RANGES ---- */

typedef struct entry {
    range_key key;
    qn_array *array;
} entry;

static struct {
    entry entries[MOST_ENTRIES]; /* the oldest first */
    int count;
    size_t bytes;
    size_t hits, stored;
} kept;

static entry take_out(int i)
{
    entry e = kept.entries[i];
    kept.count--;
    memmove(&kept.entries[i], &kept.entries[i + 1],
            (size_t)(kept.count - i) * sizeof e);
    kept.bytes -= bytes_of(&e.key);
    return e;
}

static void put_last(entry e)
{
    kept.entries[kept.count++] = e;
    kept.bytes += bytes_of(&e.key);
}

/* A reference to what is kept under the key, which is then the youngest; NULL:
 * nothing. */
static qn_array *find(const range_key *key)
{
    for (int i = kept.count - 1; i >= 0; i--)
        if (same_key(&kept.entries[i].key, key)) {
            put_last(take_out(i));
            kept.hits++;
            return qn_array_ref(kept.entries[kept.count - 1].array);
        }
    return NULL;
}

/* Lets go of references outside of the lock. */
static void drop(qn_array **arrays, int count)
{
    while (count)
        qn_array_unref(arrays[--count]);
}

/* Keeps `array` (its reference is taken over), or finds that another thread was
 * faster; returns a reference to what is kept. */
static qn_array *keep(const range_key *key, qn_array *array)
{
    qn_array *gone[MOST_ENTRIES + 1];
    int ngone = 0;
    qn_lock(QN_LOCK_RANGES);
    qn_array *there = find(key);
    if (there) {
        gone[ngone++] = array;
    } else {
        while (kept.bytes + bytes_of(key) > MOST_BYTES)
            gone[ngone++] = take_out(0).array;
        put_last((entry){*key, array});
        kept.stored++;
        there = qn_array_ref(array);
    }
    qn_unlock(QN_LOCK_RANGES);
    drop(gone, ngone);
    return there;
}

int quern_arange_cache_clear(void)
{
    qn_array *gone[MOST_ENTRIES];
    int ngone = 0;
    qn_lock(QN_LOCK_RANGES);
    while (kept.count)
        gone[ngone++] = take_out(0).array;
    qn_unlock(QN_LOCK_RANGES);
    drop(gone, ngone);
    return 0;
}

qn_ranges_state qn_ranges_kept(void)
{
    qn_lock(QN_LOCK_RANGES);
    qn_ranges_state state = {kept.count, kept.bytes, kept.hits, kept.stored};
    qn_unlock(QN_LOCK_RANGES);
    return state;
}

/* ---- making ---- */

/* The elements of a pending range, at once. */
static qn_status fill(qn_array **out, const qn_array *pending)
{
    qn_array *array;
    qn_status status = qn_array_new(&array, pending->dtype, pending->shape, 1);
    if (status)
        return status;
    status = qn_array_alloc_exact(array);
    if (status) {
        qn_array_delete(array);
        return status;
    }
    qn_ref_fill_range(array, pending->node->params);
    qn_array_set_ready(array);
    *out = array;
    return QN_OK;
}

static qn_status view_of(qn_array **out, const qn_array *array)
{
    qn_status status = qn_array_new(out, array->dtype, array->shape, 1);
    if (status)
        return status;
    qn_array_set_view(*out, array, array->strides, array->offset);
    qn_array_set_ready(*out);
    return QN_OK;
}

static qn_status make(qn_array **out, const range_key *key, double stop,
                      qn_stream *s)
{
    bool cached = key->count >= MIN_COUNT && bytes_of(key) <= MOST_BYTES &&
                  key->dtype != QN_COMPLEX64;
    qn_array *array = NULL, *pending = NULL;
    if (cached) {
        qn_lock(QN_LOCK_RANGES);
        array = find(key);
        qn_unlock(QN_LOCK_RANGES);
    }
    if (!array) {
        qn_status status = qn_op_arange(cached ? &pending : out, key->start,
                                        stop, key->step, key->dtype, s);
        if (status || !cached)
            return status;
        status = fill(&array, pending);
        qn_array_unref(pending);
        if (status)
            return status;
        array = keep(key, array);
    }
    qn_status status = view_of(out, array);
    qn_array_unref(array);
    return status;
}

int quern_arange(mlx_array *res, double start, double stop, double step,
                 mlx_dtype dtype, const mlx_stream s)
{
    QN_GET_DTYPE(type, dtype);
    QN_GET_STREAM(stream, s);
    range_key key;
    QN_CALL(read_key(&key, start, stop, step, type));
    QN_RETURN_OP(res, make(&out, &key, stop, stream));
}
