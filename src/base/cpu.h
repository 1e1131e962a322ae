/* cpu.h: what this machine's processors can do and how many we may use. */
#ifndef QN_BASE_CPU_H
#define QN_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instruction-set levels of the kernel families, those of one architecture from
 * worst to best.  A processor has a set of them: AVX-VNNI is on some without
 * AVX-512 and is missing on some with it. */
typedef enum qn_isa {
    QN_ISA_NONE,        /* portable C */
    QN_ISA_AVX2,        /* AVX2, FMA, F16C, BMI2 */
    QN_ISA_AVX_VNNI,    /* AVX2 with 8-bit dot products (Alder Lake) */
    QN_ISA_AVX512,      /* F, BW, DQ, VL, CD (Skylake-SP and later) */
    QN_ISA_AVX512_VNNI, /* and VNNI (Cascade Lake, Zen 4) */
    QN_ISA_AVX512_BF16, /* and BF16 (Cooper Lake, Zen 4) */
    QN_ISA_AMX,         /* and tiles of int8 and bfloat16 (Sapphire Rapids) */
    QN_ISA_NEON,        /* every aarch64 */
    QN_ISA_NEON_DOT,    /* and 8-bit dot products (FEAT_DotProd) */
    QN_ISA_NEON_I8MM,   /* and FEAT_I8MM, FEAT_BF16 (Neoverse V1, Apple M2) */
    QN_ISA_COUNT
} qn_isa;

/* The levels that the processor and the operating system offer, bit 1 <<
 * level for each; read once. */
uint32_t qn_cpu_levels(void);
/* The best of them. */
qn_isa qn_cpu_isa(void);
/* "scalar", "avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-bf16", "amx",
 * "neon", "neon-dot", "neon-i8mm". */
const char *qn_isa_name(qn_isa isa);
/* The level of that name; false: there is none. */
bool qn_isa_of_name(qn_isa *out, const char *name);
/* Processor brand string, or the machine name where there is none. */
const char *qn_cpu_name(void);
/* "x86_64", "aarch64": the kernel's machine name. */
const char *qn_cpu_machine(void);
/* Processors this process may use: the affinity mask, cut to the cgroup's
 * CPU quota (v1 and v2, every level up to the root), rounded up, at least 1. */
int qn_cpu_allowed(void);
/* The same counted as physical cores (hyper-threads of one core once). */
int qn_cpu_allowed_cores(void);
/* Physical memory, and the smaller of it and the cgroup's limit; bytes. */
size_t qn_memory_total(void);
size_t qn_memory_limit(void);

/* ---- the parts that decide, open to tests ---- */

/* What CPUID and XGETBV say of an x86 processor. */
typedef struct qn_cpuid {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx;
    uint32_t leaf7_1_eax;
    uint64_t xcr0; /* the registers the system saves; 0 without XGETBV */
    bool tiles;    /* the system gives this process the tile registers */
} qn_cpuid;
/* Its levels, as qn_cpu_levels has them. */
uint32_t qn_isa_x86(const qn_cpuid *id);
/* How many cores the processors i < count with allowed[i] are on, by the
 * topology below ROOT/sys ("" for the real one).  A processor without an
 * entry there counts as a core. */
int qn_cores_of(const char *root, const bool *allowed, int count);

#endif
