/* prefix_disk.h: sequences that are kept beyond the memory and the life of a
 * model, as files of one folder (the saved form of caches, kv/file.h).
 *
 * A file is named by the model, by the space and the kind of rotation its
 * tokens belong to, and by the tokens, all as digests: spaces may be secret.
 * The folder is its owner's alone, and one process has it at a time.  Files
 * are whole or not there (qn_file_commit).  The least recently used go when
 * they take more than the limit, also those of other models.
 *
 * All calls are for the model's thread. */
#ifndef QN_RUNTIME_PREFIX_DISK_H
#define QN_RUNTIME_PREFIX_DISK_H

#include "runtime.h"

typedef struct qn_prefix_disk qn_prefix_disk;

/* Makes the folder if it is not there and notes the files of the model in it.
 * QN_E_ARG: others may enter it, or another process has it. */
qn_status qn_prefix_disk_open(qn_prefix_disk **out, quern_model *model,
                              const char *folder, uint64_t limit);
void qn_prefix_disk_close(qn_prefix_disk *disk);

/* Restores the file that has most of the ids, if that is more than `have` by
 * QN_PREFIX_LEAST at least.  *cache and *tokens are the caller's then.  A file
 * that another engine, kind of processor or type of values has computed, or
 * that is damaged, counts as refused and is not asked again. */
bool qn_prefix_disk_take(qn_prefix_disk *disk, const char *space, int choice,
                         const int32_t *ids, size_t count, size_t have,
                         qn_kv_cache **cache, qn_ids *tokens);
/* Begins to write the cache with its tokens, unless that can't be; files that
 * say no more than it go in the end.  Nothing may be on its way. */
void qn_prefix_disk_put(qn_prefix_disk *disk, const char *space, int choice,
                        const qn_kv_cache *cache, const qn_ids *tokens);
/* Does a piece of what was begun: takes a layer over, or notes that the file is
 * there, which a thread of its own writes. */
qn_prefix_progress qn_prefix_disk_go_on(qn_prefix_disk *disk);
/* All of it, and waits for the disk. */
void qn_prefix_disk_finish(qn_prefix_disk *disk);
/* Removes the model's files. */
void qn_prefix_disk_flush(qn_prefix_disk *disk, size_t *entries,
                          uint64_t *bytes);
/* Fills the members of *stats that are about the disk. */
void qn_prefix_disk_stats(const qn_prefix_disk *disk,
                          quern_prefix_stats *stats);

#endif
