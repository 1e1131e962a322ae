/* panel.c: lays out tiles, picks the kernel. */
#include "panel.h"

#include "backend/cpu/isa.h"

const qn_panel_kernel *qn_panel_at(qn_isa isa)
{
#define QN_PANEL(level, name)                                                  \
    if (isa == QN_ISA_##level && qn_isa_usable(isa))                           \
        return &name;
#include "kernels.def"
#undef QN_PANEL
    return NULL;
}

const qn_panel_kernel *qn_panel_pick(void)
{
#define QN_PANEL(level, name)                                                  \
    if (qn_isa_usable(QN_ISA_##level))                                         \
        return &name;
#include "kernels.def"
#undef QN_PANEL
    return &qn_panel_none;
}

/* ---- tiles ---- */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

size_t qn_panel_x_bytes(const qn_panel_form *form, size_t k, size_t rows)
{
    return lines(2 * k * rows) + lines(k / QN_PANEL_STEP * rows * 4) +
           lines(k / qn_panel_unit(form) * rows * 4);
}

qn_panel_x qn_panel_x_at(void *memory, size_t k, size_t rows)
{
    char *q = memory;
    char *d = q + lines(2 * k * rows);
    char *sums = d + lines(k / QN_PANEL_STEP * rows * 4);
    return (qn_panel_x){.rows = (int)rows,
                        .q = (const int32_t *)(void *)q,
                        .d = (const float *)(void *)d,
                        .sums = sums};
}
