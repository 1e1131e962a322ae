/* config_read.h: shared by the readers of the two forms of configuration. */
#ifndef QN_MODEL_CONFIG_READ_H
#define QN_MODEL_CONFIG_READ_H

#include "config.h"
#include "family.h"

/* Sizes and layers, which both forms have; config->family is known.  Before
 * it, the family's defaults are set. */
void qn_config_read_sizes(qn_config *config, qn_source *source);
/* What comes after everything common: the family's own keys, the rules between
 * values, max_positions. */
qn_status qn_config_finish(qn_config *config, qn_source *source);

#endif
