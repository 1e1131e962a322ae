/* Addresses: which are local, which are none, and what is listened on. */
#include "server/listen.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_local_addresses(void **state)
{
    (void)state;
    static const char *const local[] = {"127.0.0.1", "127.1.2.3", "::1",
                                        "localhost", "LocalHost", "unix:/x"};
    static const char *const open[] = {
        "0.0.0.0", "::",        "10.0.0.1",
        "box.lan", "128.0.0.1", "localhost.evil.org"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        assert_true(qn_listen_is_local(local[i]));
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_false(qn_listen_is_local(open[i]));
}

static void test_who_connects(void **state)
{
    (void)state;
    static const struct {
        const char *address, *name;
        bool local;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1", true},
        {"10.0.0.1", "10.0.0.1", false},
        {"::1", "::1", true},
        {"::ffff:127.0.0.2", "::ffff:127.0.0.2", true},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.1", false},
        {"fe80::1", "fe80::1", false},
    };
    char name[QN_PEER_SIZE];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        const void *address = &four;
        if (!inet_pton(AF_INET, rows[i].address, &four.sin_addr)) {
            assert_int_equal(
                inet_pton(AF_INET6, rows[i].address, &six.sin6_addr), 1);
            address = &six;
        }
        assert_int_equal(qn_listen_peer(name, address), rows[i].local);
        assert_string_equal(name, rows[i].name);
    }
    assert_true(qn_listen_peer(name, NULL));
    assert_string_equal(name, "unix");
}

static void test_what_is_no_address(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "unix:", "http://x", "a b", "x/y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(qn_listen_is_address(bad[i]));
    assert_true(qn_listen_is_address("fe80::1%eth0"));
    assert_true(qn_listen_is_address("unix:/run/quern.sock"));
}

static void test_all_get_one_port_and_it_is_then_in_use(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2"};
    qn_listeners one, two;
    assert_int_equal(qn_listen(&one, hosts, 2, 0), QN_OK);
    assert_int_equal(one.count, 2);
    assert_true(one.port > 0);
    assert_int_equal(qn_listen(&two, hosts + 1, 1, one.port), QN_E_IO);
    char where[64];
    snprintf(where, sizeof where, "127.0.0.2:%d", one.port);
    assert_string_equal(qn_error_where(), where);
    qn_listeners_close(&one);
    assert_int_equal(qn_listen(&two, hosts + 1, 1, one.port), QN_OK);
    assert_non_null(strstr(two.url, "http://127.0.0.2:"));
    qn_listeners_close(&two);
}

static void test_unix_socket_is_its_owners_and_goes_away(void **state)
{
    (void)state;
    char folder[] = "/tmp/qn-listen-XXXXXX", host[64];
    struct stat info;
    assert_non_null(mkdtemp(folder));
    snprintf(host, sizeof host, "unix:%s/s", folder);
    const char *hosts[] = {host};
    qn_listeners one, two;
    assert_int_equal(qn_listen(&one, hosts, 1, 0), QN_OK);
    assert_int_equal(stat(host + 5, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    /* Somebody listens there. */
    assert_int_equal(qn_listen(&two, hosts, 1, 0), QN_E_IO);
    /* One that nobody listens on any more is in nobody's way. */
    close(one.fds[0]);
    assert_int_equal(qn_listen(&two, hosts, 1, 0), QN_OK);
    qn_listeners_close(&two);
    assert_int_not_equal(stat(host + 5, &info), 0);
    free(one.unlink[0]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_addresses),
        cmocka_unit_test(test_who_connects),
        cmocka_unit_test(test_what_is_no_address),
        cmocka_unit_test(test_all_get_one_port_and_it_is_then_in_use),
        cmocka_unit_test(test_unix_socket_is_its_owners_and_goes_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
