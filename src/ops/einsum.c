/* einsum.c: sums of products by a formula.
 *
 * A formula is read into labels, one per axis of each operand.  Labels below
 * LETTERS are letters; the axes of an ellipsis follow, numbered from the last
 * one, as broadcasting lines them up.  Then two operands at a time are
 * replaced by their product, summed over the labels that nothing else needs:
 * first the pair with the smallest result.  A pair that shares a summed label
 * is a matrix product, any other an elementwise one. */
#include "scope.h"

#include "base/alloc.h"

#include <limits.h>
#include <string.h>

enum { LETTERS = 52, LABELS = LETTERS + QN_MAX_NDIM };

typedef struct term {
    qn_array *x; /* held by the scope; NULL: gone into another */
    int ndim;
    int label[QN_MAX_NDIM];
} term;

typedef struct formula {
    qn_scope c;
    term *terms;
    size_t count;
    term result; /* without an array */
    int length[LABELS];
    bool used[LABELS];
} formula;

/* ---- reading ---- */

/* Subscripts of one operand or of the result, as written. */
typedef struct subscripts {
    int count;
    int before; /* labels in front of the ellipsis; -1: there is none */
    int label[QN_MAX_NDIM];
} subscripts;

static int letter(char ch)
{
    /* In the order of the characters: capitals first. */
    if (ch >= 'A' && ch <= 'Z')
        return ch - 'A';
    if (ch >= 'a' && ch <= 'z')
        return ch - 'a' + 26;
    return -1;
}

/* Reads up to a comma, an arrow or the end, and returns the place of that. */
static const char *read_subscripts(qn_scope *c, subscripts *out,
                                   const char *text)
{
    *out = (subscripts){.before = -1};
    for (; *text && *text != ',' && strncmp(text, "->", 2) != 0; text++) {
        if (*text == ' ')
            continue;
        if (!strncmp(text, "...", 3) && out->before < 0) {
            out->before = out->count;
            text += 2;
            continue;
        }
        int label = letter(*text);
        if (label < 0 || out->count == QN_MAX_NDIM) {
            qn_scope_fail(c, label < 0
                                 ? qn_fail(QN_E_ARG,
                                           "[einsum] Subscripts are letters, "
                                           "with one ellipsis, found '%c'.",
                                           *text)
                                 : qn_fail(QN_E_ARG,
                                           "[einsum] An operand has at most %d "
                                           "subscripts.",
                                           QN_MAX_NDIM));
            return text;
        }
        out->label[out->count++] = label;
    }
    return text;
}

/* Labels of all axes: the ellipsis stands for `spread` of them. */
static qn_status lay_out(term *t, const subscripts *from, int spread)
{
    if (from->count + spread > QN_MAX_NDIM)
        return qn_fail(QN_E_ARG,
                       "[einsum] The result has %d dimensions, more "
                       "than %d.",
                       from->count + spread, QN_MAX_NDIM);
    int before = from->before < 0 ? from->count : from->before;
    t->ndim = 0;
    for (int i = 0; i < before; i++)
        t->label[t->ndim++] = from->label[i];
    for (int i = 0; i < spread; i++)
        t->label[t->ndim++] = LETTERS + spread - 1 - i;
    for (int i = before; i < from->count; i++)
        t->label[t->ndim++] = from->label[i];
    return QN_OK;
}

static qn_status read_operand(formula *f, term *t, const subscripts *from,
                              size_t which)
{
    int spread = t->x->ndim - from->count;
    if (spread < 0 || (spread > 0 && from->before < 0))
        return qn_fail(QN_E_ARG,
                       "[einsum] Operand %zu has %d dimensions, but %d "
                       "subscripts%s.",
                       which, t->x->ndim, from->count,
                       from->before < 0 ? "" : " and an ellipsis");
    qn_status status = lay_out(t, from, spread);
    for (int i = 0; i < t->ndim && !status; i++) {
        int *length = &f->length[t->label[i]], mine = t->x->shape[i];
        bool *used = &f->used[t->label[i]];
        if (*used && *length != mine && *length != 1 && mine != 1)
            return qn_fail(QN_E_ARG,
                           "[einsum] Dimension %d of operand %zu, of shape %s, "
                           "is %d where another one is %d.",
                           i, which, qn_array_shape_text(t->x).text, mine,
                           *length);
        if (!*used || *length == 1)
            *length = mine;
        *used = true;
    }
    return status;
}

