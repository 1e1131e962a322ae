/* GGUF files of arrays: every kind of tensor and metadata, there and back. */
#include "memory.h"

#include "base/gguf.h"
#include "base/gguf_blocks.h"
#include "io/elements.h"
#include "io/gguf.h"

static char *dir, *path;

static int setup(void **state)
{
    dir = temp_dir_new();
    path = qn_path_join(dir, "x.gguf");
    return io_setup(state);
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    qn_free(path);
    return 0;
}

/* ---- files by hand ---- */

static void put_u32(qn_buf *out, uint32_t v)
{
    uint8_t bytes[4];
    qn_put_le32(bytes, v);
    qn_buf_add(out, bytes, 4);
}
static void put_u64(qn_buf *out, uint64_t v)
{
    uint8_t bytes[8];
    qn_put_le64(bytes, v);
    qn_buf_add(out, bytes, 8);
}
static void put_text(qn_buf *out, const char *text)
{
    put_u64(out, strlen(text));
    qn_buf_add_text(out, text);
}

typedef struct tensor {
    const char *name;
    int type, ndim;
    uint64_t dims[4]; /* fastest first */
    const void *data;
    size_t size;
} tensor;

/* Writes a file with these tensors and no metadata. */
static void make_file(const tensor *tensors, size_t count)
{
    qn_buf out = QN_BUF_INIT;
    size_t offset = 0;
    qn_buf_add_text(&out, "GGUF");
    put_u32(&out, 3);
    put_u64(&out, count);
    put_u64(&out, 0);
    for (size_t i = 0; i < count; i++) {
        put_text(&out, tensors[i].name);
        put_u32(&out, (uint32_t)tensors[i].ndim);
        for (int d = 0; d < tensors[i].ndim; d++)
            put_u64(&out, tensors[i].dims[d]);
        put_u32(&out, (uint32_t)tensors[i].type);
        put_u64(&out, offset);
        offset += (tensors[i].size + 31) / 32 * 32;
    }
    for (size_t i = 0; i <= count; i++) {
        while (out.size % 32)
            qn_buf_add_char(&out, 0);
        if (i < count)
            qn_buf_add(&out, tensors[i].data, tensors[i].size);
    }
    check_status(qn_file_write_atomic(path, out.data, out.size), QN_OK);
    qn_buf_free(&out);
}

static qn_gguf_contents load_ok(void)
{
    qn_gguf_contents c;
    check_status(qn_gguf_load(&c, path, test_stream()), QN_OK);
    return c;
}

static qn_array *get(const qn_gguf_contents *c, const char *name)
{
    const qn_map_value *slot = qn_map_get(c->arrays, qn_named_key(name));
    if (!slot)
        print_error("no array %s\n", name);
    assert_non_null(slot);
    return slot->ptr;
}

static const qn_meta *get_meta(const qn_gguf_contents *c, const char *name)
{
    const qn_map_value *slot = qn_map_get(c->metadata, qn_named_key(name));
    assert_non_null(slot);
    return slot->ptr;
}

/* ---- loading ---- */

static void test_plain_types_keep_their_type(void **state)
{
    (void)state;
    static const struct {
        int type;
        qn_dtype dtype;
    } types[] = {
        {QN_GGUF_F32_T, QN_FLOAT32},   {QN_GGUF_F16_T, QN_FLOAT16},
        {QN_GGUF_BF16_T, QN_BFLOAT16}, {QN_GGUF_F64_T, QN_FLOAT64},
        {QN_GGUF_I8_T, QN_INT8},       {QN_GGUF_I16_T, QN_INT16},
        {QN_GGUF_I32_T, QN_INT32},     {QN_GGUF_I64_T, QN_INT64},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        qn_array *wanted = patterned(types[i].dtype, SHAPE(2, 3)), *dot;
        const tensor tensors[] = {{"t",
                                   types[i].type,
                                   2,
                                   {3, 2},
                                   qn_array_data(wanted),
                                   qn_array_nbytes(wanted)},
                                  {"none", types[i].type, 2, {3, 0}, "", 0},
                                  {"dot",
                                   types[i].type,
                                   0,
                                   {0},
                                   qn_array_data(wanted),
                                   qn_dtype_size(types[i].dtype)}};
        make_file(tensors, 3);
        qn_gguf_contents c = load_ok();
        assert_int_equal(qn_map_size(c.arrays), 3);
        assert_false(qn_array_ready(get(&c, "t")));
        check_same(get(&c, "t"), wanted);
        dot = get(&c, "dot");
        check_status(qn_eval(&dot, 1), QN_OK);
        assert_int_equal(dot->ndim, 0);
        assert_int_equal(get(&c, "none")->size, 0);
        qn_gguf_contents_free(&c);
        qn_array_unref(wanted);
    }
}

