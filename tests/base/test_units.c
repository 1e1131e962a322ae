/* Sizes as people read them. */
#include "support/qn_test.h"

#include "base/units.h"

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {147456, "144 KiB"},
        {1048575, "1.00 MiB"},
        {2426656522, "2.26 GiB"},
        {98140127723, "91.40 GiB"},
        {UINT64_MAX, "16777216.0 TiB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[QN_SIZE_TEXT];
        assert_string_equal(qn_size_text(text, rows[i].bytes), rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
