/* tiny.h: random models of the llama family, made at test time by a seeded
 * rule, written in every form that the loader reads, and computed the slow way
 * in double precision as what the result has to be. */
#ifndef QN_TEST_TINY_H
#define QN_TEST_TINY_H

#include "support/qn_test.h"

#include "base/f16.h"
#include "base/gguf.h"
#include "base/gguf_blocks.h"

#include <math.h>

enum { TINY_TENSORS = 64, TINY_MAX = 256 };

typedef struct tiny_tensor {
    char name[64];  /* as in a model directory */
    int rows, cols; /* cols 0: a vector */
    float *data;
} tiny_tensor;

typedef struct tiny {
    int hidden, layers, inter, heads, kv_heads, head_dim, vocab;
    bool tied, attention_bias, mlp_bias;
    int window; /* of every layer, 0: none */
    double eps;
    /* rotary positions */
    double base, position_scale, mscale;
    double periods[TINY_MAX]; /* 0 in the first: base^(2i/d) */
    /* further members of config.json, each followed by a comma */
    const char *config;
    tiny_tensor tensors[TINY_TENSORS];
    int count;
} tiny;

/* A model of two layers with grouped heads. */
static inline tiny tiny_default(void)
{
    return (tiny){.hidden = 64,
                  .layers = 2,
                  .inter = 96,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 16,
                  .vocab = 96,
                  .tied = true,
                  .eps = 1e-5,
                  .base = 10000,
                  .position_scale = 1,
                  .mscale = 1,
                  .config = ""};
}

/* ---- weights ---- */

static inline uint32_t tiny_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static inline size_t tiny_size(const tiny_tensor *t)
{
    return (size_t)t->rows * (size_t)(t->cols ? t->cols : 1);
}

static inline void tiny_add(tiny *m, int rows, int cols, const char *name)
{
    assert_true(m->count < TINY_TENSORS);
    tiny_tensor *t = &m->tensors[m->count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rows = rows;
    t->cols = cols;
    t->data = malloc(tiny_size(t) * sizeof(float));
    assert_non_null(t->data);
    /* The name is the seed, so that a tensor does not depend on others. */
    uint32_t state = 2166136261u;
    for (const char *c = name; *c; c++)
        state = (state ^ (uint8_t)*c) * 16777619u;
    state = state ? state : 1;
    bool norm = strstr(name, "norm") != NULL;
    double scale = cols ? 2.5 / sqrt(cols) : 0.2;
    for (size_t i = 0; i < tiny_size(t); i++) {
        double u = tiny_random(&state) / 4294967296.0 - 0.5;
        t->data[i] = (float)(norm ? 1 + 0.4 * u : 2 * scale * u);
    }
}

static inline void tiny_make(tiny *m)
{
    char name[64];
    int q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    tiny_add(m, m->vocab, m->hidden, "model.embed_tokens.weight");
    tiny_add(m, m->hidden, 0, "model.norm.weight");
    if (!m->tied)
        tiny_add(m, m->vocab, m->hidden, "lm_head.weight");
    for (int i = 0; i < m->layers; i++) {
        const struct {
            const char *module;
            int rows, cols;
            bool bias;
        } rows[] = {
            {"input_layernorm", m->hidden, 0, false},
            {"post_attention_layernorm", m->hidden, 0, false},
            {"self_attn.q_proj", q, m->hidden, m->attention_bias},
            {"self_attn.k_proj", kv, m->hidden, m->attention_bias},
            {"self_attn.v_proj", kv, m->hidden, m->attention_bias},
            {"self_attn.o_proj", m->hidden, q, m->attention_bias},
            {"mlp.gate_proj", m->inter, m->hidden, m->mlp_bias},
            {"mlp.up_proj", m->inter, m->hidden, m->mlp_bias},
            {"mlp.down_proj", m->hidden, m->inter, m->mlp_bias},
        };
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", i,
                     rows[r].module);
            tiny_add(m, rows[r].rows, rows[r].cols, name);
            snprintf(name, sizeof name, "model.layers.%d.%s.bias", i,
                     rows[r].module);
            if (rows[r].bias)
                tiny_add(m, rows[r].rows, 0, name);
        }
    }
}

static inline void tiny_free(tiny *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->tensors[i].data);
    m->count = 0;
}

