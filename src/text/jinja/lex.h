/* lex.h: from template text to tokens, white space control included. */
#ifndef QN_TEXT_JINJA_LEX_H
#define QN_TEXT_JINJA_LEX_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/status.h"

typedef enum qn_jtoken_kind {
    QN_JT_EOF,
    QN_JT_TEXT,
    QN_JT_BLOCK_BEGIN,
    QN_JT_BLOCK_END,
    QN_JT_PRINT_BEGIN,
    QN_JT_PRINT_END,
    QN_JT_NAME,
    QN_JT_STRING,
    QN_JT_INTEGER,
    QN_JT_FLOAT,
    QN_JT_ADD,
    QN_JT_SUB,
    QN_JT_MUL,
    QN_JT_POW,
    QN_JT_DIV,
    QN_JT_FLOORDIV,
    QN_JT_MOD,
    QN_JT_TILDE,
    QN_JT_LPAREN,
    QN_JT_RPAREN,
    QN_JT_LBRACKET,
    QN_JT_RBRACKET,
    QN_JT_LBRACE,
    QN_JT_RBRACE,
    QN_JT_EQ,
    QN_JT_NE,
    QN_JT_LT,
    QN_JT_LE,
    QN_JT_GT,
    QN_JT_GE,
    QN_JT_ASSIGN,
    QN_JT_DOT,
    QN_JT_COLON,
    QN_JT_PIPE,
    QN_JT_COMMA,
    QN_JT_SEMICOLON
} qn_jtoken_kind;

typedef struct qn_jtoken {
    qn_jtoken_kind kind;
    uint32_t line; /* from 1 */
    qn_str text;   /* TEXT, NAME; STRING: unescaped; numbers: spelling */
} qn_jtoken;

/* Splits `source`; *out (free with qn_free) ends with an EOF token.  Texts
 * live in the arena.  QN_E_FORMAT with the line on bad input. */
qn_status qn_jlex(qn_jtoken **out, qn_arena *arena, qn_str source);

#endif
