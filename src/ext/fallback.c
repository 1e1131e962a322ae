/* fallback.c: the extensions of quern/ext.h over another library, made of
 * mlx_* calls.  Only in builds with -DQUERN_ENGINE=dlopen. */
#include "steps.h"

#include <quern/ext.h>

#include <stdbool.h>
#include <string.h>

/* One value for each of `columns` elements, from one per group of 16. */
static mlx_array spread(steps *c, mlx_array groups)
{
    mlx_array y, wide = cast(c, groups, MLX_FLOAT32);
    STEP(c, y, mlx_repeat_axis(to, wide, 16, -1, c->stream));
    return y;
}

/* Groups of 16 are beyond mlx_dequantize, but with scale 1 and bias 0 in
 * groups of 32 it gives the bare codes; the rest is arithmetic in float32. */
static mlx_array product_of_16(steps *c, mlx_array x, mlx_array w,
                               mlx_array scales, mlx_array biases, int bits)
{
    mlx_array factors = spread(c, scales), shifts = spread(c, biases);
    if (c->failed)
        return mlx_array_new();
    /* One value per group of 32: every 32nd of the spread ones. */
    int start[8] = {0}, stop[8], stride[8];
    size_t ndim = mlx_array_ndim(factors);
    if (ndim > 8) {
        _mlx_error(__FILE__, __LINE__,
                   "[quantized_matmul] more than 8 dimensions");
        c->failed = true;
        return mlx_array_new();
    }
    for (size_t i = 0; i < ndim; i++) {
        stop[i] = mlx_array_dim(factors, (int)i);
        stride[i] = i == ndim - 1 ? 32 : 1;
    }
    mlx_array some, one, zero, codes, scaled, values, turned, y;
    STEP(c, some,
         mlx_slice(to, factors, start, ndim, stop, ndim, stride, ndim,
                   c->stream));
    STEP(c, one, mlx_ones_like(to, some, c->stream));
    STEP(c, zero, mlx_zeros_like(to, some, c->stream));
    mlx_optional_int group = {32, true}, width = {bits, true};
    mlx_optional_dtype none = {MLX_FLOAT32, false};
    STEP(c, codes,
         mlx_dequantize(to, w, one, zero, group, width, "affine",
                        mlx_array_empty, none, c->stream));
    STEP(c, scaled, mlx_multiply(to, codes, factors, c->stream));
    STEP(c, values, mlx_add(to, scaled, shifts, c->stream));
    STEP(c, turned, mlx_swapaxes(to, values, -1, -2, c->stream));
    mlx_array wide = cast(c, x, MLX_FLOAT32);
    STEP(c, y, mlx_matmul(to, wide, turned, c->stream));
    return y;
}

static mlx_array product(steps *c, mlx_array x, mlx_array w, mlx_array scales,
                         mlx_array biases, int group_size, int bits,
                         const char *mode)
{
    if (group_size == 16 && mode && !strcmp(mode, "affine"))
        return product_of_16(c, x, w, scales, biases, bits);
    mlx_array y;
    mlx_optional_int group = {group_size, true}, width = {bits, true};
    STEP(c, y,
         mlx_quantized_matmul(to, x, w, scales, biases, true, group, width,
                              mode, c->stream));
    return y;
}

int quern_quantized_matmul(mlx_vector_array *res, const mlx_array x,
                           const mlx_vector_array w,
                           const mlx_vector_array scales,
                           const mlx_vector_array biases, int group_size,
                           int bits, const char *mode, const mlx_stream s)
{
    size_t count = mlx_vector_array_size(w);
    size_t nbiases = biases.ctx ? mlx_vector_array_size(biases) : 0;
    if (count < 1 || count > 3 || mlx_vector_array_size(scales) != count ||
        (nbiases && nbiases != count)) {
        _mlx_error(
            __FILE__, __LINE__,
            "[quantized_matmul] expected 1 to 3 matrices with scales and "
            "biases for each");
        return 1;
    }
    mlx_vector_array made = mlx_vector_array_new();
    bool failed = false;
    for (size_t i = 0; i < count && !failed; i++) {
        steps c = {.stream = s};
        mlx_array shift = nbiases ? element(&c, biases, i) : mlx_array_empty;
        mlx_array y = product(&c, x, element(&c, w, i), element(&c, scales, i),
                              shift, group_size, bits, mode);
        /* Wider scales have promoted the product. */
        if (!c.failed)
            y = cast(&c, y, mlx_array_dtype(x));
        if (!c.failed)
            c.failed = mlx_vector_array_append_value(made, y) != 0;
        failed = c.failed;
        finish(&c);
    }
    if (!failed)
        failed = mlx_vector_array_set(res, made) != 0;
    mlx_vector_array_free(made);
    return failed;
}