static inline const float *tiny_get(const tiny *m, const char *fmt, int layer)
{
    char name[64];
    snprintf(name, sizeof name, fmt, layer);
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->tensors[i].name, name))
            return m->tensors[i].data;
    return NULL;
}

/* ---- the slow way ---- */

static inline void tiny_norm(double *out, const double *x, const float *weight,
                             int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static inline void tiny_linear(double *out, const tiny *m, const char *module,
                               int layer, const double *x, int rows, int cols)
{
    char name[64];
    snprintf(name, sizeof name, "model.layers.%%d.%s.weight", module);
    const float *w = tiny_get(m, name, layer);
    snprintf(name, sizeof name, "model.layers.%%d.%s.bias", module);
    const float *bias = tiny_get(m, name, layer);
    for (int r = 0; r < rows; r++) {
        out[r] = bias ? bias[r] : 0;
        for (int c = 0; c < cols; c++)
            out[r] += (double)w[(size_t)r * (size_t)cols + (size_t)c] * x[c];
    }
}

static inline void tiny_turn(const tiny *m, double *x, int heads, int position)
{
    int half = m->head_dim / 2;
    for (int h = 0; h < heads; h++, x += m->head_dim)
        for (int i = 0; i < half; i++) {
            double period =
                m->periods[0] ? m->periods[i] : pow(m->base, (double)i / half);
            double angle = position * m->position_scale / period;
            double a = x[i] * m->mscale, b = x[i + half] * m->mscale;
            x[i] = a * cos(angle) - b * sin(angle);
            x[i + half] = a * sin(angle) + b * cos(angle);
        }
}

/* Attention of position t over the keys and values of one layer. */
static inline void tiny_attend(const tiny *m, double *out, const double *q,
                               const double *keys, const double *values, int t)
{
    int d = m->head_dim, kv = m->kv_heads * d;
    int first = m->window && t - m->window + 1 > 0 ? t - m->window + 1 : 0;
    double *p = malloc((size_t)(t + 1) * sizeof *p);
    assert_non_null(p);
    for (int h = 0; h < m->heads; h++) {
        int g = h / (m->heads / m->kv_heads);
        double sum = 0;
        for (int j = first; j <= t; j++) {
            double score = 0;
            for (int i = 0; i < d; i++)
                score += q[h * d + i] * keys[j * kv + g * d + i];
            p[j] = exp(score / sqrt(d));
            sum += p[j];
        }
        for (int i = 0; i < d; i++) {
            double y = 0;
            for (int j = first; j <= t; j++)
                y += p[j] / sum * values[j * kv + g * d + i];
            out[h * d + i] = y;
        }
    }
    free(p);
}

/* Logits of all positions, [count, vocab]; the caller frees them. */
static inline double *tiny_logits(const tiny *m, const int32_t *ids, int count)
{
    int q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    size_t cache = (size_t)m->layers * (size_t)count * (size_t)kv;
    double *keys = calloc(cache, sizeof *keys);
    double *values = calloc(cache, sizeof *values);
    double *logits = calloc((size_t)count * (size_t)m->vocab, sizeof *logits);
    double x[TINY_MAX], y[TINY_MAX], a[TINY_MAX], b[2 * TINY_MAX],
        c[2 * TINY_MAX];
    assert_true(m->hidden <= TINY_MAX && q <= TINY_MAX &&
                m->inter <= 2 * TINY_MAX);
    assert_true(keys && values && logits);
    const float *embed = tiny_get(m, "model.embed_tokens.weight", 0);
    const float *head = m->tied ? embed : tiny_get(m, "lm_head.weight", 0);
    for (int t = 0; t < count; t++) {
        for (int i = 0; i < m->hidden; i++)
            x[i] = embed[ids[t] * m->hidden + i];
        for (int l = 0; l < m->layers; l++) {
            double *k = keys + (size_t)l * (size_t)count * (size_t)kv;
            double *v = values + (size_t)l * (size_t)count * (size_t)kv;
            tiny_norm(y, x,
                      tiny_get(m, "model.layers.%d.input_layernorm.weight", l),
                      m->hidden, m->eps);
            tiny_linear(a, m, "self_attn.q_proj", l, y, q, m->hidden);
            tiny_linear(k + t * kv, m, "self_attn.k_proj", l, y, kv, m->hidden);
            tiny_linear(v + t * kv, m, "self_attn.v_proj", l, y, kv, m->hidden);
            tiny_turn(m, a, m->heads, t);
            tiny_turn(m, k + t * kv, m->kv_heads, t);
            tiny_attend(m, b, a, k, v, t);
            tiny_linear(y, m, "self_attn.o_proj", l, b, m->hidden, q);
            for (int i = 0; i < m->hidden; i++)
                x[i] += y[i];
            tiny_norm(y, x,
                      tiny_get(m,
                               "model.layers.%d.post_attention_layernorm"
                               ".weight",
                               l),
                      m->hidden, m->eps);
            tiny_linear(b, m, "mlp.gate_proj", l, y, m->inter, m->hidden);
            tiny_linear(c, m, "mlp.up_proj", l, y, m->inter, m->hidden);
            for (int i = 0; i < m->inter; i++)
                c[i] *= b[i] / (1 + exp(-b[i]));
            tiny_linear(y, m, "mlp.down_proj", l, c, m->hidden, m->inter);
            for (int i = 0; i < m->hidden; i++)
                x[i] += y[i];
        }
        tiny_norm(y, x, tiny_get(m, "model.norm.weight", 0), m->hidden, m->eps);
        for (int r = 0; r < m->vocab; r++)
            for (int i = 0; i < m->hidden; i++)
                logits[t * m->vocab + r] +=
                    (double)head[r * m->hidden + i] * y[i];
    }
    free(keys);
    free(values);
    return logits;
}

/* ---- model directories ---- */

static inline void tiny_write_config(const tiny *m, const char *dir)
{
    qn_buf out = QN_BUF_INIT;
    qn_buf_printf(
        &out,
        "{\"model_type\": \"llama\", \"hidden_size\": %d, "
        "\"num_hidden_layers\": %d, \"intermediate_size\": %d, "
        "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
        "\"head_dim\": %d, \"vocab_size\": %d, \"rms_norm_eps\": %g, %s"
        "\"max_position_embeddings\": 4096, \"attention_bias\": %s, "
        "\"mlp_bias\": %s, \"tie_word_embeddings\": %s}",
        m->hidden, m->layers, m->inter, m->heads, m->kv_heads, m->head_dim,
        m->vocab, m->eps, m->config, m->attention_bias ? "true" : "false",
        m->mlp_bias ? "true" : "false", m->tied ? "true" : "false");
    check_status(qn_buf_status(&out), QN_OK);
    temp_write(dir, "config.json", out.data, out.size);
    qn_buf_free(&out);
}

/* A safetensors file in the making. */
typedef struct tiny_file {
    qn_buf header, data;
} tiny_file;

static inline void tiny_put(tiny_file *f, const char *name, const char *dtype,
                            int rows, int cols, const void *data, size_t size)
{
    size_t begin = f->data.size;
    qn_buf_printf(&f->header, "%c\"%s\": {\"dtype\": \"%s\", \"shape\": [%d",
                  f->header.size ? ',' : '{', name, dtype, rows);
    if (cols)
        qn_buf_printf(&f->header, ", %d", cols);
    qn_buf_printf(&f->header, "], \"data_offsets\": [%zu, %zu]}", begin,
                  begin + size);
    qn_buf_add(&f->data, data, size);
}

static inline void tiny_finish(tiny_file *f, const char *dir, const char *name)
{
    qn_buf out = QN_BUF_INIT;
    uint8_t length[8];
    qn_buf_add_char(&f->header, '}');
    while (f->header.size % 8)
        qn_buf_add_char(&f->header, ' ');
    qn_put_le64(length, f->header.size);
    qn_buf_add(&out, length, 8);
    qn_buf_add_str(&out, qn_buf_str(&f->header));
    qn_buf_add_str(&out, qn_buf_str(&f->data));
    check_status(qn_buf_status(&out), QN_OK);
    temp_write(dir, name, out.data, out.size);
    qn_buf_free(&out);
    qn_buf_free(&f->header);
    qn_buf_free(&f->data);
}

/* Rounds the values to `dtype` ("F32", "F16", "BF16") and writes them. */
static inline void tiny_put_plain(tiny_file *f, tiny_tensor *t,
                                  const char *dtype)
{
    size_t n = tiny_size(t);
    if (!strcmp(dtype, "F32")) {
        tiny_put(f, t->name, dtype, t->rows, t->cols, t->data, 4 * n);
        return;
    }
    bool half = !strcmp(dtype, "F16");
    uint16_t *bits = malloc(2 * n);
    assert_non_null(bits);
    for (size_t i = 0; i < n; i++) {
        bits[i] = half ? qn_f32_to_f16(t->data[i]) : qn_f32_to_bf16(t->data[i]);
        t->data[i] = half ? qn_f16_to_f32(bits[i]) : qn_bf16_to_f32(bits[i]);
    }
    tiny_put(f, t->name, dtype, t->rows, t->cols, bits, 2 * n);
    free(bits);
}

/* Packs a matrix by least and greatest value of each group and writes words,
 * scales and biases; the tensor then has the packed values. */
static inline void tiny_put_affine(tiny_file *f, tiny_tensor *t, int bits,
                                   int group)
{
    size_t n = tiny_size(t), groups = n / (size_t)group;
    size_t words = n * (size_t)bits / 32;
    uint32_t *packed = calloc(words, sizeof *packed);
    float *scales = malloc(groups * sizeof *scales);
    float *biases = malloc(groups * sizeof *biases);
    assert_true(packed && scales && biases && t->cols % group == 0);
    for (size_t g = 0; g < groups; g++) {
        float *x = t->data + g * (size_t)group, low = x[0], high = x[0];
        for (int i = 0; i < group; i++) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
        scales[g] = (high - low) / (float)((1 << bits) - 1);
        biases[g] = low;
        for (int i = 0; i < group; i++) {
            unsigned code = (unsigned)lrintf((x[i] - low) / scales[g]);
            size_t at = (g * (size_t)group + (size_t)i) * (size_t)bits;
            for (int b = 0; b < bits; b++)
                packed[(at + (size_t)b) / 32] |= (code >> b & 1u)
                                                 << ((at + (size_t)b) % 32);
            x[i] = scales[g] * (float)code + biases[g];
        }
    }
    char name[80];
    snprintf(name, sizeof name, "%s", t->name);
    char *tail = strstr(name, ".weight");
    tiny_put(f, name, "U32", t->rows, t->cols * bits / 32, packed, 4 * words);
    memcpy(tail, ".scales", 8);
    tiny_put(f, name, "F32", t->rows, t->cols / group, scales, 4 * groups);
    memcpy(tail, ".biases", 8);
    tiny_put(f, name, "F32", t->rows, t->cols / group, biases, 4 * groups);
    free(packed);
    free(scales);
    free(biases);
}

/* The values of the formats with a sign, a few bits of exponent and a few of
 * mantissa. */
static inline float tiny_e2m1(unsigned code)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return (code & 8 ? -1 : 1) * values[code & 7];
}

