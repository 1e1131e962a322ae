/* Control groups: limits of made-up systems below a temporary root. */
#include "support/qn_test.h"

#include "base/cgroup.h"

static char *root;

static int setup(void **state)
{
    (void)state;
    root = temp_dir_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(root);
    return 0;
}

#define V2_MOUNT                                                               \
    "22 1 0:20 / /proc rw,nosuid - proc proc rw\n"                             \
    "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"

static void test_version_2_takes_the_smallest_limit_on_the_way_up(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup", "0::/a/b/c\n");
    temp_write_text(root, "proc/self/mountinfo", V2_MOUNT);
    temp_write_text(root, "sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    temp_write_text(root, "sys/fs/cgroup/a/b/c/memory.max", "max\n");
    assert_int_equal(qn_cgroup_cpus(root), 0);
    assert_true(qn_cgroup_memory(root) == UINT64_MAX);

    temp_write_text(root, "sys/fs/cgroup/a/b/cpu.max", "350000 100000\n");
    temp_write_text(root, "sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    temp_write_text(root, "sys/fs/cgroup/a/memory.max", "1073741824\n");
    assert_int_equal(qn_cgroup_cpus(root), 3); /* 2.5, rounded up */
    assert_true(qn_cgroup_memory(root) == 1073741824);

    temp_write_text(root, "sys/fs/cgroup/a/b/c/cpu.max", "20000 100000\n");
    temp_write_text(root, "sys/fs/cgroup/a/b/c/memory.max", "4096\n");
    assert_int_equal(qn_cgroup_cpus(root), 1);
    assert_true(qn_cgroup_memory(root) == 4096);

    /* The mounted root counts as well; what lies beside the way does not. */
    temp_write_text(root, "sys/fs/cgroup/memory.max", "1024\n");
    temp_write_text(root, "sys/fs/cgroup/a/x/memory.max", "1\n");
    assert_true(qn_cgroup_memory(root) == 1024);
}

static void test_version_1_finds_each_controller(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup",
                    "12:pids:/user\n"
                    "5:memory:/box\n"
                    "4:cpu,cpuacct:/box/inner\n"
                    "3:cpuset:/\n"
                    "1:name=systemd:/user\n");
    temp_write_text(root, "proc/self/mountinfo",
                    "30 1 0:27 / /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
                    "31 1 0:28 / /cg/cpu,cpuacct rw shared:9 - cgroup cgroup "
                    "rw,cpu,cpuacct\n"
                    "32 1 0:29 / /cg/memory rw - cgroup cgroup rw,memory\n");
    temp_write_text(root, "cg/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    temp_write_text(root, "cg/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    temp_write_text(root, "cg/memory/memory.limit_in_bytes",
                    "9223372036854771712\n");
    assert_int_equal(qn_cgroup_cpus(root), 0);
    assert_true(qn_cgroup_memory(root) == UINT64_MAX);

    temp_write_text(root, "cg/cpu,cpuacct/box/cpu.cfs_quota_us", "400000\n");
    temp_write_text(root, "cg/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    temp_write_text(root, "cg/cpu,cpuacct/box/inner/cpu.cfs_quota_us",
                    "500000\n");
    temp_write_text(root, "cg/cpu,cpuacct/box/inner/cpu.cfs_period_us",
                    "100000\n");
    temp_write_text(root, "cg/memory/box/memory.limit_in_bytes", "777\n");
    assert_int_equal(qn_cgroup_cpus(root), 4);
    assert_true(qn_cgroup_memory(root) == 777);
}

static void test_both_versions_at_once_give_the_smaller(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup", "4:cpu:/\n0::/s\n");
    temp_write_text(root, "proc/self/mountinfo",
                    V2_MOUNT "31 1 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n");
    temp_write_text(root, "cg/cpu/cpu.cfs_quota_us", "300000\n");
    temp_write_text(root, "cg/cpu/cpu.cfs_period_us", "100000\n");
    temp_write_text(root, "sys/fs/cgroup/s/cpu.max", "200000 100000\n");
    assert_int_equal(qn_cgroup_cpus(root), 2);
    temp_write_text(root, "cg/cpu/cpu.cfs_quota_us", "100000\n");
    assert_int_equal(qn_cgroup_cpus(root), 1);
}

/* A container whose mount shows only its own group, at the mount's root. */
static void test_a_container_sees_its_group_at_the_mount_point(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup", "0::/docker/abc/sub\n");
    temp_write_text(root, "proc/self/mountinfo",
                    "29 1 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 "
                    "cgroup rw\n");
    temp_write_text(root, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    temp_write_text(root, "sys/fs/cgroup/sub/cpu.max", "300000 100000\n");
    assert_int_equal(qn_cgroup_cpus(root), 3);
    /* A name that only begins alike is another group, and a path outside of
     * the mount, or one that climbs, shows nothing but the mount itself. */
    temp_write_text(root, "sys/fs/cgroupdef/sub/cpu.max", "100000 100000\n");
    temp_write_text(root, "proc/self/cgroup", "0::/docker/abcdef/sub\n");
    assert_int_equal(qn_cgroup_cpus(root), 4);
    temp_write_text(root, "proc/self/cgroup", "0::/docker/abc/../sub\n");
    assert_int_equal(qn_cgroup_cpus(root), 4);
    temp_write_text(root, "proc/self/cgroup", "0::/../..\n");
    assert_int_equal(qn_cgroup_cpus(root), 4);
}

static void test_escaped_mount_points_are_read(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup", "0::/\n");
    temp_write_text(root, "proc/self/mountinfo",
                    "29 1 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n");
    temp_write_text(root, "my groups/memory.max", "5000\n");
    assert_true(qn_cgroup_memory(root) == 5000);
}

static void test_nonsense_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(qn_cgroup_cpus(root), 0); /* no files at all */
    temp_write_text(root, "proc/self/mountinfo", V2_MOUNT);
    temp_write_text(root, "proc/self/cgroup", "\n::\n:::\n0:\nx");
    assert_int_equal(qn_cgroup_cpus(root), 0);
    temp_write_text(root, "proc/self/cgroup", "0::/a\n");
    const char *quotas[] = {"", "max", "0 0", "100000", "x y", "-5 100"};
    for (size_t i = 0; i < 6; i++) {
        temp_write_text(root, "sys/fs/cgroup/a/cpu.max", quotas[i]);
        assert_int_equal(qn_cgroup_cpus(root), 0);
    }
    temp_write_text(root, "sys/fs/cgroup/a/cpu.max",
                    "18446744073709551615 1\n");
    assert_int_equal(qn_cgroup_cpus(root), 0);
    /* No quota at all still leaves one processor. */
    temp_write_text(root, "sys/fs/cgroup/a/cpu.max", "0 100000\n");
    assert_int_equal(qn_cgroup_cpus(root), 1);
    temp_write_text(root, "proc/self/mountinfo", "- - - cgroup2\n1 2\n\n");
    assert_int_equal(qn_cgroup_cpus(root), 0);
}

static void test_asking_leaves_the_error_slot_alone(void **state)
{
    (void)state;
    qn_fail(QN_E_ARG, "mine");
    qn_fail_where(QN_E_ARG, "here");
    qn_cgroup_cpus(root);
    qn_cgroup_memory(root);
    assert_string_equal(qn_error_text(), "mine");
    assert_string_equal(qn_error_where(), "here");
}

static void test_running_out_of_memory_is_survived(void **state)
{
    (void)state;
    temp_write_text(root, "proc/self/cgroup", "0::/a/b\n");
    temp_write_text(root, "proc/self/mountinfo", V2_MOUNT);
    temp_write_text(root, "sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
    temp_write_text(root, "sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    for (long n = 0; n < 40; n++) {
        qn_test_fail_alloc(n);
        int cpus = qn_cgroup_cpus(root);
        qn_test_fail_alloc(-1);
        assert_true(cpus == 0 || cpus == 2 || cpus == 4);
    }
    assert_int_equal(qn_cgroup_cpus(root), 2);
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(test_version_2_takes_the_smallest_limit_on_the_way_up),
        IN_ROOT(test_version_1_finds_each_controller),
        IN_ROOT(test_both_versions_at_once_give_the_smaller),
        IN_ROOT(test_a_container_sees_its_group_at_the_mount_point),
        IN_ROOT(test_escaped_mount_points_are_read),
        IN_ROOT(test_nonsense_is_no_limit),
        IN_ROOT(test_asking_leaves_the_error_slot_alone),
        IN_ROOT(test_running_out_of_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
