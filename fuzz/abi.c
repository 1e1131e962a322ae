/* abi.c: the pools of handles, what surrounds a call, programs. */
#include "abi.h"

#include "base/alloc.h"

atomic_long fz_reports, fz_entered, fz_held;
unsigned long fz_worked[FZ_ROWS];
unsigned long long fz_calls;

/* ---- handles ---- */

static int slots(fz_kind kind)
{
    return kind == FZ_array ? FZ_ARRAYS : FZ_OTHERS;
}

/* Whether it is to get a result of this call. */
static bool reserved(fz *f, fz_kind kind, int slot)
{
    for (int i = 0; i < f->out_count; i++)
        if (f->out[i].kind == kind && f->out[i].slot == slot)
            return true;
    return false;
}

/* An empty place, or -1. */
static int empty_slot(fz *f, fz_kind kind)
{
    int n = slots(kind), first = (int)fz_below(f, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        int slot = (first + i) % n;
        if (!f->pool[kind][slot] && !reserved(f, kind, slot))
            return slot;
    }
    return -1;
}

static const char *const kind_names[] = {
#define X(kind) #kind,
    FZ_KINDS(X)
#undef X
};

static void trace_array(fz *f, const char *name, int slot, void *ctx)
{
    if (!f->trace)
        return;
    mlx_array a = {ctx};
    fprintf(stderr, " %s=#%d:%d[", name, slot, (int)mlx_array_dtype(a));
    size_t n = mlx_array_ndim(a);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%d,", mlx_array_shape(a)[i]);
    fprintf(stderr, "]");
}

void *fz_in(fz *f, fz_kind kind, const char *name, bool optional)
{
    if (optional ? fz_one_in(f, 2) : fz_one_in(f, 40)) {
        FZ_TRACE(" %s=empty", name);
        return NULL;
    }
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    int shape[6], rank = -1;
    bool fresh = kind == FZ_array && !fz_one_in(f, f->inner ? 2 : 5);
    if (fresh) {
        int other = empty_slot(f, kind);
        rank = strcmp(name, "key") ? fz_suited_shape(f, name, shape) : 0;
        fresh = rank >= 0 && other >= 0;
        slot = fresh ? other : slot;
    }
    if (f->inner && kind == FZ_array && !f->pool[kind][slot] && !fresh)
        /* What it is given, rather than constants. */
        for (int i = 0; i < FZ_ARRAYS && !f->pool[kind][slot]; i++)
            slot = (slot + 1) % FZ_ARRAYS;
    while (!f->pool[kind][slot] && reserved(f, kind, slot))
        slot = (slot + 1) % slots(kind);
    if (!f->pool[kind][slot])
        f->pool[kind][slot] = kind != FZ_array ? fz_make(f, kind)
                              : fresh
                                  ? fz_new_array_of(f, name, shape, rank).ctx
                                  : fz_new_array(f, name).ctx;
    void *ctx = f->pool[kind][slot];
    if (kind == FZ_vector_array && ctx && f->list < 0)
        f->list = (int)mlx_vector_array_size((mlx_vector_array){ctx});
    if (kind == FZ_array && ctx) {
        mlx_array a = {ctx};
        if (f->ndim < 0) {
            f->ndim = (int)mlx_array_ndim(a);
            f->first_dtype = mlx_array_dtype(a);
            for (int i = 0; i < f->ndim && i < 6; i++)
                f->first_shape[i] = mlx_array_shape(a)[i];
        }
        trace_array(f, name, slot, ctx);
    } else {
        FZ_TRACE(" %s=%s#%d%s", name, kind_names[kind], slot, ctx ? "" : "-");
    }
    return ctx;
}

void **fz_out(fz *f, fz_kind kind)
{
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    if (f->pool[kind][slot] && !fz_one_in(f, 3)) {
        int other = empty_slot(f, kind);
        slot = other >= 0 ? other : slot;
    }
    /* Two results of a call have two places. */
    while (reserved(f, kind, slot))
        slot = (slot + 1) % slots(kind);
    FUZZ_CHECK(f->out_count < 8);
    f->out[f->out_count].kind = kind;
    f->out[f->out_count].slot = slot;
    f->out[f->out_count++].empty = !f->pool[kind][slot];
    FZ_TRACE(" ->%s#%d%s", kind_names[kind], slot,
             f->pool[kind][slot] ? "!" : "");
    return &f->pool[kind][slot];
}

