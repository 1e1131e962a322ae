/* base64.h: the standard alphabet of RFC 4648. */
#ifndef QN_BASE_BASE64_H
#define QN_BASE_BASE64_H

#include "buf.h"

/* Appends the bytes that `text` stands for.  Padding at the end is optional;
 * any other character: QN_E_FORMAT with its offset, and nothing appended. */
qn_status qn_base64_decode(qn_buf *out, qn_str text);
/* Appends the text that stands for some bytes, padded. */
void qn_base64_encode(qn_buf *out, const void *data, size_t size);

#endif