/* There is nothing to serve names from. */
int quern_kernel_register(const char *name, quern_kernel_fn fn)
{
    (void)fn;
    _mlx_error(__FILE__, __LINE__,
               "[kernel_register] this array library has no registry for "
               "kernel '%s'",
               name ? name : "");
    return 1;
}

/* ---- panels ----
 *
 * Their use is products in 8-bit integers, which another library hasn't. */

static int no_panels(void)
{
    _mlx_error(__FILE__, __LINE__,
               "[panels] this array library has no products in 8-bit integers");
    return 1;
}

bool quern_panel_available(void)
{
    return false;
}

int quern_panel_pack(mlx_array *res, quern_panel_form *form,
                     const mlx_vector_array w, const mlx_vector_array scales,
                     const mlx_vector_array biases, const mlx_stream s)
{
    (void)res, (void)form, (void)w, (void)scales, (void)biases, (void)s;
    return no_panels();
}

int quern_panel_pack_blocks(mlx_array *res, quern_panel_form *form, int type,
                            int cols, const quern_panel_blocks *w, int count,
                            void (*done)(void *ctx, const void *data,
                                         size_t size),
                            void *ctx, const mlx_stream s)
{
    (void)res, (void)form, (void)type, (void)cols, (void)w, (void)count;
    (void)done, (void)ctx, (void)s;
    return no_panels();
}

int quern_panel_matmul(mlx_vector_array *res, const mlx_array x,
                       const mlx_array panels, const quern_panel_form *form,
                       const quern_panel_steps *more, const mlx_stream s)
{
    (void)res, (void)x, (void)panels, (void)form, (void)more, (void)s;
    return no_panels();
}

int quern_panel_experts(mlx_vector_array *res, const mlx_array x,
                        const mlx_array panels, const quern_panel_form *form,
                        int experts, const mlx_array ids, quern_panel_gate gate,
                        const mlx_stream s)
{
    (void)res, (void)x, (void)panels, (void)form, (void)experts, (void)ids;
    (void)gate, (void)s;
    return no_panels();
}

int quern_gather_qmm(mlx_array *res, const mlx_array x, const mlx_array w,
                     const mlx_array scales, const mlx_array biases,
                     const mlx_array ids, int group_size, int bits,
                     const char *mode, const mlx_stream s)
{
    mlx_optional_int group = {group_size, true}, width = {bits, true};
    return mlx_gather_qmm(res, x, w, scales, biases, mlx_array_empty, ids, true,
                          group, width, mode, false, s);
}

int quern_panel_rows(mlx_array *res, const mlx_array panels,
                     const quern_panel_form *form, const mlx_array ids,
                     mlx_dtype dtype, const mlx_stream s)
{
    (void)res, (void)panels, (void)form, (void)ids, (void)dtype, (void)s;
    return no_panels();
}

/* ---- working memory: the library's own affair, but for the scores ---- */

size_t quern_kv_workspace(const quern_kv_form *form, mlx_dtype dtype, int heads,
                          int rope_dims, int rows, int keys)
{
    (void)dtype;
    if (form->kv_heads < 1 || heads < form->kv_heads || form->head_dim < 1 ||
        rope_dims < 0 || rows < 1 || keys < 1)
        return 0;
    size_t row = (size_t)keys + (rope_dims ? (size_t)form->head_dim : 0);
    return sizeof(float) * (size_t)heads * (size_t)rows * row;
}

size_t quern_matmul_workspace(mlx_dtype dtype, int rows, int cols, int outs)
{
    (void)dtype, (void)rows, (void)cols, (void)outs;
    return 0;
}

size_t quern_panel_workspace(const quern_panel_form *form, int rows)
{
    (void)form, (void)rows;
    return 0;
}
