/* parser.h: what the formats of calls share.
 *
 * A format is a function that is called inside of a call: it looks at the text
 * that is there, takes what it understands (p->pos), and says how to go on.  It
 * takes nothing of what it can't understand, so that this can be something
 * else. */
#ifndef QN_TEXT_TOOLS_PARSER_H
#define QN_TEXT_TOOLS_PARSER_H

#include "base/arena.h"
#include "scan.h"
#include "text/tools.h"

typedef enum qn_step {
    QN_STEP_ON,    /* call me again */
    QN_STEP_MORE,  /* what comes next is not all there */
    QN_STEP_FAULT, /* the next byte is wrong */
    QN_STEP_OVER   /* no more calls here: text goes on */
} qn_step;

/* Bits of types that a value may have. */
enum {
    QN_MAY_STRING = 1,
    QN_MAY_NUMBER = 2,
    QN_MAY_BOOL = 4,
    QN_MAY_NULL = 8,
    QN_MAY_ARRAY = 16,
    QN_MAY_OBJECT = 32,
    QN_MAY_ANY = 63
};

/* In which order a call's parts come, by xml.c's means. */
typedef struct qn_tag_words {
    const char *call;      /* before the name; NULL: the name comes at once */
    const char *key;       /* before a parameter's name */
    const char *key_end;   /* behind it */
    const char *value;     /* before its value; NULL: it comes at once */
    const char *value_end; /* behind it */
    const char *call_end;
    const char *section_end; /* behind all calls; NULL: nothing */
} qn_tag_words;

enum { QN_TOOL_OPENS = 2, QN_TOOL_MARKS = 10, QN_TOOL_FOUND = 3 };

struct qn_tool_format {
    const char *name;
    /* What its templates have: one of these pairs. */
    const char *found[QN_TOOL_FOUND][2];
    /* Where a call may begin, and what tokens may be parts of it. */
    const char *opens[QN_TOOL_OPENS];
    const char *marks[QN_TOOL_MARKS];
    qn_step (*step)(qn_tool_parser *p);
    const qn_tag_words *tags;
    const char *quote, *close; /* braces.c */
    bool cdata;                /* tags.c: values may stand in sections */
    size_t id_size;
    /* An answer that begins with '{' may be a call: open -1. */
    bool whole_message;
};

typedef struct qn_tool {
    qn_str name;
    const qn_json *properties; /* NULL: none */
} qn_tool;

struct qn_tools {
    qn_json_doc *doc;
    size_t count;
    qn_tool items[QN_MOST_TOOLS];
};

/* See tools.h for what a parser does. */
struct qn_tool_parser {
    const qn_tool_format *format;
    const qn_tools *tools;
    qn_tool_take take;
    void *data;
    qn_status status; /* of `take`, the first failure */

    qn_buf text;  /* fed, from the first byte that may be needed */
    size_t limit; /* of it: whole characters */
    size_t pos;   /* of it: read */
    size_t held;  /* of it: comes back if this is no call */
    bool inside;  /* of a call, or between some */
    bool trying;  /* a call has begun and is not announced */
    bool doubt;   /* what follows a call may be another one, or text */
    bool announced;
    int open; /* which of the format's opens began it */

    /* Text since the last call: white space is not told until something else
     * comes. */
    qn_buf space;
    bool said;
    bool called;   /* a call was announced */
    bool anything; /* there was something before, so no message begins */
    bool last;     /* no more text comes */
    size_t failures;

    /* The formats' own, cleared when a call begins. */
    int state;
    qn_scan scan;
    qn_buf key, value, name, arguments;
    const qn_tool *tool; /* of the name, once it is known */
    unsigned types;      /* of the value */
    size_t seen;         /* bytes from pos on that were searched */
    bool has_arguments;
    int depth;
    uint8_t levels[QN_JSON_MAX_DEPTH]; /* closing characters */
    char quote[4];                     /* that ends a string */
};

/* ---- reading (read.c) ---- */

/* Whether `set` has the byte. */
static inline bool qn_tool_in(const char *set, char c)
{
    return c && strchr(set, c);
}

static inline bool qn_tool_is_space(char c)
{
    return qn_tool_in(" \n\t\r", c);
}

/* What is there from p->pos on. */
qn_str qn_tool_left(const qn_tool_parser *p);
/* Takes white space. */
void qn_tool_space(qn_tool_parser *p);
/* Takes `word` if it comes next: ON; MORE if it may; else FAULT. */
qn_step qn_tool_word(qn_tool_parser *p, const char *word);
/* The same with white space before it. */
qn_step qn_tool_word_after_space(qn_tool_parser *p, const char *word);
/* Appends what comes before `word`, at most `most` bytes, to `out` and takes
 * both. */
qn_step qn_tool_until(qn_tool_parser *p, qn_buf *out, const char *word,
                      size_t most);
/* Takes a JSON value (more of p->scan) and appends it to `out`; ON when it is
 * whole. */
qn_step qn_tool_scan(qn_tool_parser *p, qn_buf *out);
/* Appends more of a text that ends before `word` as the inside of a JSON
 * string; ON once the word is taken.  `trim`: a line end before it is its. */
qn_step qn_tool_string(qn_tool_parser *p, const char *word, bool trim);
/* Replaces a JSON string in `buf` by what it says. */
qn_step qn_tool_unquote(qn_tool_parser *p, qn_buf *buf);
/* Appends text as the inside of a JSON string. */
void qn_tool_escape(qn_buf *out, qn_str text);

/* ---- calls (parser.c) ---- */

/* Returns `step`; after ON the format goes on in `state`. */
qn_step qn_tool_go(qn_tool_parser *p, qn_step step, int state);
/* A further call may begin here: what comes from here on comes back if not. */
void qn_tool_try(qn_tool_parser *p);
/* The same where `word` comes next, with white space before it: takes both and
 * returns ON; MORE and FAULT as qn_tool_word, and nothing is done. */
qn_step qn_tool_try_word(qn_tool_parser *p, const char *word);
/* Whether p->name (white space and quotes around it are dropped) is a function
 * of the request; sets p->tool. */
bool qn_tool_known(qn_tool_parser *p);
/* Announces the call, if it is not yet. */
void qn_tool_announce(qn_tool_parser *p);
/* The call is whole, with p->arguments or without any. */
void qn_tool_end(qn_tool_parser *p);
/* Everything up to here was understood. */
void qn_tool_settle(qn_tool_parser *p);
/* Appends the key and what is before and behind it to the arguments. */
void qn_tool_add_key(qn_tool_parser *p, qn_str key);

/* ---- values (values.c) ---- */

/* Types that the schema of the function's parameter `key` allows. */
unsigned qn_tool_types(const qn_tool *tool, qn_str key);
/* Appends a value whose text came without quotes. */
void qn_tool_add_value(qn_tool_parser *p, qn_str text, unsigned types);

/* ---- formats ---- */

qn_step qn_step_hermes(qn_tool_parser *p);
qn_step qn_step_llama3(qn_tool_parser *p);
qn_step qn_step_kimi(qn_tool_parser *p);
qn_step qn_step_mistral(qn_tool_parser *p);
qn_step qn_step_harmony(qn_tool_parser *p);
qn_step qn_step_tags(qn_tool_parser *p);
qn_step qn_step_braces(qn_tool_parser *p);
qn_step qn_step_python(qn_tool_parser *p);

#endif
