/* gendocs.c: gendocs [--check] FILE
 *
 * Writes docs/ops.md, the list of operations, from ops.def.  With --check it
 * writes nothing and compares: exit 1 when FILE is not what it would write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The page, made in memory first. */
static char page[1 << 20];
static size_t used;

static void put(const char *text)
{
    size_t size = strlen(text);
    if (size > sizeof page - 1 - used) {
        fprintf(stderr, "gendocs: the page is larger than %zu bytes\n",
                sizeof page);
        exit(2);
    }
    memcpy(page + used, text, size + 1);
    used += size;
}

/* A cell of a table: bars inside code would end it. */
static void put_cell(const char *text)
{
    char one[2] = {0};
    for (; *text; text++) {
        one[0] = *text;
        put(*text == '|' ? "\\|" : one);
    }
}

static void row(int cells, const char *const *cell)
{
    for (int i = 0; i < cells; i++) {
        put("| ");
        put_cell(cell[i]);
        put(" ");
    }
    put("|\n");
}

#define ROW(...)                                                               \
    row(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                \
        (const char *[]){__VA_ARGS__})

static const char *inputs_text(int inputs)
{
    static const char *const texts[] = {"any", "0", "1", "2", "3", "4"};
    return texts[inputs + 1];
}

static const char *form_text(const char *form)
{
    return !strcmp(form, "AXES") ? "plain, `_axis`, `_axes`" : "";
}

/* clang-format off */
static void make_page(void)
{
    put("# Operations\n\n"
        "Made from `src/ops/ops.def` by `tools/gendocs.c`; change the rows "
        "there, then run\n`build/gendocs docs/ops.md`.\n\n"
        "`types` says what an operation computes on: `NUM` and `ANY` every "
        "type, `ORD` every\ntype, complex numbers ordered by real, then "
        "imaginary part, `REAL` bool, integers and\nfloats, `FLOAT` floats "
        "and complex numbers (integers and bool become float32),\n`RFLOAT` "
        "floats (likewise), `BITS` bool and integers, `INT` integers (bool "
        "becomes\nuint8), `BOOL` truth values.  `result`: `SAME` that type, "
        "`BOOL`, or `REALPART` (float32\nfor complex64, else the same).\n");

    put("\n## Of one element\n\n"
        "| name | types | result | meaning |\n| --- | --- | --- | --- |\n");
#define QN_UNARY(id, name, types, result, gradient, element, doc)              \
    ROW("`" #name "`", #types, #result, doc);
#include "ops/ops.def"

    put("\n## Of two elements\n\nOperands are promoted and broadcast.\n\n"
        "| name | types | result | meaning |\n| --- | --- | --- | --- |\n");
#define QN_BINARY(id, name, types, result, gradient, element, doc)             \
    ROW("`" #name "`", #types, #result, doc);
#include "ops/ops.def"

    put("\n## Reductions\n\nOver all axes, one (`_axis`) or some (`_axes`).\n\n"
        "| name | types | meaning |\n| --- | --- | --- |\n");
#define QN_REDUCE(id, name, types, gradient, doc)                              \
    ROW("`" #name "`", #types, doc);
#include "ops/ops.def"

    put("\n## Scans\n\nOf the flattened array, or along an axis (`_axis`).\n\n"
        "| name | types | meaning |\n| --- | --- | --- |\n");
#define QN_SCAN(id, name, types, gradient, doc)                                \
    ROW("`" #name "`", #types, doc);
#include "ops/ops.def"

    put("\n## Other primitives\n\nWhat backends compute besides these.\n\n"
        "| name | inputs | rules in | meaning |\n| --- | --- | --- | --- |\n");
#define QN_PRIM(id, name, inputs, file, gradient, batch, again, doc)           \
    ROW("`" #name "`", inputs_text(inputs), "`ops/" #file ".c`", doc);
#include "ops/ops.def"

    put("\n## Composites\n\nMade of primitives.\n\n"
        "| name | forms | made in | meaning |\n| --- | --- | --- | --- |\n");
#define QN_COMPOSITE(name, form, file, doc)                                    \
    ROW("`" #name "`", form_text(#form), "`ops/" #file ".c`", doc);
#include "ops/ops.def"
}
/* clang-format on */

/* True when the file holds exactly the page. */
static int same_as(const char *path)
{
    static char found[sizeof page];
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = fread(found, 1, sizeof found, file);
    fclose(file);
    return size == used && !memcmp(found, page, used);
}

int main(int argc, char **argv)
{
    int check = argc == 3 && !strcmp(argv[1], "--check");
    if (argc != 2 + check) {
        fprintf(stderr, "usage: gendocs [--check] FILE\n");
        return 2;
    }
    const char *path = argv[argc - 1];
    make_page();
    if (check) {
        if (same_as(path))
            return 0;
        fprintf(stderr, "%s is not what ops.def says: run gendocs %s\n", path,
                path);
        return 1;
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(page, 1, used, file) != used || fclose(file)) {
        fprintf(stderr, "gendocs: %s can't be written\n", path);
        return 2;
    }
    return 0;
}