/* Random blocks of a type, all with a small scale. */
static uint8_t *random_blocks(int type, size_t count, size_t *size)
{
    size_t bytes, elements;
    assert_true(qn_gguf_type_block(type, &bytes, &elements));
    *size = bytes * count;
    uint8_t *blocks = malloc(*size);
    assert_non_null(blocks);
    uint32_t x = 12345;
    for (size_t i = 0; i < *size; i++) {
        x = x * 1664525 + 1013904223;
        blocks[i] = (uint8_t)(x >> 24);
    }
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < 4; at += 2) {
            uint16_t half = qn_f32_to_f16(0.25f + (float)(i % 7) / 64);
            memcpy(blocks + i * bytes + at, &half, 2);
        }
    return blocks;
}

static void test_groups_of_32_come_packed(void **state)
{
    (void)state;
    static const int types[] = {QN_GGUF_Q4_0_T, QN_GGUF_Q4_1_T, QN_GGUF_Q8_0_T};
    enum { ROWS = 700, GROUPS = 3, BLOCKS = ROWS * GROUPS }; /* > one chunk */
    for (int i = 0; i < 3; i++) {
        size_t size;
        uint8_t *blocks = random_blocks(types[i], BLOCKS, &size);
        const tensor tensors[] = {
            {"a.weight", types[i], 2, {32 * GROUPS, ROWS}, blocks, size},
            {"b", types[i], 1, {32 * BLOCKS}, blocks, size}};
        make_file(tensors, 2);
        qn_gguf_contents c = load_ok();
        assert_int_equal(qn_map_size(c.arrays), 6);
        qn_array *w = get(&c, "a.weight"), *s = get(&c, "a.scales");
        qn_array *b = get(&c, "a.biases"), *flat = get(&c, "b");
        int bits = qn_gguf_group_bits(types[i]);
        assert_int_equal(w->dtype, QN_UINT32);
        assert_int_equal(s->dtype, QN_FLOAT16);
        assert_int_equal(b->dtype, QN_FLOAT16);
        assert_true(w->shape[0] == ROWS && w->shape[1] == GROUPS * bits);
        assert_true(s->shape[0] == ROWS && s->shape[1] == GROUPS);
        assert_true(b->shape[0] == ROWS && b->shape[1] == GROUPS);
        assert_true(flat->ndim == 1 && flat->shape[0] == BLOCKS * bits);
        /* Asked for by themselves: reading one reads all three. */
        check_status(qn_eval(&s, 1), QN_OK);
        assert_true(qn_array_ready(w) && qn_array_ready(b));
        qn_gguf_contents_free(&c);

        c = load_ok();
        flat = get(&c, "b");
        s = get(&c, "b.scales");
        b = get(&c, "b.biases");
        check_status(qn_eval(&flat, 1), QN_OK);
        uint32_t *words = malloc((size_t)BLOCKS * 4 * (size_t)bits);
        uint16_t *scales = malloc(2 * BLOCKS), *biases = malloc(2 * BLOCKS);
        assert_true(words && scales && biases);
        qn_gguf_group_pack(words, scales, biases, types[i], blocks, BLOCKS);
        assert_memory_equal(qn_array_data(flat), words,
                            (size_t)BLOCKS * 4 * (size_t)bits);
        assert_memory_equal(qn_array_data(s), scales, 2 * BLOCKS);
        assert_memory_equal(qn_array_data(b), biases, 2 * BLOCKS);
        free(words);
        free(scales);
        free(biases);
        qn_gguf_contents_free(&c);
        free(blocks);
    }
}

