/* Instruction sets and processor counts. */
#include "support/qn_test.h"

#include "base/cpu.h"

#include <pthread.h>
#ifdef __linux__
#include <sched.h>
#endif

#define AVX2_LEAF1 (1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)
#define AVX2_LEAF7 (1u << 5 | 1u << 8)
#define AVX512_LEAF7                                                           \
    (AVX2_LEAF7 | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)

#define BIT(isa) (1u << QN_ISA_##isa)
enum {
    AVX2_ONLY = BIT(NONE) | BIT(AVX2),
    AVX512_TOO = AVX2_ONLY | BIT(AVX512),
    VNNI_TOO = AVX512_TOO | BIT(AVX512_VNNI),
    BF16_TOO = VNNI_TOO | BIT(AVX512_BF16)
};

static const qn_cpuid avx512 = {
    .leaf1_ecx = AVX2_LEAF1, .leaf7_ebx = AVX512_LEAF7, .xcr0 = 0xe7};
static const qn_cpuid amx = {.leaf1_ecx = AVX2_LEAF1,
                             .leaf7_ebx = AVX512_LEAF7,
                             .leaf7_ecx = 1u << 11,
                             .leaf7_edx = 1u << 22 | 1u << 24 | 1u << 25,
                             .leaf7_1_eax = 1u << 5,
                             .xcr0 = 0x600e7,
                             .tiles = true};

static void test_avx512_needs_the_system_to_save_its_registers(void **state)
{
    (void)state;
    qn_cpuid id = avx512;
    assert_int_equal(qn_isa_x86(&id), AVX512_TOO);
    /* Each of the mask, upper-half and upper-sixteen states is needed. */
    for (int bit = 5; bit <= 7; bit++) {
        id.xcr0 = 0xe7 & ~(1u << bit);
        assert_int_equal(qn_isa_x86(&id), AVX2_ONLY);
    }
    for (int bit = 1; bit <= 2; bit++) {
        id.xcr0 = 0xe7 & ~(1u << bit);
        assert_int_equal(qn_isa_x86(&id), BIT(NONE));
    }
    id.xcr0 = 0;
    assert_int_equal(qn_isa_x86(&id), BIT(NONE));
}

static void test_levels_above_avx512(void **state)
{
    (void)state;
    qn_cpuid id = avx512;
    id.leaf7_ecx = 1u << 11;
    assert_int_equal(qn_isa_x86(&id), VNNI_TOO);
    id.leaf7_1_eax = 1u << 5;
    assert_int_equal(qn_isa_x86(&id), BF16_TOO);
    /* Without VNNI, BF16 is no level. */
    id.leaf7_ecx = 0;
    assert_int_equal(qn_isa_x86(&id), AVX512_TOO);
}

static void test_avx_vnni_is_apart(void **state)
{
    (void)state;
    qn_cpuid id = avx512;
    id.leaf7_1_eax = 1u << 4;
    assert_int_equal(qn_isa_x86(&id), AVX512_TOO | BIT(AVX_VNNI));
    id.leaf7_ebx = AVX2_LEAF7;
    assert_int_equal(qn_isa_x86(&id), AVX2_ONLY | BIT(AVX_VNNI));
    id.leaf1_ecx = 0;
    assert_int_equal(qn_isa_x86(&id), BIT(NONE));
}

static void test_tiles_need_the_systems_leave(void **state)
{
    (void)state;
    assert_int_equal(qn_isa_x86(&amx), BF16_TOO | BIT(AMX));
    qn_cpuid id = amx;
    id.tiles = false;
    assert_int_equal(qn_isa_x86(&id), BF16_TOO);
    for (int bit = 17; bit <= 18; bit++) {
        id = amx;
        id.xcr0 &= ~((uint64_t)1 << bit);
        assert_int_equal(qn_isa_x86(&id), BF16_TOO);
    }
    for (int bit = 22; bit <= 25; bit++) {
        id = amx;
        id.leaf7_edx &= ~(1u << bit);
        assert_int_equal(qn_isa_x86(&id),
                         bit == 23 ? BF16_TOO | BIT(AMX) : BF16_TOO);
    }
}

static void test_every_feature_of_a_level_is_needed(void **state)
{
    (void)state;
    for (int bit = 0; bit < 32; bit++) {
        uint32_t one = 1u << bit;
        qn_cpuid id = avx512;
        id.leaf1_ecx &= ~one;
        if (AVX2_LEAF1 & one)
            assert_int_equal(qn_isa_x86(&id), BIT(NONE));
        id = avx512;
        id.leaf7_ebx &= ~one;
        if (AVX2_LEAF7 & one)
            assert_int_equal(qn_isa_x86(&id), BIT(NONE));
        else if (AVX512_LEAF7 & one)
            assert_int_equal(qn_isa_x86(&id), AVX2_ONLY);
    }
}

