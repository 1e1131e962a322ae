/* mhd.c: see mhd.h. */
#include "mhd.h"

#include <dlfcn.h>
#include <string.h>

qn_status qn_mhd_load(qn_mhd *out)
{
#if defined(__APPLE__)
    static const char name[] = "libmicrohttpd.12.dylib";
#else
    static const char name[] = "libmicrohttpd.so.12";
#endif
    /* It stays: what it loads has exit handlers of its own. */
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return qn_fail(QN_E_UNSUPPORTED,
                       "serving needs libmicrohttpd, which is not installed "
                       "(%s)",
                       name);
#define X(call)                                                                \
    {                                                                          \
        void *symbol = dlsym(handle, #call);                                   \
        if (!symbol)                                                           \
            return qn_fail(QN_E_UNSUPPORTED,                                   \
                           "serving needs a libmicrohttpd of 0.9.75 or "       \
                           "later: this one has no " #call);                   \
        memcpy(&out->call, &symbol, sizeof symbol);                            \
    }
    QN_MHD_CALLS(X)
#undef X
    return QN_OK;
}