static inline float tiny_e4m3(unsigned code)
{
    int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
    float value = exponent ? ldexpf(1 + mantissa / 8.0f, exponent - 7)
                           : ldexpf(mantissa / 8.0f, -6);
    return code & 128 ? -value : value;
}

/* Packs in groups of 32 with a power of two as scale: mode mxfp4 or mxfp8. */
static inline void tiny_put_mx(tiny_file *f, tiny_tensor *t, int bits)
{
    size_t n = tiny_size(t), groups = n / 32;
    uint32_t *packed = calloc(n * (size_t)bits / 32, sizeof *packed);
    uint8_t *scales = malloc(groups);
    unsigned codes = bits == 4 ? 16 : 256;
    float largest = bits == 4 ? 6 : 448;
    assert_true(packed && scales && t->cols % 32 == 0);
    for (size_t g = 0; g < groups; g++) {
        float *x = t->data + g * 32, top = 0;
        for (int i = 0; i < 32; i++)
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        int exponent = (int)ceilf(log2f(top / largest));
        scales[g] = (uint8_t)(exponent + 127);
        for (int i = 0; i < 32; i++) {
            unsigned best = 0;
            float least = INFINITY;
            for (unsigned code = 0; code < codes; code++) {
                if (bits == 8 && (code & 127) == 127)
                    continue; /* no number */
                float v = ldexpf(bits == 4 ? tiny_e2m1(code) : tiny_e4m3(code),
                                 exponent);
                if (fabsf(v - x[i]) < least) {
                    least = fabsf(v - x[i]);
                    best = code;
                }
            }
            x[i] =
                ldexpf(bits == 4 ? tiny_e2m1(best) : tiny_e4m3(best), exponent);
            size_t at = (g * 32 + (size_t)i) * (size_t)bits;
            packed[at / 32] |= best << (at % 32);
        }
    }
    char name[80];
    snprintf(name, sizeof name, "%s", t->name);
    tiny_put(f, name, "U32", t->rows, t->cols * bits / 32, packed,
             n * (size_t)bits / 8);
    memcpy(strstr(name, ".weight"), ".scales", 8);
    tiny_put(f, name, "U8", t->rows, t->cols / 32, scales, groups);
    free(packed);
    free(scales);
}

