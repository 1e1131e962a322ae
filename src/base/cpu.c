/* cpu.c: instruction sets, processor counts and memory size.
 *
 * An instruction set counts only when the operating system also saves its
 * registers: CPUID alone reports AVX-512 under kernels that do not.  Counts
 * are what this process may use, not what the machine has. */
#include "cpu.h"

#include "alloc.h"
#include "cgroup.h"
#include "file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef __linux__
#include <errno.h>
#include <sched.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static struct {
    qn_isa isa;
    char name[128];
    char machine[128];
} facts;
static pthread_once_t facts_once = PTHREAD_ONCE_INIT;

/* ---- instruction sets ---- */

qn_isa qn_isa_x86(uint32_t leaf1_ecx, uint32_t leaf7_ebx, uint32_t leaf7_ecx,
                  uint64_t xcr0)
{
    /* Intel's manual, CPUID and XCR0.  Leaf 1 ECX: FMA 12, OSXSAVE 27,
     * AVX 28, F16C 29.  Leaf 7 EBX: AVX2 5, BMI2 8, AVX512F 16, DQ 17, CD 28,
     * BW 30, VL 31; ECX: VNNI 11.  XCR0: SSE 1, AVX 2, mask and upper ZMM state 5 to 7. */
    const uint32_t avx2_1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
    const uint32_t avx2_7 = 1u << 5 | 1u << 8;
    const uint32_t avx512_7 =
        1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    const uint64_t avx_state = 0x06, avx512_state = 0xe6;

    if ((leaf1_ecx & avx2_1) != avx2_1 || (leaf7_ebx & avx2_7) != avx2_7 ||
        (xcr0 & avx_state) != avx_state)
        return QN_ISA_NONE;
    if ((leaf7_ebx & avx512_7) != avx512_7 ||
        (xcr0 & avx512_state) != avx512_state)
        return QN_ISA_AVX2;
    return leaf7_ecx & 1u << 11 ? QN_ISA_AVX512_VNNI : QN_ISA_AVX512;
}

#if defined(__x86_64__) || defined(__i386__)

static uint64_t read_xcr0(void)
{
    /* The instruction itself: the intrinsic needs a compiler flag. */
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static qn_isa find_isa(void)
{
    uint32_t a, b, c, d, leaf7_ebx = 0, leaf7_ecx = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return QN_ISA_NONE;
    uint32_t leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        leaf7_ebx = b;
        leaf7_ecx = c;
    }
    /* XGETBV itself is only there when the system has turned it on. */
    uint64_t xcr0 = leaf1_ecx & 1u << 27 ? read_xcr0() : 0;
    return qn_isa_x86(leaf1_ecx, leaf7_ebx, leaf7_ecx, xcr0);
}

