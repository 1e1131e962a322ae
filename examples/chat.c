/* chat.c: each line of standard input is a question; the session keeps what
 * was computed of the conversation.  cc chat.c $(pkg-config --libs quern) */
#include <quern/quern.h>

#include <stdio.h>
#include <string.h>

static bool print(void *data, const quern_event *event)
{
    (void)data;
    return event->type != QUERN_EVENT_TEXT || printf("%s", event->text) >= 0;
}

int main(int argc, char **argv)
{
    static char line[4096], messages[1 << 20] = "[";
    quern_error error;
    quern_model *model = NULL;
    quern_session *session = NULL;
    if (argc < 2 || quern_model_load(&model, argv[1], NULL, &error) ||
        quern_session_new(&session, model, &error))
        return fprintf(stderr, "%s\n", argc < 2 ? "MODEL?" : error.message), 1;
    size_t size = 1;
    while (fgets(line, sizeof line, stdin) && size < sizeof messages / 2) {
        line[strcspn(line, "\n\"\\")] = '\0'; /* texts without JSON's own */
        size += (size_t)sprintf(messages + size,
                                "{\"role\": \"user\", "
                                "\"content\": \"%s\"}]",
                                line);
        quern_request request;
        quern_request_init(&request, model);
        request.chat.messages = messages;
        request.sampling.temperature = 0;
        request.max_tokens = 32;
        quern_result result;
        if (quern_generate(session, &request, print, NULL, &result, &error))
            return fprintf(stderr, "%s\n", error.message), 1;
        printf("\n");
        size--; /* over the bracket: the conversation goes on */
        size += (size_t)sprintf(messages + size, ",");
        quern_result_free(&result);
    }
    quern_session_free(session);
    quern_model_free(model);
    return 0;
}
