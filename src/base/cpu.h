/* cpu.h: what this machine's processors can do and how many we may use. */
#ifndef QN_BASE_CPU_H
#define QN_BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instruction-set levels of the kernel families, worst first; a level
 * implies the ones below it on the same architecture. */
typedef enum qn_isa {
    QN_ISA_NONE,   /* portable C */
    QN_ISA_AVX2,   /* AVX2, FMA, F16C */
    QN_ISA_AVX512, /* F, BW, DQ, VL, CD (Skylake-SP and later) */
    QN_ISA_AVX512_VNNI, /* the same with VNNI (Cascade Lake, Zen 4) */
    QN_ISA_NEON         /* every aarch64 */
} qn_isa;

/* The best level that the processor and the operating system offer; read
 * once.  */
qn_isa qn_cpu_isa(void);
/* "scalar", "avx2", "avx512", "avx512-vnni", "neon". */
const char *qn_isa_name(qn_isa isa);
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

/* The level for an x86 processor: ECX of CPUID leaf 1, EBX and ECX of leaf 7,
 * and the register state the operating system saves (XCR0, 0 without
 * XGETBV). */
qn_isa qn_isa_x86(uint32_t leaf1_ecx, uint32_t leaf7_ebx, uint32_t leaf7_ecx,
                  uint64_t xcr0);
/* How many cores the processors i < count with allowed[i] are on, by the
 * topology below ROOT/sys ("" for the real one).  A processor without an
 * entry there counts as a core. */
int qn_cores_of(const char *root, const bool *allowed, int count);

#endif