/* Writes config.json and model.safetensors in one dtype. */
static inline void tiny_write_dir(tiny *m, const char *dir, const char *dtype)
{
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    tiny_write_config(m, dir);
    for (int i = 0; i < m->count; i++)
        tiny_put_plain(&f, &m->tensors[i], dtype);
    tiny_finish(&f, dir, "model.safetensors");
}

/* The same with packed matrices, group 0 for mxfp4 and mxfp8; m->config must
 * say so. */
static inline void tiny_write_packed(tiny *m, const char *dir, int bits,
                                     int group)
{
    tiny_file f = {QN_BUF_INIT, QN_BUF_INIT};
    tiny_write_config(m, dir);
    for (int i = 0; i < m->count; i++)
        if (m->tensors[i].cols && !group)
            tiny_put_mx(&f, &m->tensors[i], bits);
        else if (m->tensors[i].cols)
            tiny_put_affine(&f, &m->tensors[i], bits, group);
        else
            tiny_put_plain(&f, &m->tensors[i], "F32");
    tiny_finish(&f, dir, "model.safetensors");
}

/* ---- GGUF files ---- */

static inline void tiny_le(qn_buf *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        qn_buf_add_char(out, (char)(value >> (8 * i)));
}

static inline void tiny_gguf_text(qn_buf *out, const char *text)
{
    tiny_le(out, strlen(text), 8);
    qn_buf_add_text(out, text);
}

