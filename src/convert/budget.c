/* budget.c: widths of modules for a number of bits per weight.
 *
 * What a module's rounding costs is the error of its products (measure.c) times
 * what such an error does to the model, which is tried for each kind of module
 * (the q_proj of all layers, say) at one width: the divergence of the model's
 * probabilities that all of them make together, over the sum of their errors.
 *
 * Every module begins with the least width.  Then, as long as there are bits
 * left, that module gets a larger one whose error (measure.c) falls most for
 * each bit that it takes; a step may skip widths that gain little. */
#include "convert.h"

#include "base/alloc.h"

static const int widths[] = {2, 3, 4, 5, 6, 8};
enum { WIDTHS = sizeof widths / sizeof *widths };

typedef struct choice {
    qn_item *item;
    double error[WIDTHS];
    int at; /* of widths */
} choice;

typedef struct budget {
    qn_origin *source;
    choice *choices;
    size_t count;
    double parameters, bits; /* of all; with the present widths */
} budget;

static double elements(const choice *c)
{
    return (double)c->item->rows * (double)c->item->cols;
}

/* The bits that another width takes more. */
static double more_bits(const choice *c, int to)
{
    return elements(c) * (widths[to] - widths[c->at]);
}

/* Applies the present widths. */
static qn_status apply(budget *b, const quern_convert_options *o)
{
    for (size_t i = 0; i < b->count; i++)
        b->choices[i].item->budget_bits = widths[b->choices[i].at];
    return qn_recipe_apply(b->source, o);
}

static qn_status list_choices(budget *b, const quern_convert_options *o)
{
    qn_origin *s = b->source;
    b->choices = qn_calloc(s->count ? s->count : 1, sizeof *b->choices);
    if (!b->choices)
        return QN_E_NOMEM;
    for (size_t i = 0; i < s->count; i++) {
        qn_item *item = &s->items[i];
        b->parameters += (double)item->rows * (double)item->cols;
        if (item->flexible && item->action == QN_QUANT)
            b->choices[b->count++].item = item;
    }
    int files;
    uint64_t bytes = 0;
    qn_status status = apply(b, o);
    if (!status)
        status = qn_st_plan(s, o->shard_size, &files, &bytes);
    b->bits = 8.0 * (double)bytes;
    return status;
}

static qn_status measure_one(choice *c, mlx_stream stream)
{
    qn_quant forms[WIDTHS];
    for (int k = 0; k < WIDTHS; k++) {
        forms[k] = c->item->quant;
        forms[k].bits = widths[k];
    }
    return qn_measure_errors(c->error, c->item, forms, WIDTHS, stream);
}

static qn_status measure(budget *b, qn_step_fn step, void *data)
{
    mlx_stream stream = {NULL};
    double done = 0, total = 0;
    qn_status status = qn_convert_stream(&stream);
    for (size_t i = 0; i < b->count; i++)
        total += elements(&b->choices[i]);
    for (size_t i = 0; i < b->count && !status; i++) {
        choice *c = &b->choices[i];
        status = measure_one(c, stream);
        done += elements(c);
        if (!status && step && !step(data, (int64_t)done, (int64_t)total))
            status = qn_fail(QN_E_CANCELLED, "stopped");
    }
    if (stream.ctx)
        mlx_stream_free(stream);
    return status;
}

/* ---- kinds ---- */

enum { KINDS = 64, TRIAL = 2 /* of widths: 4 bits */ };

typedef struct kinds {
    const char *names[KINDS];
    double errors[KINDS], harm[KINDS];
    int count;
    int *of; /* each item's, or -1 */
    qn_quant *forms;
} kinds;

/* The kind that is called like the last part of the module's path; what comes
 * after the first KINDS are the last kind. */
static int kind_of(kinds *k, const char *module)
{
    const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
    for (int i = 0; i < k->count; i++)
        if (!strcmp(k->names[i], name))
            return i;
    if (k->count == KINDS)
        return KINDS - 1;
    k->names[k->count] = name;
    return k->count++;
}

static qn_status list_kinds(kinds *k, const budget *b)
{
    size_t count = b->source->count;
    k->of = qn_calloc(count ? count : 1, sizeof *k->of);
    k->forms = qn_calloc(count ? count : 1, sizeof *k->forms);
    if (!k->of || !k->forms)
        return QN_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        k->of[i] = -1;
    for (size_t i = 0; i < b->count; i++) {
        const choice *c = &b->choices[i];
        size_t at = (size_t)(c->item - b->source->items);
        k->of[at] = kind_of(k, c->item->module);
        k->forms[at] = c->item->quant;
        k->forms[at].bits = widths[TRIAL];
        k->errors[k->of[at]] += c->error[TRIAL];
    }
    return QN_OK;
}