static void test_other_packed_types_come_as_float16(void **state)
{
    (void)state;
    static const int types[] = {
        QN_GGUF_Q5_0_T,   QN_GGUF_Q5_1_T, QN_GGUF_Q2_K_T, QN_GGUF_Q3_K_T,
        QN_GGUF_Q4_K_T,   QN_GGUF_Q5_K_T, QN_GGUF_Q6_K_T, QN_GGUF_IQ4_NL_T,
        QN_GGUF_IQ4_XS_T, QN_GGUF_MXFP4_T};
    enum { BLOCKS = 1026 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t size, bytes, elements;
        qn_gguf_type_block(types[i], &bytes, &elements);
        uint8_t *blocks = random_blocks(types[i], BLOCKS, &size);
        const tensor t = {"t.weight", types[i], 2, {2 * elements, BLOCKS / 2},
                          blocks,     size};
        make_file(&t, 1);
        qn_gguf_contents c = load_ok();
        assert_int_equal(qn_map_size(c.arrays), 1);
        qn_array *a = get(&c, "t.weight");
        assert_int_equal(a->dtype, QN_FLOAT16);
        assert_true(a->shape[0] == BLOCKS / 2 &&
                    a->shape[1] == 2 * (int)elements);
        check_status(qn_eval(&a, 1), QN_OK);
        const uint16_t *halves = qn_array_data(a);
        for (size_t b = 0; b < BLOCKS; b++) {
            float values[QN_GGUF_BLOCK_MAX];
            qn_gguf_expand(values, types[i], blocks + b * bytes);
            for (size_t j = 0; j < elements; j++)
                assert_int_equal(*halves++, qn_f32_to_f16(values[j]));
        }
        qn_gguf_contents_free(&c);
        free(blocks);
    }
}

