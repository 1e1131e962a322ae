/* words_plain.h: tables of kvcodes.inc where no instruction looks lanes up. */
#ifndef QN_CPU_KVCODES_WORDS_PLAIN_H
#define QN_CPU_KVCODES_WORDS_PLAIN_H

typedef struct table {
    const float *at;
} table;

VF_INLINE table load_table(const float *entries)
{
    return (table){entries};
}

typedef uint32_t table_codes __attribute__((vector_size(4 * VF_LANES)));

VF_INLINE VF look_up(const table *t, table_codes w, int bits)
{
    float found[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        found[i] = t->at[w[i] & ((1u << bits) - 1)];
    return vf_load(found);
}

#define vt_lookup(t, w, bits) look_up(t, (table_codes)(w), bits)

#endif
