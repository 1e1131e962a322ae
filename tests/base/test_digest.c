/* SHA-256 and SHA-1: published values, pieces, lengths around a block. */
#include "support/qn_test.h"

#include "base/digest.h"

#include <string.h>

static const char *digest_of(qn_digest_kind kind, const void *data, size_t size,
                             size_t piece)
{
    static char hex[QN_DIGEST_SIZE];
    qn_digest d;
    qn_digest_begin(&d, kind);
    for (size_t at = 0; at < size; at += piece)
        qn_digest_add(&d, (const char *)data + at,
                      piece < size - at ? piece : size - at);
    qn_digest_end(&d, hex);
    return hex;
}

static void test_published_values(void **state)
{
    (void)state;
    static const char two_blocks[] =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_string_equal(
        digest_of(QN_SHA256, "", 0, 1),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(
        digest_of(QN_SHA256, "abc", 3, 3),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(
        digest_of(QN_SHA256, two_blocks, 56, 56),
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_string_equal(digest_of(QN_SHA1, "", 0, 1),
                        "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    assert_string_equal(digest_of(QN_SHA1, "abc", 3, 3),
                        "a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_string_equal(digest_of(QN_SHA1, two_blocks, 56, 56),
                        "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

static void test_a_million_bytes(void **state)
{
    (void)state;
    static char data[1000000];
    memset(data, 'a', sizeof data);
    assert_string_equal(
        digest_of(QN_SHA256, data, sizeof data, 4093),
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_string_equal(digest_of(QN_SHA1, data, sizeof data, 4093),
                        "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

static void test_pieces_give_what_the_whole_gives(void **state)
{
    (void)state;
    uint8_t data[200];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 + 11);
    for (size_t size = 0; size <= sizeof data; size++)
        for (size_t piece = 1; piece < 131; piece += 13) {
            char whole[QN_DIGEST_SIZE];
            strcpy(whole, digest_of(QN_SHA256, data, size, size + 1));
            assert_string_equal(digest_of(QN_SHA256, data, size, piece), whole);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_values),
        cmocka_unit_test(test_a_million_bytes),
        cmocka_unit_test(test_pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
