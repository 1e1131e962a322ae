/* fuzz_talk.c: saved conversations, and histories.
 *
 * The first byte says which.  A conversation that is accepted gives messages
 * that are JSON again, with as many entries. */
#include "fuzz.h"

#include "cli/talk.h"

#include <string.h>

static void check_talk(const qn_talk *talk)
{
    qn_buf text = QN_BUF_INIT;
    qn_json_doc *doc = NULL;
    FUZZ_CHECK(!qn_talk_json(talk, &text));
    FUZZ_CHECK(!qn_json_parse(&doc, qn_buf_str(&text), 0));
    FUZZ_CHECK(qn_json_root(doc)->count ==
               talk->count + (talk->system != NULL));
    for (size_t i = 0; i < talk->count; i++)
        FUZZ_CHECK(!strcmp(talk->items[i].role, "user") ||
                   !strcmp(talk->items[i].role, "assistant"));
    qn_json_doc_free(doc);
    qn_buf_free(&text);
}

static void note(void *data, const char *text)
{
    *(size_t *)data += strlen(text) + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    qn_str text = {(const char *)data + 1, size - 1};
    if (data[0] == 'h') {
        size_t seen = 0;
        (void)qn_history_parse(text, note, &seen);
        FUZZ_CHECK(seen <= size);
        return 0;
    }
    qn_talk talk = {0};
    FUZZ_CHECK(!qn_talk_add(&talk, "user", QN_STR("before")));
    qn_status status = qn_talk_parse(&talk, text);
    FUZZ_CHECK(!status || (talk.count == 1 && !talk.system));
    check_talk(&talk);
    qn_talk_clear(&talk);
    return 0;
}
