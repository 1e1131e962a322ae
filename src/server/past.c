/* past.c: see past.h. */
#include "past.h"

#include "route.h"

#include <sys/socket.h>

static const char *reason_of(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 503:
        return "Service Unavailable";
    default:
        return "Gateway Timeout";
    }
}

int qn_reply_past_library(int fd, const qn_exchange *x, qn_api_code code,
                          const char *message)
{
    qn_api_style style =
        x && x->head.path.size ? qn_route_style(x->head.path) : QN_API_OPENAI;
    const char *id = x ? x->request_id : "";
    int status = qn_api_code_status(code, style);
    qn_api_error error;
    qn_buf body = QN_BUF_INIT, out = QN_BUF_INIT;
    qn_api_fail(&error, code, NULL, "%s", message);
    qn_api_error_write(&body, &error, style, id);
    qn_buf_printf(&out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n",
                  status, reason_of(status));
    if (*id)
        qn_buf_printf(&out, "X-Request-Id: %s\r\n", id);
    qn_buf_printf(&out, "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                  body.size);
    qn_buf_add_str(&out, qn_buf_str(&body));
    ssize_t n = 0;
    if (!qn_buf_status(&out))
        n = send(fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)n; /* a client that does not read does not get it */
    qn_buf_free(&body);
    qn_buf_free(&out);
    shutdown(fd, SHUT_WR);
    return status;
}
