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
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static struct {
    uint32_t levels;
    char name[128];
    char machine[128];
} facts;
static pthread_once_t facts_once = PTHREAD_ONCE_INIT;

/* ---- instruction sets ---- */

static bool all_of(uint32_t have, uint32_t wanted)
{
    return (have & wanted) == wanted;
}

uint32_t qn_isa_x86(const qn_cpuid *id)
{
    /* Intel's manual, CPUID and XCR0.  Leaf 1 ECX: FMA 12, OSXSAVE 27,
     * AVX 28, F16C 29.  Leaf 7 EBX: AVX2 5, BMI2 8, AVX512F 16, DQ 17, CD 28,
     * BW 30, VL 31; ECX: VNNI 11; EDX: AMX-BF16 22, TILE 24, INT8 25.  Leaf 7.1
     * EAX: AVX-VNNI 4, AVX512-BF16 5.  XCR0: SSE 1, AVX 2, mask and upper ZMM
     * state 5 to 7, tiles 17 and 18. */
    const uint32_t avx2_1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
    const uint32_t avx2_7 = 1u << 5 | 1u << 8;
    const uint32_t avx512_7 =
        1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    const uint32_t amx_7 = 1u << 22 | 1u << 24 | 1u << 25;
    const uint64_t avx_state = 0x06, avx512_state = 0xe6, tile_state = 0x60000;
    uint32_t levels = 1u << QN_ISA_NONE;

    if (!all_of(id->leaf1_ecx, avx2_1) || !all_of(id->leaf7_ebx, avx2_7) ||
        (id->xcr0 & avx_state) != avx_state)
        return levels;
    levels |= 1u << QN_ISA_AVX2;
    if (id->leaf7_1_eax & 1u << 4)
        levels |= 1u << QN_ISA_AVX_VNNI;
    if (!all_of(id->leaf7_ebx, avx512_7) ||
        (id->xcr0 & avx512_state) != avx512_state)
        return levels;
    levels |= 1u << QN_ISA_AVX512;
    if (!(id->leaf7_ecx & 1u << 11))
        return levels;
    levels |= 1u << QN_ISA_AVX512_VNNI;
    if (!(id->leaf7_1_eax & 1u << 5))
        return levels;
    levels |= 1u << QN_ISA_AVX512_BF16;
    if (all_of(id->leaf7_edx, amx_7) && id->tiles &&
        (id->xcr0 & tile_state) == tile_state)
        levels |= 1u << QN_ISA_AMX;
    return levels;
}

#if defined(__x86_64__) || defined(__i386__)

static uint64_t read_xcr0(void)
{
    /* The instruction itself: the intrinsic needs a compiler flag. */
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux gives a process the tile registers when it asks
 * (Documentation/arch/x86/xstate.rst: ARCH_REQ_XCOMP_PERM of feature 18). */
static bool ask_for_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__)
    enum { REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA);
#else
    return false;
#endif
}

static uint32_t find_levels(void)
{
    uint32_t a, b, c, d;
    qn_cpuid id = {0};
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 1u << QN_ISA_NONE;
    id.leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        id.leaf7_ebx = b;
        id.leaf7_ecx = c;
        id.leaf7_edx = d;
        if (a && __get_cpuid_count(7, 1, &a, &b, &c, &d))
            id.leaf7_1_eax = a;
    }
    /* XGETBV itself is only there when the system has turned it on. */
    if (id.leaf1_ecx & 1u << 27)
        id.xcr0 = read_xcr0();
    if (id.leaf7_edx & 1u << 24)
        id.tiles = ask_for_tiles();
    return qn_isa_x86(&id);
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

static uint32_t find_levels(void)
{
    uint32_t levels = 1u << QN_ISA_NONE;
#ifdef __aarch64__
    levels |= 1u << QN_ISA_NEON;
#endif
#if defined(__aarch64__) && defined(__linux__)
    /* The kernel's arch/arm64/include/uapi/asm/hwcap.h. */
    const unsigned long dot = 1ul << 20, i8mm = 1ul << 13, bf16 = 1ul << 14;
    if (getauxval(AT_HWCAP) & dot) {
        unsigned long more = getauxval(AT_HWCAP2);
        levels |= 1u << QN_ISA_NEON_DOT;
        if (more & i8mm && more & bf16)
            levels |= 1u << QN_ISA_NEON_I8MM;
    }
#endif
    return levels;
}

static void find_name(char *out, size_t size)
{
    (void)out;
    (void)size;
}

#endif

bool qn_isa_of_name(qn_isa *out, const char *name)
{
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        if (strcmp(name, qn_isa_name((qn_isa)isa)))
            continue;
        *out = (qn_isa)isa;
        return true;
    }
    return false;
}

/* Those up to the level that $QUERN_ISA names; all where it names none. */
static uint32_t limit_levels(uint32_t levels)
{
    const char *name = getenv("QUERN_ISA");
    qn_isa most;
    if (!name || !qn_isa_of_name(&most, name))
        return levels;
    return levels & ((2u << most) - 1);
}

static void find_facts(void)
{
    struct utsname system;
    facts.levels = limit_levels(find_levels());
    snprintf(facts.machine, sizeof facts.machine, "%s",
             uname(&system) ? "unknown" : system.machine);
    find_name(facts.name, sizeof facts.name);
    if (!facts.name[0])
        memcpy(facts.name, facts.machine, sizeof facts.name);
}

uint32_t qn_cpu_levels(void)
{
    pthread_once(&facts_once, find_facts);
    return facts.levels;
}

qn_isa qn_cpu_isa(void)
{
    int best = QN_ISA_COUNT - 1;
    while (best && !(qn_cpu_levels() >> best & 1))
        best--;
    return (qn_isa)best;
}

const char *qn_isa_name(qn_isa isa)
{
    static const char *const names[QN_ISA_COUNT] = {
        [QN_ISA_NONE] = "scalar",
        [QN_ISA_AVX2] = "avx2",
        [QN_ISA_AVX_VNNI] = "avx-vnni",
        [QN_ISA_AVX512] = "avx512",
        [QN_ISA_AVX512_VNNI] = "avx512-vnni",
        [QN_ISA_AVX512_BF16] = "avx512-bf16",
        [QN_ISA_AMX] = "amx",
        [QN_ISA_NEON] = "neon",
        [QN_ISA_NEON_DOT] = "neon-dot",
        [QN_ISA_NEON_I8MM] = "neon-i8mm",
    };
    return isa >= 0 && isa < QN_ISA_COUNT ? names[isa] : "unknown";
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
