/* overhead.h: what one library has to offer to be measured. */
#ifndef QN_BENCH_OVERHEAD_H
#define QN_BENCH_OVERHEAD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Builds and evaluates; seconds, negative on failure.  *check becomes an
 * element of the last result. */
typedef struct overhead_peer {
    const char *name;
    /* x + y + y ..., `count` additions, each of the one before. */
    double (*chain)(int count, float *check);
    /* x + y, `count` times over. */
    double (*independent)(int count, float *check);
} overhead_peer;

/* What a peer that is loaded exports: its description. */
#define OVERHEAD_PEER overhead_peer_mlx
#define OVERHEAD_PEER_NAME "overhead_peer_mlx"

#ifdef __cplusplus
}
#endif

#endif
