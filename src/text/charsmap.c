/* charsmap.c: walking the double array.
 *
 * A unit of the array: bits 0 to 7 the byte by which it is reached (with bit
 * 31, which marks values), bit 8 says that a key ends there, bit 9 that its
 * offset counts in 256s, bits 10 to 30 the offset of its children.  A child
 * stands at (place ^ offset ^ byte), the value of a key at byte 0. */
#include "charsmap.h"

#include "base/alloc.h"
#include "base/utf8.h"

struct qn_charsmap {
    uint8_t *blob;
    size_t units;
    qn_str texts;
};

void qn_charsmap_free(qn_charsmap *map)
{
    if (!map)
        return;
    qn_free(map->blob);
    qn_free(map);
}

qn_status qn_charsmap_new(qn_charsmap **out, qn_bytes blob)
{
    if (blob.size < 4)
        return qn_fail(QN_E_FORMAT,
                       "charsmap: expected a size of 4 bytes, found %zu bytes",
                       blob.size);
    size_t tree = qn_le32(blob.data), left = blob.size - 4;
    if (tree % 4 || tree > left)
        return qn_fail(QN_E_FORMAT,
                       "charsmap: expected a tree of whole units within %zu "
                       "bytes, found %zu bytes",
                       left, tree);
    qn_str texts = {(const char *)blob.data + 4 + tree, left - tree};
    size_t bad;
    if (!qn_utf8_valid(texts, &bad))
        return qn_fail(QN_E_FORMAT,
                       "charsmap: the replacements are not valid UTF-8 at byte "
                       "%zu",
                       bad);
    qn_charsmap *map = qn_calloc(1, sizeof *map);
    if (!map)
        return QN_E_NOMEM;
    map->blob = qn_alloc(blob.size);
    if (!map->blob) {
        qn_free(map);
        return QN_E_NOMEM;
    }
    memcpy(map->blob, blob.data, blob.size);
    map->units = tree / 4;
    map->texts = (qn_str){(const char *)map->blob + 4 + tree, texts.size};
    *out = map;
    return QN_OK;
}

/* A place outside the array has no label that a byte equals. */
static uint32_t unit_at(const qn_charsmap *map, size_t place)
{
    return place < map->units ? qn_le32(map->blob + 4 + 4 * place)
                              : UINT32_C(1) << 31;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement that the value at `place` names. */
static bool text_at(const qn_charsmap *map, size_t place, qn_str *out)
{
    size_t at = unit_at(map, place) & 0x7fffffff;
    if (at >= map->texts.size)
        return false;
    const char *text = map->texts.data + at;
    /* An offset inside a character would give half of it. */
    if (((uint8_t)*text & 0xc0) == 0x80)
        return false;
    const char *end = memchr(text, 0, map->texts.size - at);
    *out = (qn_str){text, end ? (size_t)(end - text) : map->texts.size - at};
    return true;
}

/* Walks along `chunk`; returns the length of a key, the first one or the last,
 * and where its value stands, or 0. */
static size_t walk(const qn_charsmap *map, qn_str chunk, bool last,
                   size_t *value)
{
    size_t place = offset_of(unit_at(map, 0)), found = 0;
    for (size_t i = 0; i < chunk.size; i++) {
        uint8_t byte = (uint8_t)chunk.data[i];
        place ^= byte;
        uint32_t unit = unit_at(map, place);
        if (!byte || (unit & (1u << 31 | 0xff)) != byte)
            break;
        place ^= offset_of(unit);
        if (unit & 1u << 8) {
            found = i + 1;
            *value = place;
            if (!last)
                break;
        }
    }
    return found;
}

bool qn_charsmap_find(const qn_charsmap *map, qn_str chunk, qn_str *out)
{
    size_t value;
    return walk(map, chunk, false, &value) && text_at(map, value, out);
}

bool qn_charsmap_longest(const qn_charsmap *map, qn_str chunk, qn_str *out,
                         size_t *used)
{
    size_t value;
    *used = walk(map, chunk, true, &value);
    /* A key that ends inside a character would leave half of it. */
    if (*used < chunk.size && ((uint8_t)chunk.data[*used] & 0xc0) == 0x80)
        return false;
    return *used && text_at(map, value, out);
}
