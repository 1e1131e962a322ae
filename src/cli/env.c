/* env.c: the environment variables called QUERN_*.
 *
 * Some stand for a flag, which wins over them.  A value that is not
 * understood is an error, a name that nobody reads gets a warning. */
#include "cli.h"

#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

extern char **environ;

/* Of scripts in the source tree and of libraries, not ours to judge. */
static qn_status no_check(const char *value)
{
    (void)value;
    return QN_OK;
}

static qn_status check_log(const char *value)
{
    quern_log_level ignored;
    return qn_log_level_of(value, &ignored)
               ? QN_OK
               : qn_fail(QN_E_ARG, "%s: expected error, warn, info or debug",
                         value);
}

static qn_status check_bool(const char *value)
{
    return !strcmp(value, "0") || !strcmp(value, "1")
               ? QN_OK
               : qn_fail(QN_E_ARG, "%s: expected 0 or 1", value);
}

#ifdef QUERN_ENGINE_DLOPEN
#define check_library no_check
#else
static qn_status check_library(const char *value)
{
    return qn_fail(QN_E_ARG, "%s: this build carries its own engine", value);
}
#endif

static qn_status check_isa(const char *value)
{
    qn_isa ignored;
    return qn_isa_of_name(&ignored, value)
               ? QN_OK
               : qn_fail(QN_E_ARG,
                         "%s: expected the name of an instruction set, such "
                         "as avx2 or avx512-vnni",
                         value);
}

static const struct variable {
    const char *name;
    qn_flag flag; /* that it stands for, or QN_FLAG_COUNT */
    qn_status (*check)(const char *value);
} variables[] = {
    {"QUERN_THREADS", QN_FLAG_THREADS, NULL},
    {"QUERN_BACKEND", QN_FLAG_BACKEND, NULL},
    {"QUERN_LOG", QN_FLAG_COUNT, check_log},
    {"QUERN_CONFIG", QN_FLAG_CONFIG, NULL},
    {"QUERN_LIBMLXC", QN_FLAG_COUNT, check_library},
    {"QUERN_STRICT_DEVICES", QN_FLAG_COUNT, check_bool},
    {"QUERN_ISA", QN_FLAG_COUNT, check_isa},
    {"QUERN_CACHE", QN_FLAG_COUNT, no_check},
    {"QUERN_API_KEY", QN_FLAG_COUNT, no_check},
    {"QUERN_BUILD", QN_FLAG_COUNT, no_check},
    {"QUERN_DEMO_MODEL", QN_FLAG_COUNT, no_check},
    {"QUERN_SKIP_MODEL_TESTS", QN_FLAG_COUNT, no_check},
#ifdef QUERN_TEST_BUILD
    {"QUERN_TEST_DISK_FULL_AT", QN_FLAG_COUNT, no_check},
    {"QUERN_TEST_STALL", QN_FLAG_COUNT, no_check},
    {"QUERN_TEST_NO_LINKS", QN_FLAG_COUNT, no_check},
#endif
};

enum { VARIABLES = sizeof variables / sizeof *variables };

bool qn_log_level_of(const char *text, quern_log_level *out)
{
    static const char *const names[] = {
        [QUERN_LOG_ERROR] = "error",
        [QUERN_LOG_WARN] = "warn",
        [QUERN_LOG_INFO] = "info",
        [QUERN_LOG_DEBUG] = "debug",
    };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(text, names[i])) {
            *out = (quern_log_level)i;
            return true;
        }
    return false;
}

static const struct variable *find(const char *name, size_t length)
{
    for (int i = 0; i < VARIABLES; i++)
        if (strlen(variables[i].name) == length &&
            !memcmp(variables[i].name, name, length))
            return &variables[i];
    return NULL;
}

const char *qn_env_of(qn_flag flag)
{
    for (int i = 0; i < VARIABLES; i++)
        if (variables[i].flag == flag)
            return variables[i].name;
    return NULL;
}

static void warn_unknown(const qn_cli *cli, const char *entry, size_t length)
{
    char name[128], text[320];
    const char *names[VARIABLES + 1] = {NULL};
    for (int i = 0; i < VARIABLES; i++)
        names[i] = variables[i].name;
    snprintf(name, sizeof name, "%.*s", (int)length, entry);
    const char *near = qn_nearest(name, names);
    snprintf(text, sizeof text, "%s: no such variable%s%s%s", name,
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    qn_cli_log(cli, QUERN_LOG_WARN, text);
}

qn_status qn_env_read(qn_cli *cli, int command)
{
    static const char prefix[] = "QUERN_";
    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, prefix, sizeof prefix - 1) != 0)
            continue;
        size_t length = strcspn(*entry, "=");
        const struct variable *v = find(*entry, length);
        if (!v) {
            warn_unknown(cli, *entry, length);
            continue;
        }
        /* An empty variable is as good as none. */
        const char *value = *entry + length + ((*entry)[length] == '=');
        if (!*value)
            continue;
        qn_status status =
            v->check ? v->check(value)
                     : qn_args_preset(&cli->args, command, v->flag, value);
        if (status)
            return qn_fail_where(status, "%s", v->name);
    }
    return QN_OK;
}