/* Without an arrow: the ellipsis, then the letters that occur once. */
static void implicit_result(subscripts *out, const int *times)
{
    *out = (subscripts){.before = 0};
    for (int label = 0; label < LETTERS; label++)
        if (times[label] == 1 && out->count < QN_MAX_NDIM)
            out->label[out->count++] = label;
}

static qn_status read_formula(formula *f, const char *text,
                              qn_array *const *operands)
{
    int times[LETTERS] = {0}, spread = 0;
    size_t count = 0;
    subscripts s;
    for (;; text++) {
        text = read_subscripts(&f->c, &s, text);
        if (f->c.status)
            return f->c.status;
        if (count < f->count) {
            term *t = &f->terms[count];
            t->x = operands[count];
            qn_status status = read_operand(f, t, &s, count);
            if (status)
                return status;
            if (t->ndim - s.count > spread)
                spread = t->ndim - s.count;
            for (int i = 0; i < s.count; i++)
                times[s.label[i]]++;
        }
        count++;
        if (*text != ',')
            break;
    }
    if (count != f->count)
        return qn_fail(QN_E_ARG,
                       "[einsum] There are %zu operands, but subscripts for "
                       "%zu.",
                       f->count, count);
    if (*text) {
        text = read_subscripts(&f->c, &s, text + 2);
        if (f->c.status)
            return f->c.status;
        if (*text)
            return qn_fail(QN_E_ARG,
                           "[einsum] One result is expected, found "
                           "'%.20s' behind it.",
                           text);
    } else {
        implicit_result(&s, times);
    }
    qn_status status = lay_out(&f->result, &s, s.before < 0 ? 0 : spread);
    bool seen[LABELS] = {false};
    for (int i = 0; i < f->result.ndim && !status; i++) {
        int label = f->result.label[i];
        if (seen[label])
            return qn_fail(QN_E_ARG, "[einsum] The result has a subscript "
                                     "twice.");
        if (!f->used[label])
            return qn_fail(QN_E_ARG, "[einsum] The result has a subscript that "
                                     "no operand has.");
        seen[label] = true;
    }
    return status;
}

/* ---- one operand ---- */

