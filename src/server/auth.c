/* auth.c: see auth.h. */
#include "auth.h"

#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KEY_FILE_LIMIT = 1 << 20 };

void qn_keys_free(qn_keys *keys)
{
    qn_free(keys->items);
    *keys = (qn_keys){0};
}

static void digest_of(uint8_t out[QN_SHA256_DIGITS], qn_str key)
{
    qn_digest digest;
    char hex[QN_DIGEST_SIZE];
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, key.data, key.size);
    qn_digest_end(&digest, hex);
    memcpy(out, hex, QN_SHA256_DIGITS);
}

/* Takes as long for any two digests. */
static bool same_digest(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0;
    for (int i = 0; i < QN_SHA256_DIGITS; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return !differ;
}

int qn_keys_find(const qn_keys *keys, qn_str presented)
{
    uint8_t digest[QN_SHA256_DIGITS];
    digest_of(digest, presented);
    int found = -1;
    for (size_t i = 0; i < keys->count; i++)
        if (same_digest(digest, keys->items[i].digest))
            found = (int)i;
    return found;
}

static bool is_visible(qn_str text)
{
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] <= ' ' || text.data[i] > '~')
            return false;
    return text.size > 0;
}

static bool is_name(qn_str text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    "0123456789_.-",
                    text.data[i]))
            return false;
    return text.size > 0 && text.size <= 64;
}

/* `name` empty: it gets a number. */
static qn_status add(qn_keys *keys, qn_str name, qn_str key, bool admin)
{
    if (!is_visible(key))
        return qn_fail(QN_E_ARG,
                       "expected a key of visible ASCII characters, "
                       "found %s",
                       key.size ? "others" : "an empty one");
    if (qn_keys_find(keys, key) >= 0)
        return qn_fail(QN_E_ARG, "the key is there twice");
    for (size_t i = 0; i < keys->count; i++)
        if (qn_str_is(name, keys->items[i].name))
            return qn_fail(QN_E_ARG, "the name '%s' is there twice",
                           keys->items[i].name);
    qn_key *items =
        qn_reallocarray(keys->items, keys->count + 1, sizeof *items);
    if (!items)
        return QN_E_NOMEM;
    keys->items = items;
    qn_key *out = &items[keys->count++];
    *out = (qn_key){.admin = admin};
    if (name.size)
        memcpy(out->name, name.data, name.size);
    else
        snprintf(out->name, sizeof out->name, "key%zu", keys->count);
    digest_of(out->digest, key);
    return QN_OK;
}

qn_status qn_keys_add(qn_keys *keys, qn_str key)
{
    return add(keys, (qn_str){"", 0}, key, false);
}

static qn_status add_line(qn_keys *keys, qn_str line)
{
    const char *colon = memchr(line.data, ':', line.size);
    if (!colon)
        return add(keys, (qn_str){"", 0}, line, false);
    qn_str name = {line.data, (size_t)(colon - line.data)};
    qn_str key = {colon + 1, line.size - name.size - 1};
    bool admin = false;
    const char *second = memchr(key.data, ':', key.size);
    if (second) {
        qn_str rest = {second + 1, key.size - (size_t)(second - key.data) - 1};
        if (!qn_str_is(rest, "admin"))
            return qn_fail(QN_E_ARG, "expected NAME:KEY or NAME:KEY:admin");
        admin = true;
        key.size = (size_t)(second - key.data);
    }
    if (!is_name(name))
        return qn_fail(QN_E_ARG, "a name has 1 to 64 of A-Z a-z 0-9 _ . -");
    return add(keys, name, key, admin);
}

static qn_status add_lines(qn_keys *keys, qn_str text)
{
    int number = 1;
    for (size_t at = 0; at < text.size; number++) {
        const char *end = memchr(text.data + at, '\n', text.size - at);
        size_t size = end ? (size_t)(end - text.data) - at : text.size - at;
        qn_str line = {text.data + at, size};
        if (line.size && line.data[line.size - 1] == '\r')
            line.size--;
        at += size + (end != NULL);
        qn_status status = line.size ? add_line(keys, line) : QN_OK;
        if (status)
            return qn_fail_where(status, "line %d", number);
    }
    return QN_OK;
}

/* Whether the file lies where a service manager puts secrets of this service
 * (systemd's LoadCredential).  They may be root's, and are readable for the
 * service by a list of rights, which shows as a group's. */
static bool is_credential(const char *path)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    size_t size = folder ? strlen(folder) : 0;
    while (size > 1 && folder[size - 1] == '/')
        size--;
    return size && *folder == '/' && !strncmp(path, folder, size) &&
           path[size] == '/' && !strchr(path + size + 1, '/');
}

static bool is_private(const char *path)
{
    struct stat info;
    mode_t others = S_IRWXG | S_IRWXO;
    if (is_credential(path))
        others &= ~(mode_t)S_IRGRP;
    return !stat(path, &info) && !(info.st_mode & others);
}

qn_status qn_keys_read(qn_keys *keys, const char *path)
{
    char *data = NULL;
    size_t size = 0, before = keys->count;
    qn_status status = qn_file_read(&data, &size, path, KEY_FILE_LIMIT);
    if (!status && !is_private(path))
        status = qn_fail(QN_E_ARG, "a file of keys is for its owner alone "
                                   "(mode 0600)");
    if (!status)
        status = add_lines(keys, (qn_str){data, size});
    /* Without keys everybody could ask, which is not what it is for. */
    if (!status && keys->count == before)
        status = qn_fail(QN_E_ARG, "expected a key, found none");
    qn_free(data);
    return status;
}
