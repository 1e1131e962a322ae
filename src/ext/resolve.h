/* resolve.h: finds the array library of a build that does not carry one.
 *
 * Only in builds with -DQUERN_ENGINE=dlopen.  The build makes a jump for each
 * function of the MLX C API that the runtime calls (tools/genshim.c); this
 * file fills the table that the jumps go through. */
#ifndef QN_EXT_RESOLVE_H
#define QN_EXT_RESOLVE_H

#include "base/status.h"

/* Made by genshim: the functions' names and the table of their addresses. */
extern const char *const qn_shim_names[];
extern void *qn_shim_table[];
extern const unsigned qn_shim_count;
/* What the table points at while no library is open: gives 0. */
void qn_shim_closed(void);

/* What resolution reads of its surroundings; tests bring their own. */
typedef struct qn_resolve_env {
    const char *override_path;     /* QUERN_LIBMLXC, may be NULL */
    const char *executable_folder; /* may be NULL */
    const char *pack_folder;       /* <prefix>/lib/quern */
    const char *const *system;     /* folders, NULL-terminated */
    bool (*exists)(const char *path);
} qn_resolve_env;

/* The path that would be opened, by the first row of the table that matches:
 * the override, the executable's folder, the pack folder, each system folder;
 * when nothing exists, the first system folder, so that the loader says what
 * is missing.  *found (may be NULL) tells whether a file is there.  The
 * caller frees *path (qn_free). */
qn_status qn_resolve(char **path, bool *found, const qn_resolve_env *env);

/* The sentence of the version gate, or QN_OK for exactly "0.32.2". */
qn_status qn_check_version(const char *path, const char *version);

#endif
