/* qn_test.h: what all tests share; include it first.
 *
 * Brings cmocka in with the headers that it wants before itself, the check of
 * a status that shows its sentence, the loop that fails each allocation, and
 * temporary directories.  QN_TEST_VECTORS names tests/vectors. */
#ifndef QN_TEST_SUPPORT_H
#define QN_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/status.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fails, with the error's sentence, unless `status` is `expected`. */
#define check_status(status, expected)                                         \
    check_status_at(status, expected, __FILE__, __LINE__)

static inline void check_status_at(qn_status status, qn_status expected,
                                   const char *file, int line)
{
    if (status == expected)
        return;
    print_error("expected %s, found %s (%s: %s)\n", qn_status_name(expected),
                qn_status_name(status), qn_error_where(), qn_error_text());
    _fail(file, line);
}

/* As check_status, and the error's sentence contains `part`. */
#define check_error(status, expected, part)                                    \
    check_error_at(status, expected, part, __FILE__, __LINE__)

static inline void check_error_at(qn_status status, qn_status expected,
                                  const char *part, const char *file, int line)
{
    check_status_at(status, expected, file, line);
    if (strstr(qn_error_text(), part))
        return;
    print_error("expected an error with \"%s\", found \"%s\"\n", part,
                qn_error_text());
    _fail(file, line);
}

#define check_str(found, expected)                                             \
    check_str_at(found, expected, __FILE__, __LINE__)

static inline void check_str_at(qn_str found, const char *expected,
                                const char *file, int line)
{
    if (qn_str_is(found, expected))
        return;
    print_error("expected \"%s\", found \"%.*s\"\n", expected, (int)found.size,
                found.size ? found.data : "");
    _fail(file, line);
}

/* Fails the 1st, 2nd, 3rd ... allocation until `scenario` succeeds.  The
 * scenario returns the status it met, QN_OK or QN_E_NOMEM, and checks nothing
 * else while memory is out. */
static inline void each_alloc_may_fail(qn_status (*scenario)(void))
{
    qn_status status = QN_E_NOMEM;
    long n = 0;
    for (; status == QN_E_NOMEM; n++) {
        qn_test_fail_alloc(n);
        status = scenario();
        qn_test_fail_alloc(-1);
    }
    check_status(status, QN_OK);
    /* A scenario that never met the failure proves nothing. */
    assert_true(n > 1);
}

/* A fresh directory; remove it with temp_dir_remove, which frees the name. */
static inline char *temp_dir_new(void)
{
    const char *base = getenv("TMPDIR");
    qn_buf name = QN_BUF_INIT;
    qn_buf_printf(&name, "%s/quern-test-XXXXXX", base && *base ? base : "/tmp");
    char *path = qn_buf_take(&name);
    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    return path;
}

static inline int temp_dir_unlink(const char *path, const struct stat *info,
                                  int type, struct FTW *position)
{
    (void)info;
    (void)type;
    (void)position;
    return remove(path);
}

static inline void temp_dir_remove(char *dir)
{
    nftw(dir, temp_dir_unlink, 16, FTW_DEPTH | FTW_PHYS);
    qn_free(dir);
}

/* Writes DIR/NAME, making the directories that NAME names. */
static inline void temp_write(const char *dir, const char *name,
                              const void *data, size_t size)
{
    char *path = qn_path_join(dir, name);
    assert_non_null(path);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(path, 0777);
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    qn_free(path);
}

static inline void temp_write_text(const char *dir, const char *name,
                                   const char *text)
{
    temp_write(dir, name, text, strlen(text));
}

/* Reads tests/vectors/NAME; free with qn_free. */
static inline char *vector_read(const char *name, size_t *size)
{
    char *path = qn_path_join(QN_TEST_VECTORS, name), *data = NULL;
    assert_non_null(path);
    check_status(qn_file_read(&data, size, path, (size_t)1 << 30), QN_OK);
    qn_free(path);
    return data;
}

/* A copy of exactly `size` bytes on the heap, so that a sanitizer sees each
 * read beyond it. */
static inline uint8_t *exact_copy(const void *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

#endif
