/* listen.c: see listen.h. */
#include "listen.h"

#include "base/alloc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static const char *unix_path(const char *host)
{
    return strncmp(host, "unix:", 5) ? NULL : host + 5;
}

bool qn_listen_is_local(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (unix_path(host) || !strcasecmp(host, "localhost"))
        return true;
    if (inet_pton(AF_INET, host, &four) == 1)
        return (ntohl(four.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool qn_listen_is_address(const char *host)
{
    const char *path = unix_path(host);
    if (path)
        return *path && strlen(path) < sizeof((struct sockaddr_un){0}.sun_path);
    return *host && strlen(host) < 254 &&
           !host[strspn(host, "abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:%_-")];
}

/* `port` is the one that was asked for; 0: none. */
static qn_status refuse(const char *host, int port, int fd, const char *what)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    qn_status status = qn_fail(QN_E_IO, "%s: %s", what, strerror(error));
    if (!port)
        return qn_fail_where(status, "%s", host);
    return qn_fail_where(status, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host,
                         port);
}

/* ---- Unix sockets ---- */

/* A socket that nobody listens on any more is in the way. */
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) || !S_ISSOCK(info.st_mode))
        return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) &&
        errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
}

static qn_status listen_unix(qn_listeners *out, const char *host)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", unix_path(host));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return refuse(host, 0, fd, "no socket");
    remove_stale(&address);
    /* Nobody may come in between the file's making and its mode. */
    mode_t before = umask(S_IRWXG | S_IRWXO | S_IXUSR);
    int rc = bind(fd, (const struct sockaddr *)&address, sizeof address);
    umask(before);
    if (rc || listen(fd, BACKLOG))
        return refuse(host, 0, fd, "the address can't be had");
    char *path = qn_strdup(address.sun_path);
    if (!path) {
        close(fd);
        return QN_E_NOMEM;
    }
    if (!out->count)
        snprintf(out->url, sizeof out->url, "%s", host);
    out->unlink[out->count] = path;
    out->fds[out->count++] = fd;
    return QN_OK;
}

/* ---- ports ---- */

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size))
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return 0;
}

static void add(qn_listeners *out, const char *host, int fd)
{
    int port = port_of(fd);
    if (!out->port)
        out->port = port;
    if (!out->count)
        snprintf(out->url, sizeof out->url,
                 strchr(host, ':') ? "http://[%s]:%d" : "http://%s:%d", host,
                 port);
    out->fds[out->count++] = fd;
}

static qn_status listen_one(qn_listeners *out, const char *host, int port,
                            const struct addrinfo *found)
{
    if (out->count == QN_LISTENERS)
        return qn_fail(QN_E_ARG, "at most %d addresses", QN_LISTENERS);
    int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return refuse(host, port, fd, "no socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (found->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int));
    if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG))
        return refuse(host, port, fd, "the address can't be had");
    add(out, host, fd);
    return QN_OK;
}

static qn_status listen_port(qn_listeners *out, const char *host, int port)
{
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host, service, &hints, &found);
    if (rc)
        return qn_fail_where(
            qn_fail(QN_E_IO, "no such address: %s", gai_strerror(rc)), "%s",
            host);
    qn_status status = listen_one(out, host, port, found);
    freeaddrinfo(found);
    return status;
}

qn_status qn_listen(qn_listeners *out, const char *const *hosts, size_t count,
                    int port)
{
    *out = (qn_listeners){0};
    qn_status status = QN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (out->count == QN_LISTENERS)
            status = qn_fail(QN_E_ARG, "at most %d addresses", QN_LISTENERS);
        else if (unix_path(hosts[i]))
            status = listen_unix(out, hosts[i]);
        else
            status = listen_port(out, hosts[i], port ? port : out->port);
    }
    if (status)
        qn_listeners_close(out);
    return status;
}

/* ---- who connects ---- */

bool qn_listen_peer(char name[QN_PEER_SIZE], const struct sockaddr *address)
{
    if (address && address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, name, QN_PEER_SIZE);
        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    if (address && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, name, QN_PEER_SIZE);
        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) ||
               !strncmp(name, "::ffff:127.", 11);
    }
    snprintf(name, QN_PEER_SIZE, "unix");
    return true;
}

/* ---- service managers ---- */

/* Whether only this machine reaches a socket. */
static bool is_local_socket(int fd)
{
    char host[NI_MAXHOST];
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size))
        return false;
    if (address.ss_family == AF_UNIX)
        return true;
    return !getnameinfo((struct sockaddr *)&address, size, host, sizeof host,
                        NULL, 0, NI_NUMERICHOST) &&
           qn_listen_is_local(host);
}

qn_status qn_listen_inherited(qn_listeners *out, bool open, bool *found)
{
    enum { FIRST = 3 };
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    *out = (qn_listeners){0};
    *found = pid && fds && strtol(pid, NULL, 10) == (long)getpid();
    long count = *found ? strtol(fds, NULL, 10) : 0;
    if (*found && (count < 1 || count > QN_LISTENERS))
        return qn_fail(QN_E_ARG, "LISTEN_FDS: expected 1..%d, found '%s'",
                       QN_LISTENERS, fds);
    for (int fd = FIRST; fd < FIRST + count; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return qn_fail(QN_E_ARG, "LISTEN_FDS: descriptor %d: %s", fd,
                           strerror(errno));
        if (!open && !is_local_socket(fd))
            return qn_fail(QN_E_ARG,
                           "LISTEN_FDS: others could use this server by "
                           "descriptor %d; give an --api-key or "
                           "--allow-unauthenticated",
                           fd);
        add(out, "localhost", fd);
    }
    return QN_OK;
}

void qn_listeners_close(qn_listeners *l)
{
    for (size_t i = 0; i < l->count; i++) {
        close(l->fds[i]);
        if (l->unlink[i])
            unlink(l->unlink[i]);
        qn_free(l->unlink[i]);
    }
    l->count = 0;
}

void qn_notify_manager(const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t size = path ? strlen(path) : 0;
    if (!size || size >= sizeof address.sun_path ||
        (*path != '/' && *path != '@'))
        return;
    memcpy(address.sun_path, path, size);
    if (*path == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t n = sendto(
        fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&address,
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size));
    (void)n; /* a manager that does not listen is no concern of ours */
    close(fd);
}
