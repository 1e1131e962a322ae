/* family.c: the list of families.
 *
 * Builds for tests have one more, which plays a script instead of computing
 * (tests/support/scripted.c). */
#include "family.h"

#ifdef QUERN_SCRIPTED
extern const qn_family qn_family_scripted;
#endif

static const struct {
    const char *type;
    const qn_family *family;
} families[] = {
#define QN_FAMILY(type, name) {type, &qn_family_##name},
#include "families.def"
#undef QN_FAMILY
#ifdef QUERN_SCRIPTED
    {"scripted", &qn_family_scripted},
#endif
};

enum { FAMILY_COUNT = sizeof families / sizeof *families };

const qn_family *qn_family_at(size_t i, const char **type)
{
    if (i >= FAMILY_COUNT)
        return NULL;
    *type = families[i].type;
    return families[i].family;
}

const qn_family *qn_family_find(qn_str type)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (qn_str_is(type, families[i].type))
            return families[i].family;
    return NULL;
}

void qn_family_cache(const qn_config *config, int layer, qn_kv_layer *out)
{
    const qn_layer_config *l = &config->layer[layer];
    const qn_family *family = qn_family_find(qn_str_of(config->family));
    *out = (qn_kv_layer){0};
    if (family && family->encoder)
        return;
    if (l->kind == QN_LAYER_ATTENTION && l->kv_from == layer) {
        out->kv_heads = l->kv_heads;
        out->head_dim = l->head_dim;
        out->window = l->window;
    }
    if (family && family->cache)
        family->cache(config, layer, out);
}
