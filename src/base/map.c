/* map.c: the hash map.
 *
 * Entries stand in one array in the order of their insertion; a table of
 * 64-bit slots (high half: hash, low half: entry number + 1, 0 = free) finds
 * them by linear probing and is at most half full.  Key bytes live in an
 * arena, so the strings that qn_map_key_at gives stay valid as long as the
 * map. */
#include "map.h"

#include "alloc.h"
#include "arena.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ---- the hash: SipHash-1-3 (Aumasson and Bernstein, 2012) ---- */

static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed[2];

static void make_seed(void)
{
    if (!getentropy(seed, sizeof seed))
        return;
    /* No entropy (an old kernel, a strict sandbox): where the program lies
     * and when it started is the best that is left. */
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    seed[0] = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
    seed[1] = (uint64_t)(uintptr_t)&now ^ (uint64_t)getpid() << 32;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint64_t qn_hash(const void *data, size_t size)
{
    pthread_once(&seed_once, make_seed);
    uint64_t v[4] = {
        seed[0] ^ UINT64_C(0x736f6d6570736575),
        seed[1] ^ UINT64_C(0x646f72616e646f6d),
        seed[0] ^ UINT64_C(0x6c7967656e657261),
        seed[1] ^ UINT64_C(0x7465646279746573),
    };
    const uint8_t *p = data;
    size_t left = size;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word = qn_le64(p);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t tail = (uint64_t)size << 56;
    for (size_t i = 0; i < left; i++)
        tail |= (uint64_t)p[i] << (8 * i);
    v[3] ^= tail;
    sip_round(v);
    v[0] ^= tail;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- the map ---- */

typedef struct entry {
    qn_str key;
    qn_map_value value;
} entry;

enum { FIRST_SLOTS = 16 };

struct qn_map {
    entry *entries;
    size_t count, capacity;
    uint64_t *slots;
    size_t slot_count; /* a power of two, at least 2 * count */
    qn_arena keys;
};

qn_map *qn_map_new(size_t expected)
{
    qn_map *map = qn_calloc(1, sizeof *map);
    if (!map)
        return NULL;
    size_t slots = FIRST_SLOTS;
    /* A hint from a file header: what is beyond it is left to growth. */
    while (slots / 2 < expected && slots < (size_t)1 << 24)
        slots *= 2;
    map->slots = qn_calloc(slots, sizeof *map->slots);
    map->slot_count = slots;
    map->capacity = slots / 2;
    map->entries = qn_reallocarray(NULL, map->capacity, sizeof *map->entries);
    if (!map->slots || !map->entries) {
        qn_map_free(map, NULL);
        return NULL;
    }
    return map;
}

void qn_map_free(qn_map *map, void (*free_value)(void *))
{
    if (!map)
        return;
    if (free_value) {
        for (size_t i = 0; i < map->count; i++)
            free_value(map->entries[i].value.ptr);
    }
    qn_arena_free(&map->keys);
    qn_free(map->entries);
    qn_free(map->slots);
    qn_free(map);
}

size_t qn_map_size(const qn_map *map)
{
    return map->count;
}

/* The slot that holds `key`, or the free one where it belongs. */
static uint64_t *find_slot(const qn_map *map, qn_str key, uint64_t hash)
{
    size_t mask = map->slot_count - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        uint64_t slot = map->slots[i];
        if (!slot)
            return &map->slots[i];
        if (slot >> 32 == hash >> 32 &&
            qn_str_eq(map->entries[(uint32_t)slot - 1].key, key))
            return &map->slots[i];
    }
}

qn_map_value *qn_map_get(const qn_map *map, qn_str key)
{
    uint64_t slot = *find_slot(map, key, qn_hash(key.data, key.size));
    return slot ? &map->entries[(uint32_t)slot - 1].value : NULL;
}

/* Doubles the table and the entries' room.  On failure all stays usable. */
static bool grow(qn_map *map)
{
    size_t slot_count = map->slot_count * 2;
    if (slot_count / 2 > UINT32_MAX - 1) {
        qn_fail(QN_E_NOMEM, "out of memory: a map of %zu entries", map->count);
        return false;
    }
    entry *entries =
        qn_reallocarray(map->entries, slot_count / 2, sizeof *entries);
    if (!entries)
        return false;
    map->entries = entries;
    uint64_t *slots = qn_calloc(slot_count, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < map->count; i++) {
        uint64_t hash = qn_hash(entries[i].key.data, entries[i].key.size);
        size_t at = (size_t)hash & (slot_count - 1);
        while (slots[at])
            at = (at + 1) & (slot_count - 1);
        slots[at] = (hash & ~(uint64_t)UINT32_MAX) | (uint32_t)(i + 1);
    }
    qn_free(map->slots);
    map->slots = slots;
    map->slot_count = slot_count;
    map->capacity = slot_count / 2;
    return true;
}

qn_map_value *qn_map_put(qn_map *map, qn_str key, bool *added)
{
    uint64_t hash = qn_hash(key.data, key.size);
    uint64_t *slot = find_slot(map, key, hash);
    if (added)
        *added = !*slot;
    if (*slot)
        return &map->entries[(uint32_t)*slot - 1].value;
    if (map->count == map->capacity) {
        if (!grow(map))
            return NULL;
        slot = find_slot(map, key, hash);
    }
    qn_str copy;
    if (!qn_arena_copy(&map->keys, &copy, key))
        return NULL;
    entry *e = &map->entries[map->count++];
    *e = (entry){.key = copy};
    *slot = (hash & ~(uint64_t)UINT32_MAX) | (uint32_t)map->count;
    return &e->value;
}

qn_str qn_map_key_at(const qn_map *map, size_t i)
{
    return map->entries[i].key;
}

qn_map_value *qn_map_value_at(const qn_map *map, size_t i)
{
    return &map->entries[i].value;
}
