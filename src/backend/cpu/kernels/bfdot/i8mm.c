/* i8mm.c: products of bfloat16 for Arm processors with FEAT_BF16. */
#include "bfdot.h"

#include "backend/cpu/simd_neon.h"

#undef FN
#define FN(name) name##_i8mm

typedef uint16x8_t VB;
enum { TILE_M = 5 };

VF_INLINE VB vb_load(const uint16_t *p)
{
    return vld1q_u16(p);
}
VF_INLINE VB vb_load_part(const uint16_t *p, size_t count)
{
    uint16_t lanes[8] = {0};
    memcpy(lanes, p, count * sizeof *p);
    return vld1q_u16(lanes);
}
VF_INLINE void vb_store(uint16_t *p, VB v)
{
    vst1q_u16(p, v);
}
VF_INLINE VB vb_pair(uint32_t pair)
{
    return vreinterpretq_u16_u32(vdupq_n_u32(pair));
}
VF_INLINE VF vb_dot(VF sum, VB a, VB b)
{
    return vbfdotq_f32(sum, vreinterpretq_bf16_u16(a),
                       vreinterpretq_bf16_u16(b));
}
/* out[0]: a[0], b[0], a[1], b[1] ...; out[1]: the upper halves likewise. */
VF_INLINE void vb_zip(VB out[2], VB a, VB b)
{
    out[0] = vzip1q_u16(a, b);
    out[1] = vzip2q_u16(a, b);
}

#include "bfdot.inc"