static void test_what_cannot_be_an_array_is_refused(void **state)
{
    (void)state;
    static const uint8_t zeros[256];
    const struct {
        tensor t[2];
        const char *part;
        qn_status status;
    } cases[] = {
        {{{"t", QN_GGUF_TQ2_0_T, 1, {256}, zeros, 66}},
         "tensor \"t\" has the type TQ2_0",
         QN_E_UNSUPPORTED},
        {{{"t", 99, 1, {32}, zeros, 32}},
         "\"t\": expected a known tensor type, found 99",
         QN_E_UNSUPPORTED},
        {{{"t.weight", QN_GGUF_Q4_0_T, 1, {32}, zeros, 18},
          {"t.biases", QN_GGUF_F16_T, 1, {1}, zeros, 2}},
         "one array named \"t.biases\"",
         QN_E_FORMAT},
        {{{"t", QN_GGUF_I8_T, 2, {0, 1ull << 31}, zeros, 0}},
         "t: expected dimensions of at most",
         QN_E_FORMAT},
        {{{"t", QN_GGUF_F32_T, 1, {1ull << 40}, zeros, 4}},
         "found only",
         QN_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_gguf_contents c = {0};
        make_file(cases[i].t, cases[i].t[1].name ? 2 : 1);
        qn_error_clear();
        check_error(qn_gguf_load(&c, path, test_stream()), cases[i].status,
                    cases[i].part);
        assert_string_equal(qn_error_where(), path);
        assert_null(c.arrays);
    }
    qn_gguf_contents c = {0};
    check_error(qn_gguf_load(&c, dir, test_stream()), QN_E_IO,
                "[load_gguf] Failed to open");
    check_error(qn_gguf_load(&c, "/no/such/file.gguf", test_stream()),
                QN_E_NOTFOUND, "[load_gguf] Failed to open");
    check_status(qn_file_write_atomic(path, "", 0), QN_OK);
    check_error(qn_gguf_load(&c, path, test_stream()), QN_E_FORMAT,
                "magic number");
    assert_null(c.arrays);
}

/* ---- there and back ---- */

static void set_array(qn_gguf_contents *c, const char *name, qn_array *array)
{
    check_status(qn_gguf_set_array(c, name, array), QN_OK);
}

static void set_numbers(qn_gguf_contents *c, const char *name, qn_array *array)
{
    check_status(qn_gguf_set_meta(c, name, qn_meta_of_array(array)), QN_OK);
}

static const qn_str texts[] = {{"one", 3}, {"", 0}, {"\xe6\xa8\xa1", 3}};

static qn_gguf_contents sample(void)
{
    qn_gguf_contents c;
    check_status(qn_gguf_contents_new(&c), QN_OK);
    set_array(&c, "f32", patterned(QN_FLOAT32, SHAPE(2, 3)));
    set_array(&c, "f16", strided(patterned(QN_FLOAT16, SHAPE(2, 3, 4))));
    set_array(&c, "i8", patterned(QN_INT8, SHAPE(7)));
    set_array(&c, "i16", patterned(QN_INT16, SCALAR));
    set_array(&c, "i32", patterned(QN_INT32, SHAPE(0, 3)));
    static const qn_dtype numbers[] = {
        QN_BOOL,  QN_UINT8,  QN_INT8,  QN_UINT16,  QN_INT16,  QN_UINT32,
        QN_INT32, QN_UINT64, QN_INT64, QN_FLOAT32, QN_FLOAT64};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char name[64];
        const char *type = qn_dtype_name(numbers[i]);
        snprintf(name, sizeof name, "one.%s", type);
        /* Negative where the type has a sign. */
        qn_array *one = patterned(numbers[i], SCALAR);
        memset(qn_array_data(one), numbers[i] == QN_BOOL ? 1 : 0xbf,
               qn_array_itemsize(one));
        set_numbers(&c, name, one);
        snprintf(name, sizeof name, "many.%s", type);
        set_numbers(&c, name, strided(patterned(numbers[i], SHAPE(5))));
        snprintf(name, sizeof name, "none.%s", type);
        set_numbers(&c, name, patterned(numbers[i], SHAPE(0)));
    }
    check_status(qn_gguf_set_meta(&c, "text", qn_meta_of_text(texts[2])),
                 QN_OK);
    check_status(qn_gguf_set_meta(&c, "texts", qn_meta_of_texts(texts, 3)),
                 QN_OK);
    check_status(qn_gguf_set_meta(&c, "no texts", qn_meta_of_texts(NULL, 0)),
                 QN_OK);
    return c;
}

static void check_same_contents(const qn_gguf_contents *found,
                                const qn_gguf_contents *wanted)
{
    assert_int_equal(qn_map_size(found->arrays), qn_map_size(wanted->arrays));
    for (size_t i = 0; i < qn_map_size(wanted->arrays); i++)
        check_same(get(found, qn_map_key_at(wanted->arrays, i).data),
                   qn_map_value_at(wanted->arrays, i)->ptr);
    assert_int_equal(qn_map_size(found->metadata),
                     qn_map_size(wanted->metadata));
    for (size_t i = 0; i < qn_map_size(wanted->metadata); i++) {
        const qn_meta *w = qn_map_value_at(wanted->metadata, i)->ptr;
        const qn_meta *f =
            get_meta(found, qn_map_key_at(wanted->metadata, i).data);
        assert_int_equal(f->kind, w->kind);
        assert_int_equal(f->count, w->count);
        for (size_t j = 0; j < w->count; j++)
            assert_string_equal(f->texts[j], w->texts[j]);
        if (w->kind == QN_META_ARRAY)
            check_same(f->array, w->array);
    }
}

static void test_everything_comes_back(void **state)
{
    (void)state;
    static const int alignments[] = {0, 8, 64, 8192};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        qn_gguf_contents c = sample();
        if (i)
            set_numbers(&c, "general.alignment",
                        array_of(i == 1 ? QN_INT64 : QN_UINT32,
                                 VALUES(alignments[i]), SCALAR));
        check_status(qn_gguf_save(path, &c), QN_OK);
        qn_gguf_contents back = load_ok();
        check_same_contents(&back, &c);
        qn_gguf_contents_free(&back);
        qn_gguf_contents_free(&c);
    }
}

