/* describe.c: sums over the headers of a model's files. */
#include "describe.h"

#include "family.h"

#include <stdio.h>
#include <string.h>

static uint64_t elements(const qn_weight *weight)
{
    uint64_t n = 1;
    for (int i = 0; i < weight->ndim; i++)
        n *= (uint64_t)weight->shape[i];
    return n;
}

/* "a.b.weight" to "a.b"; false when the name ends otherwise or is too long. */
static bool module_of(char *out, size_t size, const char *name,
                      const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    if (n < m || n - m >= size || strcmp(name + n - m, suffix))
        return false;
    memcpy(out, name, n - m);
    out[n - m] = '\0';
    return true;
}

static const qn_weight *sibling(const qn_weights *weights, const char *module,
                                const char *suffix)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", module, suffix);
    return qn_weights_find(weights, name);
}

/* "a.b" of "a.b.c". */
static const char *module_name(char *out, size_t size, const char *name)
{
    const char *dot = strrchr(name, '.');
    snprintf(out, size, "%.*s", dot ? (int)(dot - name) : 0, name);
    return out;
}

/* Parameters that a tensor stands for, and the name of its form.  A packed
 * matrix of a model directory counts what its words hold, its scales and
 * biases nothing. */
static uint64_t parameters(const qn_weights *weights, const qn_weight *weight,
                           qn_config *config, char form[32])
{
    char module[400];
    qn_quant quant;
    snprintf(form, 32, "%s", qn_weight_type_name(weights, weight));
    if (config->gguf)
        return elements(weight);
    if (config->quant.foreign && weight->ndim == 2 &&
        (module_of(module, sizeof module, weight->name, ".qweight") ||
         module_of(module, sizeof module, weight->name, ".weight_packed"))) {
        /* Codes of 4 bits, whoever packed them. */
        snprintf(form, 32, "%s 4-bit g%d",
                 config->quant.defaults.mode == QN_MODE_NVFP4 ? "nvfp4"
                                                              : "affine",
                 config->quant.defaults.group);
        return elements(weight) * 2 * qn_st_dtype_size(weight->type);
    }
    if (config->quant.foreign &&
        (sibling(weights, module_name(module, sizeof module, weight->name),
                 ".qweight") ||
         sibling(weights, module, ".weight_packed")))
        return 0;
    if (module_of(module, sizeof module, weight->name, ".weight") &&
        sibling(weights, module, ".scales") &&
        !qn_quant_find(&config->quant, module, &quant)) {
        snprintf(form, 32, "%s %d-bit g%d", qn_quant_mode_name(quant.mode),
                 quant.bits, quant.group);
        return elements(weight) * 32 / (uint64_t)quant.bits;
    }
    bool beside = (module_of(module, sizeof module, weight->name, ".scales") ||
                   module_of(module, sizeof module, weight->name, ".biases")) &&
                  sibling(weights, module, ".scales");
    return beside ? 0 : elements(weight);
}

qn_status qn_model_describe(qn_model_sums *out, const qn_weights *weights,
                            qn_config *config)
{
    enum { FORMS = 40 };
    struct {
        char name[32];
        uint64_t parameters;
    } forms[FORMS] = {{{0}, 0}};
    qn_status status = qn_model_check(weights, config);
    if (status)
        return status;
    memset(out, 0, sizeof *out);
    size_t best = 0;
    for (size_t i = 0; i < qn_weights_count(weights); i++) {
        const qn_weight *weight =
            qn_weights_at((qn_weights *)(uintptr_t)weights, i);
        char form[32];
        uint64_t count = parameters(weights, weight, config, form);
        out->parameters += count;
        out->bytes += weight->data.size;
        size_t f = 0;
        while (f < FORMS - 1 && forms[f].name[0] && strcmp(forms[f].name, form))
            f++;
        snprintf(forms[f].name, sizeof forms[f].name, "%s", form);
        forms[f].parameters += count;
        if (forms[f].parameters > forms[best].parameters)
            best = f;
    }
    snprintf(out->form, sizeof out->form, "%s", forms[best].name);
    out->tied = config->tied == 1 ||
                (config->tied < 0 && !sibling(weights, "lm_head", ".weight"));
    return QN_OK;
}
