/* vnni.c: products in 8-bit integers for AVX-512 with VNNI. */
#include "vnni.h"
#include "panel.h"

#undef FN
#define FN(name) name##_vnni

#include "panel.inc"