void fz_put(fz *f, fz_kind kind, void *ctx)
{
    int slot = empty_slot(f, kind);
    if (slot < 0 || f->out_count == 8) {
        fz_free(kind, ctx);
        return;
    }
    f->pool[kind][slot] = ctx;
    f->out[f->out_count].kind = kind;
    f->out[f->out_count].slot = slot;
    f->out[f->out_count++].empty = true;
    FZ_TRACE(" ->%s#%d", kind_names[kind], slot);
}

void *fz_take(fz *f, fz_kind kind)
{
    int slot = (int)fz_below(f, (uint32_t)slots(kind));
    void *ctx = f->pool[kind][slot];
    f->pool[kind][slot] = NULL;
    FZ_TRACE(" %s#%d", kind_names[kind], slot);
    return ctx;
}

/* ---- around a call ---- */

void fz_begin(fz *f)
{
    f->heard = fz_reports;
    f->functions = fz_entered;
    if (f->no_memory && fz_one_in(f, 6))
        qn_test_fail_alloc((long)fz_below(f, fz_one_in(f, 4) ? 200 : 12));
}

void fz_status(fz *f, int status)
{
    if (!f->inner)
        qn_test_fail_alloc(-1);
    FUZZ_CHECK(status >= 0 && status <= 3);
    FZ_TRACE(" = %d\n", status);
    if (!status && f->row < FZ_ROWS)
        fz_worked[f->row]++;
    if (status == 1)
        FUZZ_CHECK(fz_reports > f->heard);
    else if (fz_entered == f->functions)
        FUZZ_CHECK(fz_reports == f->heard);
    /* A call that fails leaves its results as they were. */
    for (int i = 0; status && i < f->out_count; i++)
        FUZZ_CHECK(!f->out[i].empty ||
                   !f->pool[f->out[i].kind][f->out[i].slot]);
}

static volatile size_t sink;

void fz_read_text(fz *f, const char *text)
{
    (void)f;
    if (text)
        sink = strlen(text);
}

void fz_read_data(fz *f, mlx_array a, size_t size, const void *data)
{
    bool flat = false;
    (void)f;
    if (!a.ctx || !data || !mlx_array_size(a))
        return;
    FUZZ_CHECK(!_mlx_array_is_row_contiguous(&flat, a));
    /* The program may have asked for another type. */
    size_t n = size > mlx_array_itemsize(a) ? 0
               : flat                       ? mlx_array_size(a) * size
                                            : size;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const unsigned char *)data)[i];
    sink = sum;
}

/* Also an array without elements can be cut into millions. */
static bool array_fits(mlx_array a)
{
    size_t size = 1, n = mlx_array_ndim(a);
    for (size_t i = 0; i < n && size <= FZ_LARGEST; i++)
        size *= mlx_array_shape(a)[i] ? (size_t)mlx_array_shape(a)[i] : 1;
    return size <= FZ_LARGEST && n <= 12;
}

/* Whether the program can afford to go on with it. */
static bool fits(fz_kind kind, void *ctx)
{
    if (kind == FZ_array)
        return array_fits((mlx_array){ctx});
    if (kind == FZ_vector_vector_array)
        return mlx_vector_vector_array_size((mlx_vector_vector_array){ctx}) <=
               FZ_LIST;
    if (kind == FZ_vector_string)
        return mlx_vector_string_size((mlx_vector_string){ctx}) <= FZ_LIST;
    if (kind == FZ_vector_int)
        return mlx_vector_int_size((mlx_vector_int){ctx}) <= FZ_LIST;
    if (kind != FZ_vector_array)
        return true;
    mlx_vector_array list = {ctx};
    size_t n = mlx_vector_array_size(list);
    bool fine = n <= FZ_LIST;
    for (size_t i = 0; fine && i < n; i++) {
        mlx_array a = {NULL};
        /* Memory may be out inside a function of arrays. */
        fine = !mlx_vector_array_get(&a, list, i) && array_fits(a);
        mlx_array_free(a);
    }
    return fine;
}

static void drop(fz *f, fz_kind kind, int slot)
{
    fz_free(kind, f->pool[kind][slot]);
    f->pool[kind][slot] = NULL;
}