/* The brand string: 48 bytes of leaves 0x80000002 to 4, padded with spaces. */
static void find_name(char *out, size_t size)
{
    uint32_t words[12];
    char brand[sizeof words + 1] = {0};
    for (unsigned i = 0; i < 3; i++) {
        uint32_t *w = words + 4 * i;
        if (!__get_cpuid(0x80000002u + i, w, w + 1, w + 2, w + 3))
            return;
    }
    memcpy(brand, words, sizeof words);
    size_t n = 0;
    for (const char *p = brand; *p && n + 1 < size; p++) {
        if (*p != ' ' || (n && out[n - 1] != ' '))
            out[n++] = *p;
    }
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

#else

static qn_isa find_isa(void)
{
#ifdef __aarch64__
    return QN_ISA_NEON;
#else
    return QN_ISA_NONE;
#endif
}

static void find_name(char *out, size_t size)
{
    (void)out;
    (void)size;
}

#endif

static void find_facts(void)
{
    struct utsname system;
    facts.isa = find_isa();
    snprintf(facts.machine, sizeof facts.machine, "%s",
             uname(&system) ? "unknown" : system.machine);
    find_name(facts.name, sizeof facts.name);
    if (!facts.name[0])
        memcpy(facts.name, facts.machine, sizeof facts.name);
}

qn_isa qn_cpu_isa(void)
{
    pthread_once(&facts_once, find_facts);
    return facts.isa;
}

const char *qn_isa_name(qn_isa isa)
{
    switch (isa) {
    case QN_ISA_NONE:
        return "scalar";
    case QN_ISA_AVX2:
        return "avx2";
    case QN_ISA_AVX512:
        return "avx512";
    case QN_ISA_AVX512_VNNI:
        return "avx512-vnni";
    case QN_ISA_NEON:
        return "neon";
    }
    return "unknown";
}

const char *qn_cpu_name(void)
{
    pthread_once(&facts_once, find_facts);
    return facts.name;
}

const char *qn_cpu_machine(void)
{
    pthread_once(&facts_once, find_facts);
    return facts.machine;
}

/* ---- processors ---- */

int qn_cores_of(const char *root, const bool *allowed, int count)
{
    /* A core is known by the lowest number among its processors. */
    bool *seen = qn_calloc((size_t)count, sizeof *seen);
    int cores = 0;
    for (int i = 0; i < count; i++) {
        if (!allowed[i])
            continue;
        char path[512], *text;
        int first = i;
        snprintf(path, sizeof path,
                 "%s/sys/devices/system/cpu/cpu%d/topology/"
                 "thread_siblings_list",
                 root, i);
        if (!qn_file_read(&text, NULL, path, 4096)) {
            char *end;
            long number = strtol(text, &end, 10);
            if (end != text && number >= 0 && number < count)
                first = (int)number;
            qn_free(text);
        }
        if (seen && seen[first])
            continue;
        if (seen)
            seen[first] = true;
        cores++;
    }
    qn_free(seen);
    return cores;
}

#ifdef __linux__

/* The affinity mask as one bool for each processor number; freed with
 * qn_free.  NULL when it can't be read. */
static bool *read_affinity(int *count)
{
    /* The kernel refuses (EINVAL) a mask shorter than its own. */
    for (int n = 1024; n <= 1 << 20; n *= 2) {
        size_t size = CPU_ALLOC_SIZE(n);
        cpu_set_t *set = qn_calloc(1, size);
        if (!set)
            return NULL;
        if (!sched_getaffinity(0, size, set)) {
            bool *allowed = qn_calloc((size_t)n, sizeof *allowed);
            for (int i = 0; allowed && i < n; i++)
                allowed[i] = CPU_ISSET_S(i, size, set);
            qn_free(set);
            *count = n;
            return allowed;
        }
        qn_free(set);
        if (errno != EINVAL)
            return NULL;
    }
    return NULL;
}

#else

static bool *read_affinity(int *count)
{
    (void)count;
    return NULL;
}

#endif

/* Counts the affinity mask by `cores` or processors, cut to the quota. */
static int count_allowed(bool cores)
{
    /* What is missing below /sys or /proc is no error of the caller's. */
    qn_error before;
    qn_error_save(&before);
    int count = 0, n = 0;
    bool *allowed = read_affinity(&count);
    if (allowed && cores) {
        n = qn_cores_of("", allowed, count);
    } else if (allowed) {
        for (int i = 0; i < count; i++)
            n += allowed[i];
    } else {
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    qn_free(allowed);
    int quota = qn_cgroup_cpus("");
    qn_error_restore(&before);
    if (quota && quota < n)
        n = quota;
    return n < 1 ? 1 : n;
}

int qn_cpu_allowed(void)
{
    return count_allowed(false);
}

int qn_cpu_allowed_cores(void)
{
    return count_allowed(true);
}

/* ---- memory ---- */

size_t qn_memory_total(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t total;
    if (pages <= 0 || page <= 0 ||
        !qn_mul_size(&total, (size_t)pages, (size_t)page))
        return SIZE_MAX;
    return total;
}

size_t qn_memory_limit(void)
{
    size_t total = qn_memory_total();
    uint64_t limit = qn_cgroup_memory("");
    return limit < total ? (size_t)limit : total;
}