static inline void tiny_gguf_u32(qn_buf *out, const char *key, uint32_t value)
{
    tiny_gguf_text(out, key);
    tiny_le(out, QN_GGUF_U32, 4);
    tiny_le(out, value, 4);
}

static inline void tiny_gguf_f32(qn_buf *out, const char *key, float value)
{
    tiny_gguf_text(out, key);
    tiny_le(out, QN_GGUF_F32, 4);
    tiny_le(out, qn_float_bits(value), 4);
}

static inline void tiny_gguf_str(qn_buf *out, const char *key, const char *text)
{
    tiny_gguf_text(out, key);
    tiny_le(out, QN_GGUF_STRING, 4);
    tiny_gguf_text(out, text);
}

/* One block of 32 values in its format; x becomes what the block holds. */
static inline void tiny_block(qn_buf *out, int type, float *x)
{
    float low = x[0], high = x[0], top = x[0];
    for (int i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    }
    int bits = type == QN_GGUF_Q8_0_T                             ? 8
               : type == QN_GGUF_Q5_0_T || type == QN_GGUF_Q5_1_T ? 5
                                                                  : 4;
    bool has_min = type == QN_GGUF_Q4_1_T || type == QN_GGUF_Q5_1_T;
    int zero = has_min ? 0 : 1 << (bits - 1), most = (1 << bits) - 1;
    float want = has_min ? (high - low) / (float)most
                         : (fabsf(top) + 1e-6f) / (float)(zero - 1);
    uint16_t d = qn_f32_to_f16(want), m = qn_f32_to_f16(low);
    float scale = qn_f16_to_f32(d), least = has_min ? qn_f16_to_f32(m) : 0;
    int codes[32];
    for (int i = 0; i < 32; i++) {
        long code = lrintf((x[i] - least) / scale) + zero;
        codes[i] = (int)(code < 0 ? 0 : code > most ? most : code);
        x[i] = scale * (float)(codes[i] - zero) + least;
    }
    tiny_le(out, d, 2);
    if (has_min)
        tiny_le(out, m, 2);
    if (bits == 8) {
        for (int i = 0; i < 32; i++)
            tiny_le(out, (uint8_t)(codes[i] - zero), 1);
        return;
    }
    uint32_t fifth = 0;
    for (int i = 0; i < 32; i++)
        fifth |= (uint32_t)(codes[i] >> 4 & 1) << i;
    if (bits == 5)
        tiny_le(out, fifth, 4);
    for (int i = 0; i < 16; i++)
        tiny_le(out, (uint64_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4),
                1);
}