/* Makes errors of products errors of the model.  What could not be tried, as
 * experts, counts like the mean of the others. */
static void weigh(budget *b, const kinds *k)
{
    double each[KINDS] = {0}, sum = 0;
    int tried = 0;
    for (int i = 0; i < k->count; i++)
        if (k->harm[i] > 0 && k->errors[i] > 0) {
            each[i] = k->harm[i] / k->errors[i];
            sum += each[i];
            tried++;
        }
    for (size_t i = 0; i < b->count; i++) {
        choice *c = &b->choices[i];
        double weight = each[k->of[c->item - b->source->items]];
        if (!(weight > 0))
            weight = tried ? sum / tried : 1;
        for (int n = 0; n < WIDTHS; n++)
            c->error[n] *= weight;
    }
}

static qn_status try_kinds(budget *b, qn_str text, qn_step_fn step, void *data)
{
    kinds k = {.count = 0};
    qn_status status = list_kinds(&k, b);
    if (!status)
        status = qn_measure_harm(k.harm, b->source, k.of, k.count, k.forms,
                                 text, step, data);
    if (!status)
        weigh(b, &k);
    qn_free(k.of);
    qn_free(k.forms);
    return status;
}

/* ---- spending ---- */

/* The best step that takes at most `room` bits; false: there is none. */
static bool best_step(const budget *b, double room, choice **which, int *to)
{
    double best = -1;
    for (size_t i = 0; i < b->count; i++) {
        choice *c = &b->choices[i];
        for (int k = c->at + 1; k < WIDTHS; k++) {
            double bits = more_bits(c, k);
            double gain = (c->error[c->at] - c->error[k]) / bits;
            if (bits > room || gain <= best)
                continue;
            best = gain;
            *which = c;
            *to = k;
        }
    }
    return best >= 0;
}

static void spend(budget *b, double most)
{
    choice *c;
    int to;
    while (best_step(b, most - b->bits, &c, &to)) {
        b->bits += more_bits(c, to);
        c->at = to;
    }
}

/* One more step over the target, the smallest there is. */
static void spend_over(budget *b, double most)
{
    choice *smallest = NULL;
    for (size_t i = 0; i < b->count; i++) {
        choice *c = &b->choices[i];
        if (c->at + 1 < WIDTHS &&
            (!smallest ||
             more_bits(c, c->at + 1) < more_bits(smallest, smallest->at + 1)))
            smallest = c;
    }
    if (!smallest || b->bits + more_bits(smallest, smallest->at + 1) > most)
        return;
    b->bits += more_bits(smallest, smallest->at + 1);
    smallest->at++;
}

static qn_status unreachable(const budget *b, double target)
{
    double least = b->bits, most = b->bits;
    for (size_t i = 0; i < b->count; i++)
        most += more_bits(&b->choices[i], WIDTHS - 1);
    return qn_fail(QN_E_UNSUPPORTED,
                   "%.4g bits per weight can't be reached: %.2f to %.2f can",
                   target, least / b->parameters, most / b->parameters);
}

static bool is_reachable(const budget *b, double target)
{
    double most = b->bits;
    for (size_t i = 0; i < b->count; i++)
        most += more_bits(&b->choices[i], WIDTHS - 1);
    return b->parameters > 0 &&
           target >= b->bits / b->parameters - QN_BUDGET_SLACK &&
           target <= most / b->parameters + QN_BUDGET_SLACK;
}

static qn_status choose(budget *b, double target)
{
    double slack = QN_BUDGET_SLACK * b->parameters;
    spend(b, target * b->parameters);
    if (b->bits < target * b->parameters - slack)
        spend_over(b, target * b->parameters + slack);
    double reached = b->bits / b->parameters;
    if (reached >= target - QN_BUDGET_SLACK &&
        reached <= target + QN_BUDGET_SLACK)
        return QN_OK;
    return qn_fail(QN_E_UNSUPPORTED,
                   "%.4g bits per weight can't be reached with these modules: "
                   "%.2f can",
                   target, reached);
}

qn_status qn_budget_assign(qn_origin *source, const quern_convert_options *o,
                           qn_str text, qn_step_fn step, void *data)
{
    budget b = {.source = source};
    qn_status status = list_choices(&b, o);
    if (!status && !is_reachable(&b, o->target_bpw))
        status = unreachable(&b, o->target_bpw);
    if (!status)
        status = measure(&b, step, data);
    if (!status)
        status = try_kinds(&b, text, step, data);
    if (!status)
        status = choose(&b, o->target_bpw);
    if (!status)
        status = apply(&b, o);
    qn_free(b.choices);
    return status;
}
