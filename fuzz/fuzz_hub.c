/* fuzz_hub.c: what the hub says of a repository, and references.
 *
 * The first byte says how the rest is read: both kinds of listing, or a text
 * that is a reference, a glob and the name of a file.  Names that get into a
 * listing stay inside a folder, whatever the listing said. */
#include "fuzz.h"

#include "hub/select.h"

#include "base/alloc.h"

static void check_listing(const qn_listing *l)
{
    bool *marks = qn_calloc(l->count * 2 + 2, sizeof *marks);
    FUZZ_CHECK(marks);
    for (size_t i = 0; i < l->count; i++) {
        FUZZ_CHECK(qn_hub_name_is_safe(qn_str_of(l->files[i].name)));
        FUZZ_CHECK(!l->files[i].hash[0] ||
                   qn_hub_hash_is_good(qn_str_of(l->files[i].hash)));
        FUZZ_CHECK(qn_listing_find(l, qn_str_of(l->files[i].name)));
    }
    qn_selection all = {0};
    (void)qn_select(marks, marks + l->count + 1, l, &all);
    qn_selection one = {.selector = "Q4_K_M"};
    (void)qn_select(marks, marks + l->count + 1, l, &one);
    qn_free(marks);
}

static void read_listings(qn_str text, bool tree)
{
    qn_arena arena = {0};
    qn_listing l = {0};
    qn_status status = tree ? qn_listing_read_tree(&l, &arena, text)
                            : qn_listing_read(&l, &arena, text);
    if (!status && !tree)
        FUZZ_CHECK(strlen(l.commit) == 40);
    check_listing(&l);
    qn_arena_free(&arena);
}

static void read_text(const char *text)
{
    qn_ref ref;
    char quant[QN_QUANT_SIZE];
    int part, parts;
    if (!qn_ref_parse(&ref, text)) {
        FUZZ_CHECK(*ref.id && !strstr(ref.id, ".."));
        FUZZ_CHECK(!ref.revision || *ref.revision);
    }
    qn_ref_clear(&ref);
    (void)qn_ref_is_path(text);
    if (qn_ref_is_id(text))
        FUZZ_CHECK(!strstr(text, "..") && *text != '/');
    FUZZ_CHECK(strlen(qn_gguf_quant(quant, text)) < QN_QUANT_SIZE);
    (void)qn_gguf_part(text, &part, &parts);
    (void)qn_hub_glob(text, "Q4_K_M/model-00001-of-00002.gguf");
    (void)qn_hub_glob("*[a-z]*/m?del*.[!x]*", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    qn_str rest = {(const char *)data + 1, size - 1};
    if (*data == 'i' || *data == 't') {
        read_listings(rest, *data == 't');
        return 0;
    }
    char *text = qn_strndup(rest.data, rest.size);
    FUZZ_CHECK(text);
    read_text(text);
    qn_free(text);
    return 0;
}
