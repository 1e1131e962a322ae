/* talk.h: a conversation: its messages and settings, and their saved form. */
#ifndef QN_CLI_TALK_H
#define QN_CLI_TALK_H

#include "args.h"
#include "base/buf.h"

typedef struct qn_message {
    char *role, *content;
} qn_message;

typedef struct qn_talk {
    qn_message *items;
    size_t count, capacity;
    char *system;               /* NULL: the template's */
    qn_args settings;           /* what /set has changed, by flag */
    char *texts[QN_FLAG_COUNT]; /* and as it was written */
} qn_talk;

void qn_talk_clear(qn_talk *talk);
qn_status qn_talk_add(qn_talk *talk, const char *role, qn_str content);
/* Drops the messages from `count` on. */
void qn_talk_cut(qn_talk *talk, size_t count);
qn_status qn_talk_set_system(qn_talk *talk, const char *text);
/* A setting by its request's name ("top_p"); QN_E_ARG with the range. */
qn_status qn_talk_set(qn_talk *talk, const char *name, const char *value);
/* The flags of /set; -1 ends the list. */
extern const int qn_talk_flags[];

/* The messages as JSON, the system's first. */
qn_status qn_talk_json(const qn_talk *talk, qn_buf *out);
/* A file with messages and settings, readable by its owner alone. */
qn_status qn_talk_save(const qn_talk *talk, const char *path);
/* Replaces *talk by what the file has; on failure it stays. */
qn_status qn_talk_load(qn_talk *talk, const char *path);
/* The same for the text of such a file. */
qn_status qn_talk_parse(qn_talk *talk, qn_str text);

/* Whether messages can be added to it: it is a file that can be written, or
 * made; nothing that a write would wait for. */
qn_status qn_history_check(const char *path);
/* Appends a message as a line of JSON to a file of mode 0600. */
qn_status qn_history_add(const char *path, const qn_message *message);
/* Gives `each` the user's messages of such a file; one that is not there has
 * none. */
qn_status qn_history_read(const char *path,
                          void (*each)(void *data, const char *text),
                          void *data);
/* The same for the text of such a file. */
qn_status qn_history_parse(qn_str text,
                           void (*each)(void *data, const char *text),
                           void *data);

#endif
