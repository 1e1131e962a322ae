/* gguf_front.c: how long the front of a GGUF file is, by as much of it as is
 * there.  Nothing is checked but what is needed to go on. */
#include "gguf.h"

#include <string.h>

/* Where a walk over the front is; `need` grows past its size when it has to
 * stop there. */
typedef struct walk {
    qn_bytes front;
    uint64_t need;
} walk;

/* Steps over `count` items of `size` bytes; NULL when they are not there. */
static const uint8_t *step(walk *w, uint64_t count, uint64_t size)
{
    uint64_t at = w->need;
    if (at > w->front.size)
        return NULL;
    /* What is too long is reported by who parses it. */
    if (size && count > (UINT64_MAX - at) / size)
        return NULL;
    w->need += count * size;
    return w->need <= w->front.size ? w->front.data + at : NULL;
}

static uint64_t step_u64(walk *w)
{
    const uint8_t *p = step(w, 1, 8);
    return p ? qn_le64(p) : 0;
}

static uint32_t step_u32(walk *w)
{
    const uint8_t *p = step(w, 1, 4);
    return p ? qn_le32(p) : UINT32_MAX;
}

/* False when the walk is at its end. */
static bool step_string(walk *w)
{
    return step(w, step_u64(w), 1) != NULL;
}

/* Of a number or boolean. */
static uint64_t item_size(uint32_t type)
{
    static const uint8_t sizes[] = {
        [QN_GGUF_U8] = 1,  [QN_GGUF_I8] = 1,   [QN_GGUF_U16] = 2,
        [QN_GGUF_I16] = 2, [QN_GGUF_U32] = 4,  [QN_GGUF_I32] = 4,
        [QN_GGUF_F32] = 4, [QN_GGUF_BOOL] = 1, [QN_GGUF_U64] = 8,
        [QN_GGUF_I64] = 8, [QN_GGUF_F64] = 8,
    };
    return sizes[type];
}

static bool step_value(walk *w)
{
    uint32_t type = step_u32(w);
    if (type > QN_GGUF_F64)
        return false;
    if (type == QN_GGUF_STRING)
        return step_string(w);
    if (type != QN_GGUF_ARRAY)
        return step(w, 1, item_size(type)) != NULL;
    type = step_u32(w);
    uint64_t count = step_u64(w);
    if (type > QN_GGUF_F64 || type == QN_GGUF_ARRAY)
        return false;
    if (type != QN_GGUF_STRING)
        return step(w, count, item_size(type)) != NULL;
    for (uint64_t i = 0; i < count; i++)
        if (!step_string(w))
            return false;
    return true;
}

static bool step_tensor(walk *w)
{
    if (!step_string(w))
        return false;
    uint32_t ndim = step_u32(w);
    return ndim <= 4 && step(w, 8 * (uint64_t)ndim + 4 + 8, 1) != NULL;
}

uint64_t qn_gguf_front_need(qn_bytes front)
{
    walk w = {front, 8};
    if (front.size < 4 || !memcmp(front.data, "GGUF", 4)) {
        uint64_t tensors = step_u64(&w), keys = step_u64(&w);
        bool going = w.need <= front.size;
        for (uint64_t i = 0; i < keys && going; i++)
            going = step_string(&w) && step_value(&w);
        for (uint64_t i = 0; i < tensors && going; i++)
            going = step_tensor(&w);
    }
    return w.need;
}