static void test_a_name_has_its_last_value(void **state)
{
    (void)state;
    qn_gguf_contents c = sample();
    size_t count = qn_map_size(c.arrays);
    qn_array *a = patterned(QN_INT8, SHAPE(1));
    set_array(&c, "f32", qn_array_ref(a));
    assert_int_equal(qn_map_size(c.arrays), count);
    assert_ptr_equal(get(&c, "f32"), a);
    check_status(qn_gguf_set_meta(&c, "texts", qn_meta_of_text(texts[0])),
                 QN_OK);
    assert_int_equal(get_meta(&c, "texts")->kind, QN_META_TEXT);
    check_status(qn_gguf_set_array(&c, "f32", NULL), QN_E_NOMEM);
    check_status(qn_gguf_set_meta(&c, "texts", NULL), QN_E_NOMEM);
    qn_array_unref(a);
    qn_gguf_contents_free(&c);
}

static void test_a_file_is_saved_over_itself(void **state)
{
    (void)state;
    qn_gguf_contents wanted = sample();
    check_status(qn_gguf_save(path, &wanted), QN_OK);
    qn_gguf_contents c = load_ok(), other = load_ok();
    check_status(qn_gguf_save(path, &c), QN_OK);
    check_same_contents(&other, &wanted);
    qn_gguf_contents_free(&other);
    other = load_ok();
    check_same_contents(&other, &wanted);
    qn_gguf_contents_free(&other);
    qn_gguf_contents_free(&c);
    qn_gguf_contents_free(&wanted);
}

static void test_what_the_format_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const uint8_t before[] = "before";
    check_status(qn_file_write_atomic(path, before, 6), QN_OK);
    static const qn_dtype tensors[] = {QN_BOOL,    QN_UINT8,    QN_UINT16,
                                       QN_UINT32,  QN_UINT64,   QN_INT64,
                                       QN_FLOAT64, QN_BFLOAT16, QN_COMPLEX64};
    qn_gguf_contents c;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        check_status(qn_gguf_contents_new(&c), QN_OK);
        set_array(&c, "w", patterned(tensors[i], SHAPE(2)));
        check_error(qn_gguf_save(path, &c), QN_E_ARG, "is not supported");
        assert_non_null(strstr(qn_error_text(), qn_dtype_name(tensors[i])));
        qn_gguf_contents_free(&c);
    }
    const struct {
        const char *key;
        qn_array *value;
        const char *part;
    } metadata[] = {
        {"k", patterned(QN_FLOAT16, SCALAR), "array type float16"},
        {"k", patterned(QN_BFLOAT16, SHAPE(2)), "array type bfloat16"},
        {"k", patterned(QN_COMPLEX64, SHAPE(2)), "array type complex64"},
        {"k", patterned(QN_INT32, SHAPE(1, 2)), "more than one dimension"},
        {"general.alignment", array_of(QN_UINT32, VALUES(24), SCALAR),
         "power of two"},
        {"general.alignment", array_of(QN_UINT32, VALUES(4), SCALAR),
         "power of two"},
        {"general.alignment", array_of(QN_INT32, VALUES(-64), SCALAR),
         "power of two"},
        {"general.alignment", array_of(QN_UINT32, VALUES(64), SHAPE(1)),
         "power of two"},
        {"general.alignment", array_of(QN_FLOAT32, VALUES(64), SCALAR),
         "power of two"},
    };
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++) {
        check_status(qn_gguf_contents_new(&c), QN_OK);
        set_numbers(&c, metadata[i].key, metadata[i].value);
        check_error(qn_gguf_save(path, &c), QN_E_ARG, metadata[i].part);
        qn_gguf_contents_free(&c);
    }
    check_status(qn_gguf_contents_new(&c), QN_OK);
    set_array(&c, "w", patterned(QN_INT8, SHAPE(1, 1, 1, 1, 1)));
    check_error(qn_gguf_save(path, &c), QN_E_ARG, "at most 4 dimensions");
    qn_gguf_contents_free(&c);

    char *text;
    check_status(qn_file_read(&text, NULL, path, 100), QN_OK);
    assert_string_equal(text, "before");
    qn_free(text);

    c = sample();
    check_error(qn_gguf_save("/no/such/place.gguf", &c), QN_E_NOTFOUND,
                "[save_gguf] Failed to open");
    qn_gguf_contents_free(&c);
}