static void test_the_level_found_is_one_that_runs(void **state)
{
    (void)state;
    qn_isa isa = qn_cpu_isa();
    assert_int_equal(isa, qn_cpu_isa());
#if defined(__x86_64__)
    /* The compiler's runtime asks the same questions by its own code. */
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool wide = __builtin_cpu_supports("avx512f") &&
                __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
    bool vnni = wide && __builtin_cpu_supports("avx512vnni");
    bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
    uint32_t expected =
        BIT(NONE) | (avx2 ? BIT(AVX2) : 0) | (wide ? BIT(AVX512) : 0) |
        (vnni ? BIT(AVX512_VNNI) : 0) | (bf16 ? BIT(AVX512_BF16) : 0);
    assert_int_equal(qn_cpu_levels() & ~(BIT(AMX) | BIT(AVX_VNNI)), expected);
    assert_true(isa == QN_ISA_AMX || 1u << (isa + 1) > expected);
#elif defined(__aarch64__)
    assert_true(isa >= QN_ISA_NEON);
#endif
    assert_string_equal(qn_isa_name(QN_ISA_NONE), "scalar");
    assert_string_equal(qn_isa_name(QN_ISA_AVX512), "avx512");
}

static void test_the_processor_has_a_name(void **state)
{
    (void)state;
    size_t size = strlen(qn_cpu_name());
    assert_true(size > 0);
    assert_true(qn_cpu_name()[0] != ' ' && qn_cpu_name()[size - 1] != ' ');
    assert_true(strlen(qn_cpu_machine()) > 0);
}

static void topology(const char *root, int cpu, const char *siblings)
{
    char name[128];
    snprintf(name, sizeof name,
             "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    temp_write_text(root, name, siblings);
}

static void test_hyperthreads_of_a_core_count_once(void **state)
{
    (void)state;
    char *root = temp_dir_new();
    /* Four cores of two threads, numbered as on most servers. */
    for (int i = 0; i < 8; i++) {
        char siblings[16];
        snprintf(siblings, sizeof siblings, "%d,%d\n", i % 4, i % 4 + 4);
        topology(root, i, siblings);
    }
    bool allowed[10] = {0};
    for (int i = 0; i < 8; i++)
        allowed[i] = true;
    assert_int_equal(qn_cores_of(root, allowed, 8), 4);
    /* Only second threads of two cores are allowed. */
    memset(allowed, 0, sizeof allowed);
    allowed[5] = allowed[6] = true;
    assert_int_equal(qn_cores_of(root, allowed, 8), 2);
    /* Threads of one core. */
    memset(allowed, 0, sizeof allowed);
    allowed[1] = allowed[5] = true;
    assert_int_equal(qn_cores_of(root, allowed, 8), 1);
    /* Without a topology, or with nonsense in it, each is a core. */
    topology(root, 9, "-3,banana\n");
    allowed[8] = allowed[9] = true;
    assert_int_equal(qn_cores_of(root, allowed, 10), 3);
    assert_int_equal(qn_cores_of(root, allowed, 0), 0);
    temp_dir_remove(root);
}

static void test_levels_have_names(void **state)
{
    (void)state;
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        qn_isa found = QN_ISA_COUNT;
        assert_true(qn_isa_of_name(&found, qn_isa_name((qn_isa)isa)));
        assert_int_equal(found, isa);
    }
    qn_isa kept = QN_ISA_NONE;
    assert_false(qn_isa_of_name(&kept, "mmx"));
    assert_false(qn_isa_of_name(&kept, ""));
    assert_int_equal(kept, QN_ISA_NONE);
}

static void test_counts_are_in_range(void **state)
{
    (void)state;
    qn_error_clear();
    int cpus = qn_cpu_allowed(), cores = qn_cpu_allowed_cores();
    assert_true(cpus >= 1 && cpus <= 1 << 20);
    assert_true(cores >= 1 && cores <= cpus);
    assert_true(qn_memory_total() >= (size_t)1 << 24);
    assert_true(qn_memory_limit() <= qn_memory_total());
    assert_true(qn_memory_limit() > 0);
    /* Asking is no error, whatever is missing on this system. */
    assert_string_equal(qn_error_text(), "");
}

#ifdef __linux__
static void *count_on_one_cpu(void *data)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all))
        return NULL;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    if (!sched_setaffinity(0, sizeof one, &one))
        *(int *)data = qn_cpu_allowed() + 10 * qn_cpu_allowed_cores();
    return NULL;
}

static void test_the_affinity_mask_counts(void **state)
{
    (void)state;
    /* The mask is the thread's own, so the test's stays as it is. */
    pthread_t thread;
    int found = 0;
    assert_int_equal(pthread_create(&thread, NULL, count_on_one_cpu, &found),
                     0);
    pthread_join(thread, NULL);
    if (!found)
        skip(); /* the system does not let us change it */
    assert_int_equal(found, 11);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avx512_needs_the_system_to_save_its_registers),
        cmocka_unit_test(test_levels_above_avx512),
        cmocka_unit_test(test_avx_vnni_is_apart),
        cmocka_unit_test(test_tiles_need_the_systems_leave),
        cmocka_unit_test(test_every_feature_of_a_level_is_needed),
        cmocka_unit_test(test_the_level_found_is_one_that_runs),
        cmocka_unit_test(test_the_processor_has_a_name),
        cmocka_unit_test(test_hyperthreads_of_a_core_count_once),
        cmocka_unit_test(test_counts_are_in_range),
        cmocka_unit_test(test_levels_have_names),
#ifdef __linux__
        cmocka_unit_test(test_the_affinity_mask_counts),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
