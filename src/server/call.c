/* call.c: what the protocols share about calls. */
#include "protocol.h"

#include <inttypes.h>
#include <stdio.h>

void qn_api_call_free(qn_api_call *call)
{
    qn_arena_free(&call->arena);
    qn_json_doc_free(call->doc);
    qn_buf_free(&call->ignored);
    qn_buf_free(&call->body);
    *call = (qn_api_call){0};
}

/* SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on
 * every bit of x. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void qn_api_id(char out[QN_API_ID_SIZE], const qn_api_head *head,
               const char *prefix, uint64_t index)
{
    uint64_t high = mix(head->random[0] + mix(index));
    uint64_t low = mix(head->random[1] ^ mix(~index));
    snprintf(out, QN_API_ID_SIZE, "%.16s%016" PRIx64 "%08" PRIx32, prefix, high,
             (uint32_t)low);
}