static int place_of(const term *t, int label)
{
    for (int i = 0; i < t->ndim; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static void drop_axis(term *t, int axis)
{
    t->ndim--;
    memmove(t->label + axis, t->label + axis + 1,
            (size_t)(t->ndim - axis) * sizeof *t->label);
}

/* A label that comes twice: the diagonal, which is the last axis then. */
static void take_diagonals(qn_scope *c, term *t)
{
    for (int i = 0; i < t->ndim && !c->status; i++)
        for (int j = i + 1; j < t->ndim && !c->status; j++) {
            if (t->label[i] != t->label[j])
                continue;
            int label = t->label[i];
            qn_array *made = NULL, *x = t->x;
            if (x->shape[i] != x->shape[j]) {
                qn_dims dims = qn_dims_of(x);
                int longer = dims.dim[i] == 1 ? dims.dim[j] : dims.dim[i];
                dims.dim[i] = dims.dim[j] = longer;
                x = broadcast(c, x, &dims);
                if (c->status)
                    return;
            }
            t->x = qn_scope_hold(
                c, qn_op_diagonal(&made, x, 0, i, j, c->stream), &made);
            drop_axis(t, j);
            drop_axis(t, i);
            t->label[t->ndim++] = label;
            i = j = -1;
            break;
        }
}

/* Sums over the labels that are not in `kept`. */
static void sum_out(qn_scope *c, term *t, const bool *kept)
{
    int axes[QN_MAX_NDIM], count = 0;
    for (int i = t->ndim - 1; i >= 0; i--)
        if (!kept[t->label[i]]) {
            axes[count++] = i;
            drop_axis(t, i);
        }
    if (count)
        t->x = reduce(c, QN_OP_SUM, t->x, axes, (size_t)count, false);
}

/* The axes in the order of `label`; labels that the term lacks become axes of
 * length 1. */
static qn_array *arranged(qn_scope *c, const term *t, const int *label,
                          int count)
{
    int order[QN_MAX_NDIM], at = 0;
    qn_dims dims = {.ndim = count};
    if (c->status)
        return NULL;
    for (int i = 0; i < count; i++) {
        int place = place_of(t, label[i]);
        dims.dim[i] = place < 0 ? 1 : t->x->shape[place];
        if (place >= 0)
            order[at++] = place;
    }
    return reshape(c, transpose(c, t->x, order), &dims);
}

/* ---- two operands ---- */

/* What each label is for a pair. */
typedef struct pairing {
    int both[LABELS], summed[LABELS], first[LABELS], second[LABELS];
    int nboth, nsummed, nfirst, nsecond;
} pairing;

/* Labels that the result or another operand than the two needs. */
static void needed(const formula *f, const term *a, const term *b, bool *kept)
{
    memset(kept, 0, LABELS * sizeof *kept);
    for (int i = 0; i < f->result.ndim; i++)
        kept[f->result.label[i]] = true;
    for (size_t k = 0; k < f->count; k++) {
        const term *t = &f->terms[k];
        if (!t->x || t == a || t == b)
            continue;
        for (int i = 0; i < t->ndim; i++)
            kept[t->label[i]] = true;
    }
}

static void pair_up(pairing *p, const term *a, const term *b, const bool *kept)
{
    p->nboth = p->nsummed = p->nfirst = p->nsecond = 0;
    for (int i = 0; i < a->ndim; i++) {
        int label = a->label[i];
        if (place_of(b, label) < 0)
            p->first[p->nfirst++] = label;
        else if (kept[label])
            p->both[p->nboth++] = label;
        else
            p->summed[p->nsummed++] = label;
    }
    for (int i = 0; i < b->ndim; i++)
        if (place_of(a, b->label[i]) < 0)
            p->second[p->nsecond++] = b->label[i];
}

/* Stretches the axes of these labels to their full length. */
static qn_array *stretched(formula *f, const term *t, const int *label,
                           int count)
{
    qn_dims dims = qn_dims_of(t->x);
    for (int i = 0; i < count; i++) {
        int place = place_of(t, label[i]);
        dims.dim[place] = f->length[label[i]];
    }
    return broadcast(&f->c, t->x, &dims);
}

static qn_status multiply_lengths(const qn_dims *dims, int first, int count,
                                  int *out)
{
    int64_t product = 1;
    for (int i = first; i < first + count; i++)
        product = product > INT_MAX ? product : product * dims->dim[i];
    return qn_dim_fit(out, "einsum", product);
}

/* [both..., rows, columns] with the axes of `left` and `right` as one each. */
static qn_array *as_matrices(formula *f, term *t, const int *both, int nboth,
                             const int *left, int nleft, const int *right,
                             int nright)
{
    int label[QN_MAX_NDIM], count = nboth + nleft + nright;
    if (f->c.status)
        return NULL;
    memcpy(label, both, (size_t)nboth * sizeof *label);
    memcpy(label + nboth, left, (size_t)nleft * sizeof *label);
    memcpy(label + nboth + nleft, right, (size_t)nright * sizeof *label);
    qn_array *x = arranged(&f->c, t, label, count);
    if (f->c.status)
        return NULL;
    qn_dims dims = qn_dims_of(x), flat = dims;
    flat.ndim = nboth + 2;
    qn_status status =
        flat.ndim > QN_MAX_NDIM
            ? qn_fail(QN_E_ARG, "[einsum] %d dimensions, more than %d",
                      flat.ndim, QN_MAX_NDIM)
            : QN_OK;
    if (!status)
        status = multiply_lengths(&dims, nboth, nleft, &flat.dim[nboth]);
    if (!status)
        status = multiply_lengths(&dims, nboth + nleft, nright,
                                  &flat.dim[nboth + 1]);
    if (status) {
        qn_scope_fail(&f->c, status);
        return NULL;
    }
    return reshape(&f->c, x, &flat);
}

/* a becomes the contraction of both. */
static void contract(formula *f, term *a, term *b)
{
    qn_scope *c = &f->c;
    bool kept[LABELS];
    pairing p;
    needed(f, a, b, kept);
    /* What only one of them has and nobody needs is summed first. */
    bool alone[LABELS];
    memcpy(alone, kept, sizeof kept);
    for (int i = 0; i < b->ndim; i++)
        alone[b->label[i]] = true;
    sum_out(c, a, alone);
    memcpy(alone, kept, sizeof kept);
    for (int i = 0; i < a->ndim; i++)
        alone[a->label[i]] = true;
    sum_out(c, b, alone);
    if (c->status)
        return;
    pair_up(&p, a, b, kept);
    int count = p.nboth + p.nfirst + p.nsecond, label[2 * QN_MAX_NDIM];
    if (count > QN_MAX_NDIM) {
        qn_scope_fail(c, qn_fail(QN_E_ARG,
                                 "[einsum] A product of two operands would "
                                 "have %d dimensions, more than %d.",
                                 count, QN_MAX_NDIM));
        return;
    }
    memcpy(label, p.both, (size_t)p.nboth * sizeof *label);
    memcpy(label + p.nboth, p.first, (size_t)p.nfirst * sizeof *label);
    memcpy(label + p.nboth + p.nfirst, p.second,
           (size_t)p.nsecond * sizeof *label);
    if (!p.nsummed) {
        a->x =
            mul(c, arranged(c, a, label, count), arranged(c, b, label, count));
    } else {
        a->x = stretched(f, a, p.summed, p.nsummed);
        b->x = stretched(f, b, p.summed, p.nsummed);
        qn_array *left = as_matrices(f, a, p.both, p.nboth, p.first, p.nfirst,
                                     p.summed, p.nsummed);
        qn_array *right = as_matrices(f, b, p.both, p.nboth, p.summed,
                                      p.nsummed, p.second, p.nsecond);
        qn_dims dims = {.ndim = count};
        qn_array *y = c->status ? NULL : matmul(c, left, right);
        if (c->status)
            return;
        for (int i = 0; i < p.nboth; i++)
            dims.dim[i] = y->shape[i];
        for (int i = 0; i < p.nfirst; i++)
            dims.dim[p.nboth + i] = a->x->shape[place_of(a, p.first[i])];
        for (int i = 0; i < p.nsecond; i++)
            dims.dim[p.nboth + p.nfirst + i] =
                b->x->shape[place_of(b, p.second[i])];
        a->x = reshape(c, y, &dims);
    }
    a->ndim = count;
    memcpy(a->label, label, (size_t)count * sizeof *label);
    b->x = NULL;
}

/* ---- the order ---- */

static double size_of(const formula *f, const int *label, int count)
{
    double size = 1;
    for (int i = 0; i < count; i++)
        size *= f->length[label[i]];
    return size;
}

/* How much larger the result is than the two; then how much work it is. */
typedef struct cost {
    double growth, work;
} cost;

static cost cost_of(const formula *f, const term *a, const term *b)
{
    bool kept[LABELS];
    pairing p;
    needed(f, a, b, kept);
    pair_up(&p, a, b, kept);
    double both = size_of(f, p.both, p.nboth);
    double first = 1, second = 1, all = both * size_of(f, p.summed, p.nsummed);
    for (int i = 0; i < p.nfirst; i++)
        if (kept[p.first[i]])
            first *= f->length[p.first[i]];
    for (int i = 0; i < p.nsecond; i++)
        if (kept[p.second[i]])
            second *= f->length[p.second[i]];
    return (cost){both * first * second - size_of(f, a->label, a->ndim) -
                      size_of(f, b->label, b->ndim),
                  all * first * second};
}

/* Operands among which the best pair is looked for: the first ones that are
 * left, so that a long list takes no longer than its length. */
enum { CANDIDATES = 24 };

static void contract_best(formula *f)
{
    term *list[CANDIDATES], *a = NULL, *b = NULL;
    int count = 0;
    cost best = {0, 0};
    for (size_t i = 0; i < f->count && count < CANDIDATES; i++)
        if (f->terms[i].x)
            list[count++] = &f->terms[i];
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) {
            cost now = cost_of(f, list[i], list[j]);
            if (!a || now.growth < best.growth ||
                (now.growth == best.growth && now.work < best.work)) {
                best = now;
                a = list[i];
                b = list[j];
            }
        }
    contract(f, a, b);
}

static qn_array *finish(formula *f)
{
    bool kept[LABELS] = {false};
    term *t = f->terms;
    while (!t->x)
        t++;
    for (int i = 0; i < f->result.ndim; i++)
        kept[f->result.label[i]] = true;
    sum_out(&f->c, t, kept);
    return arranged(&f->c, t, f->result.label, f->result.ndim);
}

qn_status qn_op_einsum(qn_array **out, const char *text,
                       qn_array *const *operands, size_t count, qn_stream *s)
{
    if (!count)
        return qn_fail(QN_E_ARG, "[einsum] At least one operand is expected.");
    formula f = {.count = count};
    f.terms = qn_calloc(count, sizeof *f.terms);
    if (!f.terms)
        return QN_E_NOMEM;
    qn_scope_begin(&f.c, s);
    qn_scope_fail(&f.c, read_formula(&f, text, operands));
    for (size_t i = 0; i < count && !f.c.status; i++)
        take_diagonals(&f.c, &f.terms[i]);
    for (size_t left = count; left > 1 && !f.c.status; left--)
        contract_best(&f);
    qn_array *y = f.c.status ? NULL : finish(&f);
    qn_status status = qn_scope_end(&f.c, out, y);
    qn_free(f.terms);
    return status;
}
