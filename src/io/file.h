/* file.h: files as streams.
 *
 * A file that is read stays open as long as its stream lives, so what is loaded
 * lazily comes from the file that was there, even when another has taken its
 * name.  A file that is written is a new one that takes the name at the end
 * (base/file.h): saving over a file that arrays are still to be read from
 * works.
 *
 * Elements are read, not mapped: a mapping would let a program that truncates
 * the file in place kill this process, long after its arrays were computed. */
#ifndef QN_IO_FILE_H
#define QN_IO_FILE_H

#include "stream.h"

/* Opens a regular file to read; `operation` (a literal) is who asks, for
 * messages: "load".  QN_E_NOTFOUND when there is none. */
qn_status qn_io_open(qn_io **out, const char *operation, const char *path);

/* A map of the whole of a file opened by qn_io_open, to read its header;
 * qn_io_unmap ends it. */
qn_status qn_io_map(qn_bytes *out, const qn_io *file);
void qn_io_unmap(qn_bytes map);

/* Opens `path` to write.  Symbolic links are followed; what is no regular file
 * (a pipe, a terminal) is written to directly. */
qn_status qn_io_create(qn_io **out, const char *operation, const char *path);
/* Ends what qn_io_create began and gives up its reference: the file appears
 * under its name unless `status`, which is returned, says that something has
 * failed before. */
qn_status qn_io_commit(qn_io *file, qn_status status);

#endif
