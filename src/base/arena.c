/* arena.c: blocks that double in size and never move.
 *
 * A block is filled from both ends: aligned pieces from the front, text from
 * the back, so text needs no padding. */
#include "arena.h"

#include "alloc.h"

#include <stdalign.h>

typedef struct qn_arena_block {
    struct qn_arena_block *next; /* older */
    size_t low, high, capacity;  /* [low, high) is free */
    alignas(max_align_t) char bytes[];
} block;

enum { FIRST_BLOCK = 1024, LARGEST_BLOCK = 1 << 20 };

void qn_arena_free(qn_arena *arena)
{
    while (arena->blocks) {
        block *next = arena->blocks->next;
        qn_free(arena->blocks);
        arena->blocks = next;
    }
}

/* The block with `size` free bytes; NULL when memory is out. */
static block *block_with(qn_arena *arena, size_t size)
{
    block *b = arena->blocks;
    if (b && b->high - b->low >= size)
        return b;
    size_t capacity = b ? b->capacity * 2 : FIRST_BLOCK;
    if (capacity > LARGEST_BLOCK)
        capacity = LARGEST_BLOCK;
    bool own = size > capacity / 2;
    if (own)
        capacity = size;
    size_t total;
    if (!qn_add_size(&total, capacity, sizeof *b))
        total = SIZE_MAX; /* more than malloc has: fails and says so */
    block *fresh = qn_alloc(total);
    if (!fresh)
        return NULL;
    *fresh = (block){.high = capacity, .capacity = capacity};
    if (b && own) {
        /* A large piece fills its block; the room left in the current one
         * stays in use. */
        fresh->next = b->next;
        b->next = fresh;
    } else {
        fresh->next = b;
        arena->blocks = fresh;
    }
    return fresh;
}

void *qn_arena_alloc(qn_arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t);
    size_t rounded;
    if (!qn_add_size(&rounded, size, align - 1))
        rounded = SIZE_MAX;
    rounded -= rounded % align;
    block *b = block_with(arena, rounded);
    if (!b)
        return NULL;
    void *piece = b->bytes + b->low;
    b->low += rounded;
    return piece;
}

bool qn_arena_copy(qn_arena *arena, qn_str *out, qn_str text)
{
    if (!text.size) {
        *out = (qn_str){"", 0};
        return true;
    }
    block *b = block_with(arena, text.size);
    if (!b)
        return false;
    b->high -= text.size;
    memcpy(b->bytes + b->high, text.data, text.size);
    *out = (qn_str){b->bytes + b->high, text.size};
    return true;
}
