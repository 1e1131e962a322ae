/* generate.c: a job that is waited for. */
#include "job.h"

/* What the callback was told. */
typedef struct told {
    size_t text, thought, tokens;
    size_t calls, arguments; /* of the last call */
    bool whole;              /* it has ended */
} told;

static void count(told *t, const quern_event *event)
{
    if (event->type == QUERN_EVENT_TEXT)
        t->text += event->size;
    if (event->type == QUERN_EVENT_REASONING)
        t->thought += event->size;
    if (event->type == QUERN_EVENT_CALL) {
        t->calls++;
        t->arguments = 0;
    }
    if (event->type == QUERN_EVENT_ARGUMENTS)
        t->arguments += event->size;
    if (event->type == QUERN_EVENT_CALL || event->type == QUERN_EVENT_CALL_END)
        t->whole = event->whole;
    t->tokens += event->token_count;
}

/* The model's thread may have been further than the callback that stopped it:
 * the result ends where that did. */
static void cut(quern_result *r, const told *t)
{
    if (r->text && t->text < r->size)
        r->text[r->size = t->text] = '\0';
    if (r->reasoning && t->thought < r->reasoning_size)
        r->reasoning[r->reasoning_size = t->thought] = '\0';
    if (t->tokens < r->token_count)
        r->token_count = t->tokens;
    if (t->calls < r->call_count)
        r->call_count = t->calls;
    if (!r->call_count)
        return;
    quern_call *last = &r->calls[r->call_count - 1];
    last->whole = last->whole && t->whole;
    last->size = t->arguments < last->size ? t->arguments : last->size;
}

quern_status quern_generate(quern_session *session,
                            const quern_request *request,
                            quern_event_fn on_event, void *data,
                            quern_result *result, quern_error *error)
{
    quern_job *job;
    if (result)
        *result = (quern_result){.stop = -1, .end_id = -1};
    quern_status status =
        quern_submit(&job, session->model, session, request, error);
    if (status)
        return status;
    told t = {.text = 0};
    quern_event event;
    bool stopped = false;
    while (on_event && !stopped && quern_job_next(job, -1, &event) &&
           event.type != QUERN_EVENT_DONE) {
        count(&t, &event);
        stopped = !on_event(data, &event);
    }
    if (stopped)
        quern_job_cancel(job);
    status = quern_job_result(job, result, error);
    quern_job_free(job);
    if (!stopped)
        return status;
    /* It may have ended before it could be stopped. */
    if (result) {
        cut(result, &t);
        if (!status)
            result->finish = QUERN_FINISH_CANCELLED;
    }
    return status ? status
                  : qn_give(error, qn_fail(QN_E_CANCELLED, "cancelled"));
}
