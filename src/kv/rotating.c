/* rotating.c: what a window leaves of a sequence.
 *
 * Storage moves by whole blocks of 128 tokens, the unit in which attention adds
 * its sums: so a row has the bits that it has with everything still there.  The
 * token at position p sees those from p - window + 1 on, and the first `keep`,
 * for which the first block stays. */
#include "kinds.h"

int qn_kv_window_base(const qn_kv_window *w, int length, int slack)
{
    int first = length - slack - w->window + 1;
    if (!w->window || first <= 0)
        return 0;
    int blocks = first / QN_KV_DROP_UNIT - (w->keep ? 1 : 0);
    return blocks > 0 ? blocks * QN_KV_DROP_UNIT : 0;
}

int qn_kv_window_ahead(const qn_kv_window *w)
{
    int ahead = w->window / 8;
    return ahead > QN_KV_DROP_UNIT ? ahead : QN_KV_DROP_UNIT;
}

static int64_t whole(int64_t tokens, int64_t unit)
{
    return (tokens + unit - 1) / unit * unit;
}

int64_t qn_kv_window_room(const qn_kv_window *w, int chunk, int step)
{
    /* What can't be dropped before a step, and the step. */
    int64_t held = (int64_t)w->window + QN_KV_SLACK + QN_KV_DROP_UNIT + chunk +
                   (w->keep ? QN_KV_DROP_UNIT : 0);
    int64_t grown = whole(held, step > 0 ? step : 1);
    int64_t moved = whole(held + qn_kv_window_ahead(w), QN_KV_DROP_UNIT);
    return moved > grown ? moved : grown;
}

bool qn_kv_window_allows(const qn_kv_window *w, int length, int base)
{
    return base <= qn_kv_window_base(w, length, 0);
}
