/* kv_tokens.h: the part of quern-bench-kv that masks tokens. */
#ifndef QN_BENCH_KV_TOKENS_H
#define QN_BENCH_KV_TOKENS_H

#include <mlx/c/mlx.h>

/* How many lines miss their limit. */
int bench_kv_tokens(mlx_stream on);

#endif