static void test_truncated_files_are_refused(void **state)
{
    (void)state;
    qn_gguf_contents c;
    check_status(qn_gguf_contents_new(&c), QN_OK);
    set_array(&c, "w", patterned(QN_INT16, SHAPE(16)));
    check_status(qn_gguf_set_meta(&c, "k", qn_meta_of_texts(texts, 3)), QN_OK);
    check_status(qn_gguf_save(path, &c), QN_OK);
    qn_gguf_contents_free(&c);
    char *bytes;
    size_t size;
    check_status(qn_file_read(&bytes, &size, path, 1000), QN_OK);
    for (size_t cut = 0; cut < size; cut++) {
        qn_gguf_contents none = {0};
        temp_write(dir, "x.gguf", bytes, cut);
        check_status(qn_gguf_load(&none, path, test_stream()), QN_E_FORMAT);
        assert_null(none.arrays);
    }
    /* Cut while it is still to be read: an error, not a signal. */
    temp_write(dir, "x.gguf", bytes, size);
    c = load_ok();
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    qn_array *w = get(&c, "w");
    check_error(qn_eval(&w, 1), QN_E_IO, "(read 31 instead)");
    qn_gguf_contents_free(&c);
    qn_free(bytes);
}

static qn_status use_all(void)
{
    qn_gguf_contents c = {0}, back = {0};
    qn_status status = qn_gguf_load(&c, path, test_stream());
    if (!status)
        status = qn_gguf_set_meta(&c, "t", qn_meta_of_texts(texts, 3));
    char other[512];
    snprintf(other, sizeof other, "%s/each.gguf", dir);
    if (!status) {
        const qn_map_value *slot =
            qn_map_get(c.arrays, qn_named_key("p.weight"));
        qn_array *packed = slot->ptr;
        status = qn_eval(&packed, 1);
    }
    if (!status)
        status = qn_gguf_contents_new(&back);
    for (size_t i = 0; !status && i < qn_map_size(c.arrays); i++) {
        qn_array *a = qn_map_value_at(c.arrays, i)->ptr;
        if (a->dtype == QN_FLOAT16)
            status = qn_gguf_set_array(&back, qn_map_key_at(c.arrays, i).data,
                                       qn_array_ref(a));
    }
    if (!status)
        status = qn_gguf_set_meta(
            &back, "n",
            qn_meta_of_array(qn_array_ref(qn_map_value_at(c.arrays, 0)->ptr)));
    if (!status) {
        qn_gguf_contents saved = {back.arrays, c.metadata};
        status = qn_gguf_save(other, &saved);
    }
    qn_gguf_contents_free(&c);
    qn_gguf_contents_free(&back);
    return status;
}

static void test_each_allocation_may_fail(void **state)
{
    (void)state;
    test_stream();
    static const uint8_t zeros[256];
    const tensor tensors[] = {
        {"p.weight", QN_GGUF_Q4_0_T, 1, {32}, zeros, 18},
        {"q", QN_GGUF_Q2_K_T, 1, {256}, zeros, 84},
        {"r", QN_GGUF_F16_T, 1, {4}, zeros, 8},
    };
    make_file(tensors, 3);
    each_alloc_may_fail(use_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_types_keep_their_type),
        cmocka_unit_test(test_groups_of_32_come_packed),
        cmocka_unit_test(test_other_packed_types_come_as_float16),
        cmocka_unit_test(test_what_cannot_be_an_array_is_refused),
        cmocka_unit_test(test_everything_comes_back),
        cmocka_unit_test(test_a_name_has_its_last_value),
        cmocka_unit_test(test_a_file_is_saved_over_itself),
        cmocka_unit_test(test_what_the_format_cannot_hold_is_refused),
        cmocka_unit_test(test_truncated_files_are_refused),
        cmocka_unit_test(test_each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
