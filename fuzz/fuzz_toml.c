/* fuzz_toml.c: configuration files.  What is read has keys, texts without NULs
 * and lines that are in the file. */
#include "fuzz.h"

#include "base/toml.h"

#include <stdlib.h>

static void check_entry(const qn_toml_entry *e, int lines)
{
    FUZZ_CHECK(e->key && e->line >= 1 && e->line <= lines);
    FUZZ_CHECK(e->depth >= 0 && e->depth <= QN_TOML_DEPTH);
    for (int i = 0; i < e->depth; i++)
        FUZZ_CHECK(e->path[i]);
    FUZZ_CHECK(*qn_toml_type_name(e->type));
    if (e->type == QN_TOML_STRINGS)
        for (size_t i = 0; i < e->list_count; i++)
            FUZZ_CHECK(e->list[i]);
    else if (e->type != QN_TOML_BOOL)
        FUZZ_CHECK(e->text);
    if (e->type == QN_TOML_INT || e->type == QN_TOML_FLOAT) {
        char *end;
        (void)strtod(e->text, &end);
        FUZZ_CHECK(end != e->text && !*end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_toml *toml = NULL;
    int lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    if (qn_toml_parse(&toml, (qn_str){(const char *)data, size}, "f"))
        return 0;
    const qn_toml_entry *e;
    for (size_t i = 0; (e = qn_toml_at(toml, i)); i++)
        check_entry(e, lines);
    qn_toml_free(toml);
    return 0;
}
