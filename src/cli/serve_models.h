/* serve_models.h: which models `quern serve` has, how they are loaded, and
 * whether they fit. */
#ifndef QN_CLI_SERVE_MODELS_H
#define QN_CLI_SERVE_MODELS_H

#include "cli.h"
#include "server/server.h"

/* Longest name of a model, with its end. */
enum { QN_SERVED_ID = 256 };

/* A model of the command line. */
typedef struct qn_served_model {
    char id[QN_SERVED_ID];
    char *ref;
    char *disk; /* where its prompts are kept; NULL: nowhere */
} qn_served_model;

typedef struct qn_served {
    qn_cli *cli;
    quern_machine machine; /* before anything is loaded */
    qn_served_model *items;
    qn_server_model *models; /* the same for the server */
    size_t count;
    qn_server_alias *aliases;
    size_t alias_count;
    bool many;
    int parallel; /* as the flags say */
    uint64_t kv_asked, prefix_cache;
    bool started; /* from now on nothing is fetched */
    int code;     /* of a failure that was told already */
} qn_served;

/* From the flags and the word of the command.  QN_E_ARG; QN_E_NOTFOUND: there
 * is no such folder.  Free with qn_served_clear in any case. */
qn_status qn_served_read(qn_served *s, qn_cli *cli, int parallel,
                         uint64_t kv_asked);
void qn_served_clear(qn_served *s);

/* Tells the server of them; config->data is the qn_served. */
void qn_served_configure(qn_served *s, qn_server_config *config);

/* Loads each, one after the other, and frees it again; the exit code. */
int qn_served_check(qn_served *s);

#endif
