/* request.c: the flags of an answer into a request. */
#include "cli.h"

#include "base/utf8.h"

#include <string.h>

qn_status qn_cli_check_text(const char *what, qn_str text)
{
    size_t bad;
    if (!qn_utf8_valid(text, &bad))
        return qn_fail(QN_E_ARG, "%s: not valid UTF-8 at byte %zu", what, bad);
    if (text.size && memchr(text.data, 0, text.size))
        return qn_fail(QN_E_ARG, "%s: it has a NUL byte", what);
    return QN_OK;
}

qn_status qn_cli_check_request(const qn_arg *flag)
{
    enum { MAX_STOPS = 16, MAX_STOP = 256 };
    const qn_arg *stop = &flag[QN_FLAG_STOP];
    if (stop->list_count > MAX_STOPS)
        return qn_fail(QN_E_ARG, "--stop: expected at most %d, found %zu",
                       MAX_STOPS, stop->list_count);
    for (size_t i = 0; i < stop->list_count; i++) {
        qn_str text = qn_str_of(stop->list[i]);
        if (!text.size || text.size > MAX_STOP)
            return qn_fail(QN_E_ARG,
                           "--stop '%s': expected 1 to %d bytes, found %zu",
                           stop->list[i], MAX_STOP, text.size);
        qn_status status = qn_cli_check_text("--stop", text);
        if (status)
            return status;
    }
    const qn_arg *min = &flag[QN_FLAG_MIN_TOKENS];
    const qn_arg *max = &flag[QN_FLAG_MAX_TOKENS];
    if (min->given && max->given && min->whole > max->whole)
        return qn_fail(QN_E_ARG,
                       "--min-tokens %lld: expected at most --max-tokens %lld",
                       (long long)min->whole, (long long)max->whole);
    return flag[QN_FLAG_SYSTEM].given
               ? qn_cli_check_text("--system",
                                   qn_str_of(flag[QN_FLAG_SYSTEM].text))
               : QN_OK;
}

static void set_sampling(quern_sampling *s, const qn_arg *flag)
{
    const struct {
        qn_flag id;
        double *to;
    } reals[] = {
        {QN_FLAG_TEMPERATURE, &s->temperature},
        {QN_FLAG_TOP_P, &s->top_p},
        {QN_FLAG_MIN_P, &s->min_p},
        {QN_FLAG_TYPICAL_P, &s->typical_p},
        {QN_FLAG_XTC_PROBABILITY, &s->xtc_probability},
        {QN_FLAG_XTC_THRESHOLD, &s->xtc_threshold},
        {QN_FLAG_REPETITION, &s->repetition_penalty},
        {QN_FLAG_PRESENCE, &s->presence_penalty},
        {QN_FLAG_FREQUENCY, &s->frequency_penalty},
    };
    const struct {
        qn_flag id;
        int32_t *to;
    } counts[] = {
        {QN_FLAG_TOP_K, &s->top_k},
        {QN_FLAG_REPETITION_SIZE, &s->repetition_context_size},
        {QN_FLAG_PRESENCE_SIZE, &s->presence_context_size},
        {QN_FLAG_FREQUENCY_SIZE, &s->frequency_context_size},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (flag[reals[i].id].given)
            *reals[i].to = flag[reals[i].id].real;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (flag[counts[i].id].given)
            *counts[i].to = (int32_t)flag[counts[i].id].whole;
    if (flag[QN_FLAG_SEED].given) {
        s->has_seed = true;
        s->seed = (uint64_t)flag[QN_FLAG_SEED].whole;
    }
}

void qn_cli_set_request(quern_request *request, const qn_args *args)
{
    const qn_arg *flag = args->flag;
    set_sampling(&request->sampling, flag);
    if (flag[QN_FLAG_MAX_TOKENS].given)
        request->max_tokens = flag[QN_FLAG_MAX_TOKENS].whole;
    if (flag[QN_FLAG_MIN_TOKENS].given)
        request->min_tokens = flag[QN_FLAG_MIN_TOKENS].whole;
    request->ignore_eos = flag[QN_FLAG_IGNORE_EOS].on;
    request->stops = flag[QN_FLAG_STOP].list;
    request->stop_count = flag[QN_FLAG_STOP].list_count;
    if (flag[QN_FLAG_THINK].given && !flag[QN_FLAG_THINK].on)
        request->chat.variables = "{\"enable_thinking\": false}";
    if (flag[QN_FLAG_LOGPROBS].given) {
        request->logprobs = true;
        request->top_logprobs = (int)flag[QN_FLAG_LOGPROBS].whole;
    }
}
