/* route.c: see route.h. */
#include "route.h"

#include "pages.h"

static const qn_route routes[] = {
#define QN_ROUTE(method, path, access, name, page)                             \
    {method, path, QN_ACCESS_##access, name, page, NULL},
#define QN_PROTOCOL(method, path, access, name, protocol)                      \
    {method, path, QN_ACCESS_##access, name, NULL, &protocol},
#include "routes.def"
};

enum { ROUTES = sizeof routes / sizeof *routes };

/* Whether `path` is one of a route's; *id is what stands for {id}. */
static bool fits(const char *pattern, qn_str path, qn_str *id)
{
    const char *brace = strchr(pattern, '{');
    *id = (qn_str){"", 0};
    if (!brace)
        return qn_str_is(path, pattern);
    size_t before = (size_t)(brace - pattern);
    if (path.size <= before || memcmp(path.data, pattern, before) != 0)
        return false;
    *id = (qn_str){path.data + before, path.size - before};
    return id->size && !memchr(id->data, '/', id->size);
}

static void add_method(qn_buf *allow, const char *method)
{
    if (allow->size)
        qn_buf_add_text(allow, ", ");
    qn_buf_add_text(allow, method);
    if (!strcmp(method, "GET"))
        qn_buf_add_text(allow, ", HEAD");
}

const qn_route *qn_route_find(qn_str method, qn_str path, qn_str *id,
                              qn_buf *allow)
{
    const char *first = NULL;
    if (qn_str_is(method, "HEAD"))
        method = QN_STR("GET");
    for (size_t i = 0; i < ROUTES; i++) {
        qn_str part;
        /* A path that is spelled out is not one with an {id} besides. */
        if (!fits(routes[i].path, path, &part) ||
            (first && strcmp(first, routes[i].path) != 0))
            continue;
        first = routes[i].path;
        if (qn_str_is(method, routes[i].method)) {
            *id = part;
            return &routes[i];
        }
        add_method(allow, routes[i].method);
    }
    return NULL;
}

qn_api_style qn_route_style(qn_str path)
{
    static const char anthropic[] = "/v1/messages";
    size_t size = sizeof anthropic - 1;
    qn_str id;
    for (size_t i = 0; i < ROUTES; i++)
        if (routes[i].protocol && fits(routes[i].path, path, &id))
            return routes[i].protocol->style;
    /* Also what there is not below it: those who ask are the same. */
    bool below = path.size > size && path.data[size] == '/' &&
                 !memcmp(path.data, anthropic, size);
    return below ? QN_API_ANTHROPIC : QN_API_OPENAI;
}