/* One block of a K type or one with a table: integers that x decides, with
 * scales that give values below 0.1; x becomes what the block holds. */
static inline void tiny_other_block(qn_buf *out, int type, size_t bytes,
                                    float *x)
{
    static const struct {
        int type, d, dmin; /* where they stand; -1: none */
        float scale;
    } types[] = {
        {QN_GGUF_Q2_K_T, 80, 82, 0.0008f}, {QN_GGUF_Q3_K_T, 108, -1, 0.0003f},
        {QN_GGUF_Q4_K_T, 0, 2, 0.00006f},  {QN_GGUF_Q5_K_T, 0, 2, 0.00004f},
        {QN_GGUF_Q6_K_T, 208, -1, 1e-5f},  {QN_GGUF_IQ4_NL_T, 0, -1, 0.0008f},
        {QN_GGUF_IQ4_XS_T, 0, -1, 3e-5f},
    };
    uint8_t block[256];
    for (size_t i = 0; i < bytes; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        block[i] = (uint8_t)(bits * 2654435761u >> 24);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type != type)
            continue;
        uint16_t d = qn_f32_to_f16(types[i].scale);
        memcpy(block + types[i].d, &d, 2);
        if (types[i].dmin >= 0)
            memcpy(block + types[i].dmin, &d, 2);
    }
    if (type == QN_GGUF_MXFP4_T)
        block[0] = (uint8_t)(118 + block[0] % 4);
    qn_buf_add(out, block, bytes);
    qn_gguf_expand(x, type, block);
}

static inline void tiny_gguf_data(qn_buf *out, int type, float *x, size_t n)
{
    size_t bytes, elements;
    if (qn_gguf_expands(type) && !qn_gguf_group_bits(type) &&
        qn_gguf_type_block(type, &bytes, &elements)) {
        for (size_t i = 0; i < n; i += elements)
            tiny_other_block(out, type, bytes, x + i);
        return;
    }
    if (type == QN_GGUF_F32_T) {
        qn_buf_add(out, x, 4 * n);
        return;
    }
    if (type == QN_GGUF_F16_T || type == QN_GGUF_BF16_T) {
        for (size_t i = 0; i < n; i++) {
            bool half = type == QN_GGUF_F16_T;
            uint16_t b = half ? qn_f32_to_f16(x[i]) : qn_f32_to_bf16(x[i]);
            x[i] = half ? qn_f16_to_f32(b) : qn_bf16_to_f32(b);
            tiny_le(out, b, 2);
        }
        return;
    }
    for (size_t i = 0; i < n; i += 32)
        tiny_block(out, type, x + i);
}

/* "model.layers.1.self_attn.q_proj.weight" -> "blk.1.attn_q.weight". */
static inline void tiny_gguf_name(char *out, size_t size, const char *name)
{
    static const char *const names[][2] = {
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"rope_freqs", "rope_freqs"},
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
    };
    const char *tail = strrchr(name, '.');
    int layer = -1;
    sscanf(name, "model.layers.%d.", &layer);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(name, names[i][0]);
        if (!at || at + strlen(names[i][0]) != tail)
            continue;
        if (layer < 0)
            snprintf(out, size, "%s%s", names[i][1], tail);
        else
            snprintf(out, size, "blk.%d.%s%s", layer, names[i][1], tail);
        return;
    }
    fail_msg("no GGUF name for %s", name);
}

/* The rows of q and k as GGUF files of this family have them: each head's
 * halves are interleaved. */
static inline void tiny_interleave(float *data, int rows, int cols, int heads)
{
    int d = rows / heads, width = cols ? cols : 1;
    size_t bytes = (size_t)rows * (size_t)width * sizeof *data;
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    for (int h = 0; h < heads; h++)
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < d / 2; j++)
                memcpy(data + (size_t)(h * d + 2 * j + half) * (size_t)width,
                       copy +
                           (size_t)(h * d + half * d / 2 + j) * (size_t)width,
                       (size_t)width * sizeof *data);
    free(copy);
}

