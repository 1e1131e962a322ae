/* fetch.h: one file on its way to the disk.
 *
 * The bytes go to a partial file that later tries continue, by whoever makes
 * them.  Everything that is in it was hashed and, as far as it is the front of
 * a safetensors file, checked, also what an earlier process left there. */
#ifndef QN_HUB_FETCH_H
#define QN_HUB_FETCH_H

#include "hub.h"

#include "base/digest.h"

/* Called between pieces of long reads; a failure ends them. */
typedef qn_status (*qn_fetch_tick)(void *data);

typedef struct qn_fetch {
    /* Set by the caller, who owns the texts. */
    const char *name; /* in the repository */
    uint64_t size;
    const char *hash;    /* expected; "": unknown */
    const char *partial; /* path while it is not whole */
    const char *target;  /* path afterwards */
    bool verify;         /* compare the digest */
    qn_fetch_tick tick;
    void *tick_data;

    uint64_t done; /* bytes in the partial file */
    int fd;        /* -1: closed */
    qn_digest digest;
    /* The front of a safetensors file until it is whole and checked. */
    qn_buf front;
    size_t front_size; /* 0: not known yet */
    bool front_checked;
} qn_fetch;

/* Opens the partial file and takes over what is in it; one that is too long is
 * emptied. */
qn_status qn_fetch_open(qn_fetch *f);
/* Empties it. */
qn_status qn_fetch_restart(qn_fetch *f);
/* QN_E_SPACE when the disk is full, QN_E_INTEGRITY for more bytes than the file
 * has, QN_E_FORMAT and QN_E_UNSUPPORTED for a front that can't be loaded; the
 * last three delete what there is. */
qn_status qn_fetch_add(qn_fetch *f, const void *bytes, size_t size);
/* With all bytes there: compares the digest and gives the file its name.
 * QN_E_INTEGRITY deletes it. */
qn_status qn_fetch_finish(qn_fetch *f);
/* Keeps the partial file. */
void qn_fetch_close(qn_fetch *f);
/* Begins the digest by which a file with this hash is known: SHA-256, or the
 * SHA-1 of git, which has the size in front. */
void qn_fetch_digest(qn_digest *digest, const char *hash, uint64_t size);
/* Whether the file at `path` is the one: its size, and its digest if
 * f->verify. */
bool qn_fetch_is_there(const qn_fetch *f, const char *path);

#endif
