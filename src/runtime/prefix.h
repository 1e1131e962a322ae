/* prefix.h: prompts and answers that are kept when their jobs have ended, so
 * that a prompt which begins like one of them is not computed again.
 *
 * An entry is a whole cache with its tokens.  A hit takes a clone (arrays are
 * shared until one side writes) that is cut back to what is common; the entry
 * stays.  A row has the bits that it has without any of this, because a cache
 * has the same rows however its tokens came into it (kv/cache.h).
 *
 * Entries of one space see each other alone, and only where positions are
 * rotated alike (qn_model_rope_choice).  The least recently used go when the
 * bytes that arrays take are over the limit.  Pinned ones stay until their time
 * is over; pins have at most half of the limit, beyond that the oldest become
 * ordinary.
 *
 * With a disk (prefix_disk.h) entries are written to it when there is time, and
 * what memory has no more comes back from there.
 *
 * All calls are for the model's thread, but for qn_prefixes_stats. */
#ifndef QN_RUNTIME_PREFIX_H
#define QN_RUNTIME_PREFIX_H

#include "base/status.h"
#include "kv/cache.h"

#include <quern/quern.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { QN_PREFIX_LEAST = 32 }; /* shorter sequences are not kept */

typedef struct qn_prefix qn_prefix;
struct qn_prefix_disk;

typedef struct qn_prefixes {
    uint64_t limit;              /* bytes; 0: nothing is kept */
    qn_prefix *first;            /* most recently used */
    uint64_t pins;               /* made so far, which tells the oldest */
    struct qn_prefix_disk *disk; /* or NULL; owned */
    /* Copied out under the lock; changed by the model's thread alone. */
    pthread_mutex_t lock;
    quern_prefix_stats stats;
} qn_prefixes;

void qn_prefixes_init(qn_prefixes *p, uint64_t limit);
void qn_prefixes_clear(qn_prefixes *p);
/* Takes the disk over, before there is anything else. */
void qn_prefixes_use_disk(qn_prefixes *p, struct qn_prefix_disk *disk);
/* How far the disk is behind. */
typedef enum qn_prefix_progress {
    QN_PREFIX_DONE, /* there is nothing to write */
    QN_PREFIX_MORE,
    QN_PREFIX_WAITS /* for the disk */
} qn_prefix_progress;
/* Does a piece of writing what is not on the disk: no more than one layer of an
 * entry is read.  Files are written beside it. */
qn_prefix_progress qn_prefixes_write(qn_prefixes *p);
/* All of it, and waits for the disk. */
void qn_prefixes_write_all(qn_prefixes *p);

/* How many of the first `count` ids the store would give. */
size_t qn_prefixes_longest(const qn_prefixes *p, const char *space, int choice,
                           const int32_t *ids, size_t count);
/* How many of them some entry has, whether it could give them or not: where
 * caches can't go back, a length that is worth a mark. */
size_t qn_prefixes_common(const qn_prefixes *p, const char *space, int choice,
                          const int32_t *ids, size_t count);
/* Makes the session the first `length` tokens of `ids`, which `from` begins
 * with; false, and an empty session, when that can't be. */
bool qn_session_share(quern_session *session, const qn_kv_cache *from,
                      const int32_t *ids, size_t length);
/* Makes the empty session the longest stored beginning of the ids and counts a
 * hit; a session that stays empty is a miss. */
void qn_prefixes_take(qn_prefixes *p, quern_session *session, const char *space,
                      int choice, const int32_t *ids, size_t count);
/* Takes the session's sequence over, which is empty then. */
void qn_prefixes_keep(qn_prefixes *p, quern_session *session, const char *space,
                      int choice);
/* Keeps the first `length` tokens of the session's sequence, which stays; with
 * `seconds` they are pinned for so long, an entry that is there already, too.
 * What can't be kept is not. */
void qn_prefixes_mark(qn_prefixes *p, quern_session *session, const char *space,
                      int choice, size_t length, int64_t seconds);
/* Drops everything in memory, or on the disk; *entries and *bytes are what was
 * there. */
void qn_prefixes_flush_disk(qn_prefixes *p, size_t *entries, uint64_t *bytes);
void qn_prefixes_flush(qn_prefixes *p, size_t *entries, uint64_t *bytes);

void qn_prefixes_stats(qn_prefixes *p, quern_prefix_stats *out);

#endif
