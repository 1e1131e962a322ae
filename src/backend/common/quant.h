/* quant.h: the number formats inside packed weights.
 *
 * A packed row is one little-endian bit stream in uint32 words: the code of
 * element k is at bits [k * bits, (k + 1) * bits).  Groups of elements share
 * a scale.  An element's value is
 *
 *   affine         code * scale + bias
 *   mxfp4, nvfp4   E2M1 of the code, times the scale
 *   mxfp8          E4M3 of the code, times the scale
 *
 * where the scale of the mx modes is a power of two (E8M0: 2^(byte - 127)) and
 * that of nvfp4 E4M3, times global_scale / 2688 if there is one. */
#ifndef QN_BACKEND_COMMON_QUANT_H
#define QN_BACKEND_COMMON_QUANT_H

#include "ops/params.h"

#include <stddef.h>
#include <stdint.h>

/* Sign, two bits of exponent, one of fraction: 0 .5 1 1.5 2 3 4 6. */
float qn_e2m1_to_f32(uint8_t code);
/* Nearest, ties to the even code, saturating at 6.  What rounds to zero, and a
 * NaN, gives 0: code 8, the negative zero, is never written. */
uint8_t qn_f32_to_e2m1(float value);
/* Sign, four bits of exponent, three of fraction, without NaN: 127 is 480. */
float qn_e4m3_to_f32(uint8_t code);
/* Nearest, ties to even, saturating at 448; a NaN becomes 127 with its sign,
 * the place where E4M3 keeps it. */
uint8_t qn_f32_to_e4m3(float value);
/* 2^(code - 127); 255 is NaN. */
float qn_e8m0_to_f32(uint8_t code);

/* n codes from element `first` on of a packed row. */
void qn_quant_unpack(uint8_t *codes, const uint32_t *row, size_t first,
                     size_t n, int bits);
/* n codes to the front of a row of ceil(n * bits / 32) words. */
void qn_quant_pack(uint32_t *row, const uint8_t *codes, size_t n, int bits);

/* The float scale of a byte in one of the modes with uint8 scales. */
float qn_quant_scale(qn_quant_mode mode, uint8_t code);
/* What the codes of such a mode stand for, before scaling. */
void qn_quant_values(float *values, const uint8_t *codes, size_t n,
                     qn_quant_mode mode);

/* Affine: scale and bias of the n elements of a group, and their codes, made
 * with the float scale and bias, before these are rounded to any dtype.
 * Every step is a float32 operation rounded once: bit-exact everywhere. */
void qn_quant_affine_group(uint8_t *codes, float *scale, float *bias,
                           const float *w, size_t n, int bits);
/* The other modes: codes and the scale's byte.  global_scale is 0 when there
 * is none. */
void qn_quant_float_group(uint8_t *codes, uint8_t *scale, const float *w,
                          size_t n, qn_quant_mode mode, float global_scale);
/* What a group's scale is multiplied with: global_scale / 2688, or 1. */
float qn_quant_global(float global_scale);

#endif