void fz_end(fz *f)
{
    if (!f->inner)
        qn_test_fail_alloc(-1);
    for (int i = 0; i < f->out_count; i++) {
        fz_kind kind = f->out[i].kind;
        void *ctx = f->pool[kind][f->out[i].slot];
        if (!ctx)
            continue;
        if (!fits(kind, ctx)) {
            drop(f, kind, f->out[i].slot);
        } else if (fz_one_in(f, f->inner ? 40 : 3)) {
            if (kind == FZ_array)
                (void)mlx_array_eval((mlx_array){ctx});
            else if (kind == FZ_vector_array)
                (void)mlx_eval((mlx_vector_array){ctx});
        }
    }
    /* What has been appended to is no result. */
    for (int i = 0; i < FZ_OTHERS; i++)
        for (fz_kind kind = FZ_vector_array; kind <= FZ_vector_string; kind++)
            if (f->pool[kind][i] && fz_one_in(f, 8) &&
                !fits(kind, f->pool[kind][i]))
                drop(f, kind, i);
    while (f->scratch_count)
        free(f->scratch[--f->scratch_count]);
}

/* ---- a program ---- */

void fz_start(fz *f)
{
    static const int wide[] = {16, 32, 64, 128};
    uint32_t family = fz_below(f, 6);
    int same = fz_from(f, 1, 5);
    f->rank = fz_from(f, 0, 5);
    for (int i = 0; i < 5; i++)
        f->base[i] = family < 2   ? same
                     : family < 4 ? fz_from(f, 1, 6)
                     : family < 5 ? fz_from(f, 1, 3)
                                  : fz_from(f, 0, 4);
    if (family == 4) {
        f->base[4] = wide[fz_below(f, 4)];
        if (fz_one_in(f, 2))
            f->base[3] = f->base[4] > 64 ? 32 : f->base[4];
    }
    f->ndim = -1;
    f->floats = false;
    f->list = -1;
    f->count = SIZE_MAX;
    if (!f->inner)
        for (int i = 0; i < 6; i++)
            f->pool[FZ_array][i] = fz_new_array(f, "a").ctx;
}

/* Operations that take almost anything, for the functions of arrays. */
static const fz_row *easy_row(fz *f)
{
    static const char *const names[] = {
        "mlx_add",    "mlx_multiply", "mlx_subtract",  "mlx_sum",
        "mlx_exp",    "mlx_sin",      "mlx_tanh",      "mlx_maximum",
        "mlx_matmul", "mlx_square",   "mlx_transpose", "mlx_softmax_axis",
        "mlx_divide", "mlx_mean",     "mlx_where",     "mlx_take_axis",
        "mlx_sort",   "mlx_cumsum",   "mlx_sigmoid",   "mlx_flatten"};
    static const fz_row *rows[sizeof names / sizeof *names];
    size_t pick = fz_below(f, sizeof names / sizeof *names);
    for (size_t i = 0; !rows[pick] && i < fz_row_count; i++)
        if (!strcmp(fz_rows[i].name, names[pick]))
            rows[pick] = &fz_rows[i];
    return rows[pick];
}

bool fz_callable(const fz_row *row)
{
    return row->function != NULL;
}

void fz_step(fz *f)
{
    const fz_row *row;
    if (f->inner && fz_one_in(f, 2))
        row = easy_row(f);
    else
        row = &fz_rows[fz_below(f, (uint32_t)fz_row_count)];
    if (!fz_callable(row) || (f->inner && !row->operation))
        return;
    if (!f->inner && fz_one_in(f, 4)) {
        fz_kind kind =
            fz_one_in(f, 2) ? FZ_array : (fz_kind)fz_below(f, FZ_KINDS_COUNT);
        int slot = (int)fz_below(f, (uint32_t)slots(kind));
        if (f->pool[kind][slot])
            drop(f, kind, slot);
    }
    f->ndim = -1;
    f->floats = false;
    f->list = -1;
    f->count = SIZE_MAX;
    f->out_count = 0;
    f->calling = row->name;
    f->row = (size_t)(row - fz_rows);
    FZ_TRACE("%s%s:", f->inner ? "    " : "", row->name);
    row->call(f);
    if (!f->inner)
        qn_test_fail_alloc(-1);
    FZ_TRACE("\n");
    fz_calls++;
    while (f->scratch_count)
        free(f->scratch[--f->scratch_count]);
}

void fz_finish(fz *f)
{
    uint32_t step = fz_below(f, FZ_KINDS_COUNT);
    for (int i = 0; i < FZ_KINDS_COUNT; i++) {
        fz_kind kind = (fz_kind)((i * 7u + step) % FZ_KINDS_COUNT);
        for (int slot = 0; slot < slots(kind); slot++)
            if (f->pool[kind][slot])
                drop(f, kind, slot);
    }
}
