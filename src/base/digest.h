/* digest.h: SHA-256 and SHA-1, by which files are known.
 *
 * SHA-1 is here for the names that git gives to files; it is no protection
 * against somebody who means harm. */
#ifndef QN_BASE_DIGEST_H
#define QN_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

typedef enum qn_digest_kind { QN_SHA1, QN_SHA256 } qn_digest_kind;

/* Room for either in hexadecimal digits, with a NUL. */
enum { QN_SHA1_DIGITS = 40, QN_SHA256_DIGITS = 64, QN_DIGEST_SIZE = 65 };

/* Fill with qn_digest_begin; holds nothing that needs freeing. */
typedef struct qn_digest {
    qn_digest_kind kind;
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    uint8_t tail[64];
} qn_digest;

void qn_digest_begin(qn_digest *digest, qn_digest_kind kind);
void qn_digest_add(qn_digest *digest, const void *data, size_t size);
/* The digest of all that was added, in lower-case digits.  The next call must
 * be qn_digest_begin. */
void qn_digest_end(qn_digest *digest, char hex[QN_DIGEST_SIZE]);

#endif
