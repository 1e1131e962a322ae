/* added.c: the tree of added tokens.
 *
 * A node is one byte of content; its children are a list of siblings.  Most
 * text positions are passed by looking at one byte of `first`. */
#include "added.h"

#include "base/alloc.h"
#include "unicode.h"

typedef struct qn_added_node {
    uint32_t child, sibling; /* 0: none (node 0 is not used) */
    int32_t token;           /* index of the token that ends here, or -1 */
    uint8_t byte;
} node;

void qn_added_free(qn_added_set *set)
{
    qn_free(set->tokens);
    qn_free(set->nodes);
    *set = (qn_added_set){0};
}

/* ---- building ---- */

static qn_status new_node(qn_added_set *set, uint8_t byte, uint32_t *out)
{
    if (set->node_count == set->node_capacity) {
        size_t capacity = set->node_capacity ? 2 * set->node_capacity : 256;
        node *nodes = qn_reallocarray(set->nodes, capacity, sizeof *nodes);
        if (!nodes)
            return QN_E_NOMEM;
        set->nodes = nodes;
        set->node_capacity = capacity;
        if (!set->node_count)
            set->nodes[set->node_count++] = (node){.token = -1};
    }
    if (set->node_count > UINT32_MAX)
        return qn_fail(QN_E_FORMAT, "too many added tokens");
    set->nodes[set->node_count] = (node){.token = -1, .byte = byte};
    *out = (uint32_t)set->node_count++;
    return QN_OK;
}

static uint32_t child_of(const qn_added_set *set, uint32_t at, uint8_t byte)
{
    uint32_t child = set->nodes[at].child;
    while (child && set->nodes[child].byte != byte)
        child = set->nodes[child].sibling;
    return child;
}

/* The node of `content`, made where it is missing. */
static qn_status reach(qn_added_set *set, qn_str content, uint32_t *out)
{
    const uint8_t *bytes = (const uint8_t *)content.data;
    uint32_t at = set->first[bytes[0]];
    if (!at) {
        qn_status status = new_node(set, bytes[0], &at);
        if (status)
            return status;
        set->first[bytes[0]] = at;
    }
    for (size_t i = 1; i < content.size; i++) {
        uint32_t next = child_of(set, at, bytes[i]);
        if (!next) {
            qn_status status = new_node(set, bytes[i], &next);
            if (status)
                return status;
            set->nodes[next].sibling = set->nodes[at].child;
            set->nodes[at].child = next;
        }
        at = next;
    }
    *out = at;
    return QN_OK;
}

qn_status qn_added_add(qn_added_set *set, qn_added_token token, qn_str content)
{
    if (!content.size)
        return QN_OK;
    if (content.size > QN_ADDED_MAX)
        return qn_fail(QN_E_UNSUPPORTED,
                       "an added token of %zu bytes: expected at most %d",
                       content.size, QN_ADDED_MAX);
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? 2 * set->capacity : 32;
        qn_added_token *tokens =
            qn_reallocarray(set->tokens, capacity, sizeof *tokens);
        if (!tokens)
            return QN_E_NOMEM;
        set->tokens = tokens;
        set->capacity = capacity;
    }
    uint32_t at;
    qn_status status = reach(set, content, &at);
    if (status)
        return status;
    set->nodes[at].token = (int32_t)set->count;
    set->tokens[set->count++] = token;
    set->any_special |= token.special;
    return QN_OK;
}

/* ---- finding ---- */

static bool word_before(qn_str text, size_t at)
{
    uint32_t code;
    if (!at)
        return false;
    qn_uc_prev(text.data + at, &code);
    return (qn_uc_class(code) & QN_UC_WORD) != 0;
}

static bool word_after(qn_str text, size_t at)
{
    uint32_t code;
    if (at == text.size)
        return false;
    qn_uc_next(text.data + at, &code);
    return (qn_uc_class(code) & QN_UC_WORD) != 0;
}

static bool may_match(const qn_added_token *token, qn_str text, size_t begin,
                      size_t end, bool special, const char *marks)
{
    if (token->special &&
        (!special || (marks && memchr(marks + begin, 1, end - begin))))
        return false;
    return !token->single_word ||
           (!word_before(text, begin) && !word_after(text, end));
}

/* The longest token at `begin` that may match there, or NULL. */
static const qn_added_token *match_at(const qn_added_set *set, qn_str text,
                                      size_t begin, bool special,
                                      const char *marks, size_t *end)
{
    const qn_added_token *best = NULL;
    uint32_t at = set->first[(uint8_t)text.data[begin]];
    for (size_t i = begin + 1; at; i++) {
        int32_t index = set->nodes[at].token;
        if (index >= 0 &&
            may_match(&set->tokens[index], text, begin, i, special, marks)) {
            best = &set->tokens[index];
            *end = i;
        }
        if (i == text.size)
            break;
        at = child_of(set, at, (uint8_t)text.data[i]);
    }
    return best;
}

bool qn_added_find(const qn_added_set *set, qn_str text, size_t from,
                   bool special, const char *marks, qn_added_match *out)
{
    if (!set->count)
        return false;
    for (size_t i = from; i < text.size; i++) {
        if (!set->first[(uint8_t)text.data[i]])
            continue;
        size_t end = i;
        const qn_added_token *token =
            match_at(set, text, i, special, marks, &end);
        if (!token)
            continue;
        size_t begin = i;
        uint32_t code;
        while (token->lstrip && begin > from) {
            int length = qn_uc_prev(text.data + begin, &code);
            if (!qn_uc_is_space(code))
                break;
            begin -= (size_t)length;
        }
        while (token->rstrip && end < text.size) {
            int length = qn_uc_next(text.data + end, &code);
            if (!qn_uc_is_space(code))
                break;
            end += (size_t)length;
        }
        *out = (qn_added_match){token->id, begin, end};
        return true;
    }
    return false;
}
