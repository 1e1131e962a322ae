/* auth.h: API keys.
 *
 * Only digests are kept.  A presented key is digested and compared with every
 * key in the same time, whatever it is. */
#ifndef QN_SERVER_AUTH_H
#define QN_SERVER_AUTH_H

#include "base/bytes.h"
#include "base/status.h"

typedef struct qn_key {
    char name[65]; /* for logs and fairness, never the key itself */
    bool admin;
    uint8_t digest[64]; /* SHA-256, as digits */
} qn_key;

typedef struct qn_keys {
    qn_key *items;
    size_t count;
} qn_keys;

void qn_keys_free(qn_keys *keys);
/* A key of the command line or the environment: it is no administrator's, and
 * gets the name "key1" and so on.  QN_E_ARG when it is empty or not visible
 * ASCII. */
qn_status qn_keys_add(qn_keys *keys, qn_str key);
/* Adds those of a file, one a line: KEY or NAME:KEY or NAME:KEY:admin; empty
 * lines count for nothing.  QN_E_ARG when others than its owner may read it (in
 * $CREDENTIALS_DIRECTORY its group may), when it has no key, or a line is none
 * of these or has a name or a key that is there already.  On failure some of
 * the file's keys may be there. */
qn_status qn_keys_read(qn_keys *keys, const char *path);
/* Which key it is, or -1. */
int qn_keys_find(const qn_keys *keys, qn_str presented);

#endif
