/* template.c: the public face of the Jinja engine in jinja/.
 *
 * lex.c and parse.c make a tree (ast.h) once; each rendering is a run (run.h)
 * of exec.c (statements) and eval.c (expressions) over it, with its own
 * arena.  Values are in value.c, strings with their taint in str.c and
 * chars.c, printing in print.c, iterators in iter.c.  A new filter, test,
 * method or global function is a row of the .def file of that name and a C
 * function beside it. */
#include "template.h"

#include "base/alloc.h"
#include "text/jinja/call.h"
#include "text/jinja/run.h"

struct qn_template {
    qn_jtemplate tree;
};

qn_status qn_template_parse(qn_template **out, qn_str source)
{
    qn_template *tmpl = qn_calloc(1, sizeof *tmpl);
    if (!tmpl)
        return QN_E_NOMEM;
    qn_status status = qn_jparse(&tmpl->tree, source);
    if (status) {
        qn_template_free(tmpl);
        return status;
    }
    *out = tmpl;
    return QN_OK;
}

void qn_template_free(qn_template *tmpl)
{
    if (!tmpl)
        return;
    qn_arena_free(&tmpl->tree.arena);
    qn_free(tmpl);
}

bool qn_template_mentions(const qn_template *tmpl, const char *variable)
{
    for (uint32_t i = 0; i < tmpl->tree.symbol_count; i++)
        if (tmpl->tree.symbols[i].read &&
            qn_str_is(qn_jstr_str(tmpl->tree.symbols[i].name), variable))
            return true;
    return false;
}

static bool is_tainted(qn_str name, const char *const *tainted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (qn_str_is(name, tainted[i]))
            return true;
    return false;
}

/* Looks up each name that the template reads: the given variables before the
 * functions that every template has. */
static void set_variables(qn_jrun *run, const qn_json *vars,
                          const char *const *tainted, size_t tainted_count)
{
    uint32_t count = run->tmpl->symbol_count;
    run->variables = qn_jrun_array(run, count, sizeof *run->variables);
    for (uint32_t i = 0; i < count && qn_jrun_ok(run); i++) {
        const qn_jsymbol *symbol = &run->tmpl->symbols[i];
        qn_str name = qn_jstr_str(symbol->name);
        const qn_json *given =
            symbol->read ? qn_json_get_str(vars, name) : NULL;
        const qn_jrow *global = given ? NULL : qn_jglobal_find(name);
        if (given)
            run->variables[i] = qn_jval_from_json(
                run, given, is_tainted(name, tainted, tainted_count));
        else if (global)
            run->variables[i] =
                (qn_jval){.kind = QN_J_FUNCTION, .as.function = global};
        else
            run->variables[i] = qn_jmissing();
    }
}

/* Appends the bitmap of the rendered text's tainted spans. */
static void add_bitmap(qn_buf *taint, const qn_jbuild *text)
{
    size_t size = (text->size + 7) / 8, base = taint->size;
    if (!qn_buf_reserve(taint, size))
        return;
    memset(taint->data + base, 0, size);
    for (uint32_t i = 0; i < text->span_count; i++)
        for (size_t at = text->spans[i].from; at < text->spans[i].to; at++)
            taint->data[base + at / 8] |= (char)(1 << at % 8);
    taint->size = base + size;
}

qn_status qn_template_render(const qn_template *tmpl, qn_buf *out,
                             qn_buf *taint, const qn_json *vars,
                             const char *const *tainted, size_t tainted_count)
{
    qn_jrun run = {.tmpl = &tmpl->tree};
    qn_jbuild text = qn_jbuild_new(&run);
    run.out = &text;
    set_variables(&run, vars, tainted, tainted_count);
    if (qn_jrun_ok(&run))
        qn_jrun_template(&run);
    qn_status status = run.status;
    if (!status && text.size)
        qn_buf_add(out, text.data, text.size);
    if (!status && taint)
        add_bitmap(taint, &text);
    if (!status)
        status = qn_buf_status(out);
    if (!status && taint)
        status = qn_buf_status(taint);
    qn_arena_free(&run.arena);
    return status;
}
