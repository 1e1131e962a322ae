/* safetensors.h: named arrays and texts about them in one file.
 *
 * The format and its checks are in base/safetensors.h.  float64 is refused in
 * both directions, as MLX does; the 8-bit floats E4M3 and E8M0 come as uint8,
 * the bits that they are. */
#ifndef QN_IO_SAFETENSORS_H
#define QN_IO_SAFETENSORS_H

#include "base/map.h"
#include "core/stream.h"
#include "stream.h"

/* The file that begins at the stream's position and ends with the stream.
 * *arrays (free with qn_named_free) is a map of elements.h, *metadata one of
 * texts (qn_alloc), without entries where the file has none.  The elements are
 * read when an array is evaluated. */
qn_status qn_safetensors_load(qn_map **arrays, qn_map **metadata, qn_io *in,
                              qn_stream *s);

/* Evaluates the arrays and writes them; metadata may be NULL.  Where they begin
 * suits their types: the widest elements come first. */
qn_status qn_safetensors_save(qn_io *to, const qn_map *arrays,
                              const qn_map *metadata);

#endif
