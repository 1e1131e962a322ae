/* panels.c: the kernels of products by 8-bit integers, one core, each
 * instruction set beside the others.
 *
 *   quern-bench-panels [K [LEVEL]]
 *
 * One row of x, with panels from memory: GB/s.  A full tile with panels from
 * memory, as eight sequences that decode, and eight tiles one after the other
 * with panels from the cache, as in a prompt: GMAC/s, each of an integer of two
 * bytes with a small one, so two 8-bit products each.  The kernels take turns;
 * the best of their rounds counts. */
#include "backend/cpu/kernels/panel/panel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TILES = 8, NEAR = 8, KINDS = 3, ROUNDS = 7, FAR_BYTES = 48 << 20 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) {
        fprintf(stderr, "panels: out of memory\n");
        exit(1);
    }
    memset(p, 0x2b, bytes); /* small scales in any type */
    return p;
}

typedef struct work {
    const qn_panel_kernel *kernel;
    qn_panel_form form;
    size_t k, panels;
    const uint8_t *panel;
    char *tiles; /* the kernel's own order */
    size_t tile_bytes, rows, tile_count;
} work;

static void make_tiles(work *w)
{
    float *x = room(w->k * sizeof *x);
    w->tile_bytes = qn_panel_x_bytes(&w->form, w->k, w->rows);
    w->tiles = room(w->tile_bytes * w->tile_count);
    for (size_t r = 0; r < w->rows * w->tile_count; r++) {
        for (size_t i = 0; i < w->k; i++)
            x[i] = (float)((i * 37 + r * 11) % 201) / 100 - 1;
        w->kernel->quantize(w->tiles + r / w->rows * w->tile_bytes, &w->form, x,
                            w->k, 0, w->k, r % w->rows, w->rows);
    }
    free(x);
}

static double run(const work *w)
{
    float out[TILES * QN_PANEL_FULL * QN_PANEL_ROWS];
    qn_panel_x all[TILES];
    size_t bytes = qn_panel_bytes(&w->form, w->k);
    double start = seconds();
    for (size_t t = 0; t < w->tile_count; t++)
        all[t] = qn_panel_x_at(w->tiles + t * w->tile_bytes, w->k, w->rows);
    if (w->kernel->run_tiles && w->rows == w->kernel->tile) {
        for (size_t p = 0; p < w->panels; p++)
            w->kernel->run_tiles(out, &w->form, w->panel + p * bytes, all,
                                 w->tile_count, w->k);
        return seconds() - start;
    }
    for (size_t p = 0; p < w->panels; p++)
        for (size_t t = 0; t < w->tile_count; t++)
            w->kernel->run(out, &w->form, w->panel + p * bytes, &all[t], w->k);
    return seconds() - start;
}

typedef enum kind { ROW_FAR, TILE_FAR, TILES_NEAR } kind;

/* The only level that is measured; NULL: all. */
static const char *only;

/* Plain C takes its turn only where it doesn't take minutes. */
static bool takes_part(int isa, kind what)
{
    if (only)
        return !strcmp(only, qn_isa_name((qn_isa)isa));
    return what == TILES_NEAR || isa != QN_ISA_NONE;
}

static void compare(qn_panel_form form, const char *name, size_t k, kind what)
{
    const bool far = what != TILES_NEAR;
    work works[QN_ISA_COUNT] = {{0}};
    double best[QN_ISA_COUNT];
    size_t bytes = qn_panel_bytes(&form, k);
    size_t panels = far ? FAR_BYTES / bytes : NEAR;
    uint8_t *panel = room(panels * bytes);
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_panel_kernel *kernel = qn_panel_at((qn_isa)isa);
        const size_t full =
            what == TILES_NEAR && kernel ? kernel->tile : QN_PANEL_TILE;
        works[isa] =
            (work){.kernel = kernel,
                   .form = form,
                   .k = k,
                   .panels = panels,
                   .panel = panel,
                   .rows = what == ROW_FAR ? 1 : full,
                   .tile_count = far ? 1 : TILES * QN_PANEL_TILE / full};
        best[isa] = 1e9;
        if (!takes_part(isa, what))
            works[isa].kernel = NULL;
        if (works[isa].kernel)
            make_tiles(&works[isa]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
            double time = works[isa].kernel ? run(&works[isa]) : 1e9;
            if (time < best[isa])
                best[isa] = time;
        }
    for (int isa = QN_ISA_COUNT - 1; isa >= 0; isa--) {
        if (!works[isa].kernel)
            continue;
        printf("%-28s %-12s ", name, qn_isa_name((qn_isa)isa));
        if (what == ROW_FAR)
            printf("one row  %7.1f GB/s\n",
                   (double)(panels * bytes) / best[isa] * 1e-9);
        else
            printf("tiles    %7.1f GMAC/s\n",
                   (double)(panels * QN_PANEL_ROWS * k * works[isa].rows *
                            works[isa].tile_count) /
                       best[isa] * 1e-9);
        free(works[isa].tiles);
    }
    free(panel);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        qn_panel_form form;
    } forms[] = {
        {"4 bits, groups of 32, zero",
         {.bits = 4, .group = 32, .zero = 8, .scale_type = QN_FLOAT16}},
        {"4 bits, groups of 32, bias",
         {.bits = 4, .group = 32, .biased = true, .scale_type = QN_FLOAT16}},
        {"4 bits, groups of 64, bias",
         {.bits = 4, .group = 64, .biased = true, .scale_type = QN_BFLOAT16}},
        {"4 bits, groups of 32, nested",
         {.bits = 4, .group = 32, .biased = true, .scaling = QN_PANEL_NESTED}},
        {"6 bits, groups of 16, nested",
         {.bits = 6, .group = 16, .zero = 32, .scaling = QN_PANEL_NESTED}},
        {"nvfp4",
         {.bits = 4,
          .group = 16,
          .zero = 12,
          .scaling = QN_PANEL_E4M3,
          .table = QN_PANEL_E2M1}},
        {"8 bits, groups of 32, zero",
         {.bits = 8, .group = 32, .zero = 128, .scale_type = QN_FLOAT16}},
    };
    long k = argc > 1 ? strtol(argv[1], NULL, 10) : 2048;
    only = argc > 2 ? argv[2] : NULL;
    if (k < QN_PANEL_STEP || k > 1 << 20 || k % 128) {
        fprintf(stderr,
                "usage: quern-bench-panels [K, a multiple of 128 [LEVEL]]\n");
        return 2;
    }
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int what = 0; what < KINDS; what++)
            compare(forms[f].form, forms[f].name, (size_t)k, (kind)what);
    return 0;
}
