/* base64.c: reading and writing base64. */
#include "base64.h"

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

/* Length without the padding: at most two =, which fill up four characters. */
static size_t unpadded(qn_str text)
{
    size_t size = text.size;
    for (int i = 0; i < 2 && text.size % 4 == 0 && size > 0; i++)
        size -= text.data[size - 1] == '=';
    return size;
}

qn_status qn_base64_decode(qn_buf *out, qn_str text)
{
    size_t before = out->size, size = unpadded(text);
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        int value = value_of(text.data[i]);
        if (value < 0) {
            qn_buf_truncate(out, before);
            return qn_fail(QN_E_FORMAT,
                           "base64: expected a letter, a digit, + or /, found "
                           "another character at byte %zu",
                           i);
        }
        bits = bits << 6 | (uint32_t)value;
        /* Characters 1, 2 and 3 of four complete a byte. */
        if (i % 4)
            qn_buf_add_char(out, (char)(bits >> (6 - 2 * (i % 4))));
    }
    if (size % 4 == 1) {
        qn_buf_truncate(out, before);
        return qn_fail(QN_E_FORMAT,
                       "base64: expected two characters or more in the last "
                       "group, found one");
    }
    return qn_buf_status(out);
}

void qn_base64_encode(qn_buf *out, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrs"
                                 "tuvwxyz0123456789+/";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i += 3) {
        size_t n = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        bits |= n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        bits |= n > 2 ? bytes[i + 2] : 0;
        const char four[] = {digits[bits >> 18], digits[bits >> 12 & 63],
                             n > 1 ? digits[bits >> 6 & 63] : '=',
                             n > 2 ? digits[bits & 63] : '='};
        qn_buf_add(out, four, sizeof four);
    }
}