static inline void tiny_uninterleave(float *data, int rows, int cols, int heads)
{
    int d = rows / heads, width = cols ? cols : 1;
    size_t bytes = (size_t)rows * (size_t)width * sizeof *data;
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    for (int h = 0; h < heads; h++)
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < d / 2; j++)
                memcpy(data +
                           (size_t)(h * d + half * d / 2 + j) * (size_t)width,
                       copy + (size_t)(h * d + 2 * j + half) * (size_t)width,
                       (size_t)width * sizeof *data);
    free(copy);
}

/* Writes DIR/model.gguf with matrices of `type` and vectors of float32;
 * `extra` (may be NULL) holds `extra_count` further encoded keys. */
static inline void tiny_write_gguf(tiny *m, const char *dir, int type,
                                   const qn_buf *extra, int extra_count)
{
    qn_buf keys = QN_BUF_INIT, infos = QN_BUF_INIT, data = QN_BUF_INIT;
    tiny_gguf_str(&keys, "general.architecture", "llama");
    tiny_gguf_u32(&keys, "llama.context_length", 4096);
    tiny_gguf_u32(&keys, "llama.embedding_length", (uint32_t)m->hidden);
    tiny_gguf_u32(&keys, "llama.block_count", (uint32_t)m->layers);
    tiny_gguf_u32(&keys, "llama.feed_forward_length", (uint32_t)m->inter);
    tiny_gguf_u32(&keys, "llama.attention.head_count", (uint32_t)m->heads);
    tiny_gguf_u32(&keys, "llama.attention.head_count_kv",
                  (uint32_t)m->kv_heads);
    tiny_gguf_u32(&keys, "llama.attention.key_length", (uint32_t)m->head_dim);
    tiny_gguf_f32(&keys, "llama.attention.layer_norm_rms_epsilon",
                  (float)m->eps);
    tiny_gguf_f32(&keys, "llama.rope.freq_base", (float)m->base);
    tiny_gguf_text(&keys, "tokenizer.ggml.tokens");
    tiny_le(&keys, QN_GGUF_ARRAY, 4);
    tiny_le(&keys, QN_GGUF_STRING, 4);
    tiny_le(&keys, (uint64_t)m->vocab, 8);
    for (int i = 0; i < m->vocab; i++) {
        char token[16];
        snprintf(token, sizeof token, "t%d", i);
        tiny_gguf_text(&keys, token);
    }
    int key_count = 11 + extra_count;
    if (extra)
        qn_buf_add_str(&keys, qn_buf_str(extra));

    for (int i = 0; i < m->count; i++) {
        tiny_tensor *t = &m->tensors[i];
        int kind = t->cols ? type : QN_GGUF_F32_T;
        int heads = strstr(t->name, "q_proj")   ? m->heads
                    : strstr(t->name, "k_proj") ? m->kv_heads
                                                : 0;
        char name[64];
        tiny_gguf_name(name, sizeof name, t->name);
        tiny_gguf_text(&infos, name);
        tiny_le(&infos, t->cols ? 2 : 1, 4);
        if (t->cols)
            tiny_le(&infos, (uint64_t)t->cols, 8);
        tiny_le(&infos, (uint64_t)t->rows, 8);
        tiny_le(&infos, (uint64_t)kind, 4);
        while (data.size % 32)
            qn_buf_add_char(&data, 0);
        tiny_le(&infos, data.size, 8);
        if (heads)
            tiny_interleave(t->data, t->rows, t->cols, heads);
        tiny_gguf_data(&data, kind, t->data, tiny_size(t));
        if (heads)
            tiny_uninterleave(t->data, t->rows, t->cols, heads);
    }
    while (data.size % 32)
        qn_buf_add_char(&data, 0);

    qn_buf out = QN_BUF_INIT;
    qn_buf_add_text(&out, "GGUF");
    tiny_le(&out, 3, 4);
    tiny_le(&out, (uint64_t)m->count, 8);
    tiny_le(&out, (uint64_t)key_count, 8);
    qn_buf_add_str(&out, qn_buf_str(&keys));
    qn_buf_add_str(&out, qn_buf_str(&infos));
    while (out.size % 32)
        qn_buf_add_char(&out, 0);
    qn_buf_add_str(&out, qn_buf_str(&data));
    check_status(qn_buf_status(&out), QN_OK);
    temp_write(dir, "model.gguf", out.data, out.size);
    qn_buf_free(&out);
    qn_buf_free(&keys);
    qn_buf_free(&infos);
    qn_buf_free(&data);
}

#endif
