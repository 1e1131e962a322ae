/* bandwidth.h: how fast this machine reads memory. */
#ifndef QN_BASE_BANDWIDTH_H
#define QN_BASE_BANDWIDTH_H

/* Bytes per second that `threads` threads (1..512) read together out of
 * memory larger than the caches: the best of the passes that fit into
 * `seconds` (at least one).  0 when memory or threads are not to be had. */
double qn_memory_bandwidth(int threads, double seconds);

#endif
