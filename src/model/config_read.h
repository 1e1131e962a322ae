/* config_read.h: shared by the readers of the two forms of configuration. */
#ifndef QN_MODEL_CONFIG_READ_H
#define QN_MODEL_CONFIG_READ_H

#include "config.h"

/* QN_E_FORMAT with both bounds unless low <= value <= high. */
qn_status qn_config_bound(int64_t value, int64_t low, int64_t high,
                          const char *where);
/* One entry for each layer, all alike; needs `layers` and `intermediate`. */
qn_status qn_config_make_layers(qn_config *config);
/* The rules between values; settles max_positions. */
qn_status qn_config_check(qn_config *config, const char *path);

#endif
