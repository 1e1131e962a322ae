/* CRC-64: the published check value, pieces, and single changes. */
#include "support/qn_test.h"

#include "base/checksum.h"

#include <string.h>

static void test_check_value(void **state)
{
    (void)state;
    assert_int_equal(qn_crc64(0, "123456789", 9), 0x995dc9bbdf1939fa);
    assert_int_equal(qn_crc64(0, "", 0), 0);
}

static void test_pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    uint8_t data[100];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + 11);
    uint64_t whole = qn_crc64(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++)
        assert_int_equal(
            qn_crc64(qn_crc64(0, data, cut), data + cut, sizeof data - cut),
            whole);
}

static void test_every_bit_counts(void **state)
{
    (void)state;
    uint8_t data[40] = {0};
    uint64_t plain = qn_crc64(0, data, sizeof data);
    for (size_t bit = 0; bit < sizeof data * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(qn_crc64(0, data, sizeof data), plain);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_not_equal(qn_crc64(0, data, sizeof data - 1), plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_value),
        cmocka_unit_test(test_pieces_give_what_the_whole_gives),
        cmocka_unit_test(test_every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
