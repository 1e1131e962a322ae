/* lock.h: who works on a model of the cache.
 *
 * Two files of .locks/models--org--name: quern.lock is held by the one process
 * that changes the model's folder, use.lock is shared by those that have it
 * loaded, and its time is that of the last load.  Both are advisory locks
 * (flock), which end with their process.  On a cache that can't be written to
 * nobody changes anything, so there a lock that can't be made is no error. */
#ifndef QN_HUB_LOCK_H
#define QN_HUB_LOCK_H

#include "hub.h"

#include <stdint.h>

typedef enum qn_lock_kind { QN_LOCK_CHANGE, QN_LOCK_USE } qn_lock_kind;

/* Takes the lock on the model called `id` for this process alone, unless
 * somebody has it (*fd is -1 then).  Give it up with qn_lock_drop. */
qn_status qn_lock_try(int *fd, const qn_hub *hub, const char *id,
                      qn_lock_kind kind);
/* The same for any file, which is made with its folders. */
qn_status qn_lock_file(int *fd, const char *path);
/* Marks the model that `path` belongs to as used until qn_lock_drop; -1 when it
 * is no model of the cache. */
int qn_lock_use(const qn_hub *hub, const char *path);
/* When the model was loaded last, seconds since 1970; 0: never. */
int64_t qn_lock_last_use(const qn_hub *hub, const char *id);
void qn_lock_drop(int fd); /* -1 is fine */

/* Makes the folders above `path`. */
qn_status qn_make_parents(const char *path);

#endif
