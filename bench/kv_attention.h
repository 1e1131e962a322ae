/* kv_attention.h: the part of quern-bench-kv that computes attention. */
#ifndef QN_BENCH_KV_ATTENTION_H
#define QN_BENCH_KV_ATTENTION_H

#include <mlx/c/mlx.h>

/* How many lines miss their limit. */
int bench_kv_attention(mlx_stream on);

#endif
