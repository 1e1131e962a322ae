/* meters.h: what this machine can do at most, measured beside the work that it
 * is compared with.
 *
 * Memory: every thread streams through a part of arrays that no cache holds.
 * What is written goes around the caches, as no loop can do better. */
#ifndef QN_BENCH_METERS_H
#define QN_BENCH_METERS_H

typedef enum meter_kind {
    METER_READ,  /* sums up one array */
    METER_WRITE, /* fills one */
    METER_COPY,  /* one into another */
    METER_ADD,   /* two into a third */
    METER_KINDS
} meter_kind;

#pragma GCC visibility push(default)

/* Bytes per second, read and written together, of the best of `passes` passes;
 * 0 on failure. */
double meter_bandwidth(int kind, int threads, int passes);
/* Float32 multiply-adds on registers, operations per second (two each), of all
 * threads together; 0 on failure. */
double meter_flops(int threads, int passes);
/* Multiply-adds of 8-bit integers on registers per second, of all threads
 * together; 0 on failure and where the processor's level has none. */
double meter_dot8(int threads, int passes);

#pragma GCC visibility pop

#endif
