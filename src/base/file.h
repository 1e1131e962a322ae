/* file.h: whole files, mapped or read, and atomic writing. */
#ifndef QN_BASE_FILE_H
#define QN_BASE_FILE_H

#include "bytes.h"
#include "status.h"

/* A read-only view of a file.  Reference counted: tensors that alias it keep
 * it mapped. */
typedef struct qn_file qn_file;

/* Maps `path`.  QN_E_NOTFOUND when it does not exist, QN_E_IO when it can't
 * be read or is no regular file.  An empty file is a valid, empty range. */
qn_status qn_file_map(qn_file **out, const char *path);
qn_file *qn_file_ref(qn_file *file);
void qn_file_unref(qn_file *file);
qn_bytes qn_file_bytes(const qn_file *file);
const char *qn_file_path(const qn_file *file);
/* Tells the kernel that the range will be read soon / is no longer needed. */
void qn_file_will_need(const qn_file *file, size_t offset, size_t size);
void qn_file_dont_need(const qn_file *file, size_t offset, size_t size);

/* Reads a whole regular file of at most `limit` bytes into *out
 * (NUL-terminated, free with qn_free); *size may be NULL.  A larger one is
 * QN_E_FORMAT, anything else than a file QN_E_IO, at once. */
qn_status qn_file_read(char **out, size_t *size, const char *path,
                       size_t limit);
/* The same for a path that the user has named for this: a pipe is read to its
 * end, however long that takes. */
qn_status qn_file_read_any(char **out, size_t *size, const char *path,
                           size_t limit);
/* Whether it is a regular file: QN_E_NOTFOUND, QN_E_IO. */
qn_status qn_file_check(const char *path);

/* New contents for `path`: a temporary sibling until the end.  Its mode is that
 * of the file it replaces, or follows the umask; a symbolic link is replaced,
 * not followed. */
typedef struct qn_file_writer qn_file_writer;
qn_status qn_file_begin(qn_file_writer **out, const char *path);
/* Whether it can be begun: before an hour of work, not behind it. */
qn_status qn_file_try(const char *path);
/* On failure errno says why. */
qn_status qn_file_append(qn_file_writer *writer, const void *data, size_t size);
/* Fsyncs and renames over the path.  The writer is gone either way; on failure
 * the file is as it was. */
qn_status qn_file_commit(qn_file_writer *writer);
/* Leaves everything as it was.  NULL is fine. */
void qn_file_abort(qn_file_writer *writer);
/* The three at once. */
qn_status qn_file_write_atomic(const char *path, const void *data, size_t size);

bool qn_path_exists(const char *path);
bool qn_path_is_dir(const char *path);
/* dir + "/" + name, free with qn_free; NULL on allocation failure. */
char *qn_path_join(const char *dir, const char *name);

#endif
