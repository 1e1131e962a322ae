/* resolve.c: opens libmlxc, fills the jump table, checks the version. */
#include "resolve.h"

#include "base/alloc.h"
#include "base/file.h"

#include <mlx/c/mlx.h>
#include <quern/ext.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUIRED_VERSION "0.32.2"

#ifndef QUERN_PREFIX
#define QUERN_PREFIX "/usr/local"
#endif

#ifdef __APPLE__
#define LIBRARY_NAME "libmlxc.dylib"
static const char *const system_folders[] = {"/opt/homebrew/lib",
                                             "/usr/local/lib", NULL};
#else
#define LIBRARY_NAME "libmlxc.so"
#if defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#else
#define TRIPLET "x86_64-linux-gnu"
#endif
static const char *const system_folders[] = {
    "/usr/local/lib", "/usr/lib/" TRIPLET, "/usr/lib", NULL};
#endif

/* ---- which file ---- */

/* folder/libmlxc when it exists or `anyway`; *status tells of lack of
 * memory. */
static char *candidate(const qn_resolve_env *env, const char *folder,
                       bool anyway, qn_status *status)
{
    if (!folder || *status)
        return NULL;
    char *path = qn_path_join(folder, LIBRARY_NAME);
    if (!path) {
        *status = QN_E_NOMEM;
        return NULL;
    }
    if (anyway || env->exists(path))
        return path;
    qn_free(path);
    return NULL;
}

qn_status qn_resolve(char **path, bool *found, const qn_resolve_env *env)
{
    qn_status status = QN_OK;
    char *chosen = NULL;
    bool there = true;
    if (env->override_path && *env->override_path) {
        /* Taken even when it is missing: the loader's error names it. */
        chosen = qn_strdup(env->override_path);
        status = chosen ? QN_OK : QN_E_NOMEM;
        there = chosen && env->exists(chosen);
    }
    if (!chosen)
        chosen = candidate(env, env->executable_folder, false, &status);
    if (!chosen)
        chosen = candidate(env, env->pack_folder, false, &status);
    for (const char *const *f = env->system; !chosen && *f; f++)
        chosen = candidate(env, *f, false, &status);
    if (!chosen) {
        there = false;
        chosen = candidate(env, env->system[0], true, &status);
    }
    if (status) {
        qn_free(chosen);
        return status;
    }
    *path = chosen;
    if (found)
        *found = there;
    return QN_OK;
}

qn_status qn_check_version(const char *path, const char *version)
{
    if (!strcmp(version, REQUIRED_VERSION))
        return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED,
                   "quern needs MLX " REQUIRED_VERSION "; %s loaded MLX %s",
                   path, version);
}

/* ---- opening ---- */

static char *library_path;

/* The folder of this program, in `out`. */
static const char *executable_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return NULL;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    return out;
}

/* Calls give 0 again, as before a library was open. */
static void close_table(void)
{
    void (*closed)(void) = qn_shim_closed;
    for (unsigned i = 0; i < qn_shim_count; i++)
        memcpy(&qn_shim_table[i], &closed, sizeof closed);
}

static qn_status load_symbols(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        return qn_fail(QN_E_UNSUPPORTED, "%s: %s", path,
                       reason ? reason : "can't be opened");
    }
    for (unsigned i = 0; i < qn_shim_count; i++) {
        qn_shim_table[i] = dlsym(library, qn_shim_names[i]);
        if (!qn_shim_table[i]) {
            dlclose(library);
            close_table();
            return qn_fail(QN_E_UNSUPPORTED, "%s: no symbol %s", path,
                           qn_shim_names[i]);
        }
    }
    return QN_OK;
}

/* The last message of the library's error handler on this thread. */
static _Thread_local char *last_message;

static void keep_message(const char *message, void *data)
{
    (void)data;
    free(last_message);
    last_message = strdup(message ? message : "unknown mlx error");
}

static qn_status check_library(const char *path)
{
    mlx_set_error_handler(keep_message, NULL, NULL);
    mlx_string text = mlx_string_new();
    qn_status status;
    if (mlx_version(&text))
        status = qn_fail(QN_E_UNSUPPORTED, "%s: mlx_version failed: %s", path,
                         last_message ? last_message : "(no message)");
    else
        status = qn_check_version(path, mlx_string_data(text));
    mlx_string_free(text);
    return status;
}

int quern_engine_open(void)
{
    char folder[4096], *path = NULL;
    if (library_path)
        return 0;
    qn_resolve_env env = {
        .override_path = getenv("QUERN_LIBMLXC"),
        .executable_folder = executable_folder(folder, sizeof folder),
        .pack_folder = QUERN_PREFIX "/lib/quern",
        .system = system_folders,
        .exists = qn_path_exists,
    };
    qn_status status = qn_resolve(&path, NULL, &env);
    if (!status)
        status = load_symbols(path);
    if (!status)
        status = check_library(path);
    if (status) {
        keep_message(qn_error_text(), NULL);
        close_table();
        qn_free(path);
        return 1;
    }
    library_path = path;
    return 0;
}

/* ---- the rest of ext.h that is not about arrays ---- */

char *quern_error_take(void)
{
    char *message = last_message;
    last_message = NULL;
    return message;
}

const char *quern_version(void)
{
    return QUERN_VERSION;
}

const char *quern_library_path(void)
{
    return library_path ? library_path : "";
}

const char *quern_device_architecture(void)
{
    static char text[64];
    mlx_device device = mlx_device_new();
    mlx_device_info info = mlx_device_info_new();
    const char *found = NULL;
    if (!text[0] && !mlx_get_default_device(&device) &&
        !mlx_device_info_get(&info, device) &&
        !mlx_device_info_get_string(&found, info, "architecture"))
        snprintf(text, sizeof text, "%s", found);
    mlx_device_info_free(info);
    mlx_device_free(device);
    return text[0] ? text : NULL;
}

int quern_set_threads(int threads)
{
    return threads < 0 || threads > 512;
}

bool quern_in_shapeless_trace(void)
{
    return false;
}

size_t quern_closure_trace_count(const mlx_closure cls)
{
    (void)cls;
    return 0;
}
