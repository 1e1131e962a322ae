/* Devices: a kind of processor and an index among those of the kind.
 *
 * The default device is one per process: the GPU if there is one, else the CPU.
 * The device of a stream decides where an operation runs (stream.h). */
#ifndef MLX_C_DEVICE_H
#define MLX_C_DEVICE_H

#include "mlx/c/types.h"

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of processor. */
typedef enum mlx_device_type_ { MLX_CPU = 0, MLX_GPU = 1 } mlx_device_type;

/* --- Handles -------------------------------------------------------------- */

/* A handle without a device (NULL ctx), ready to be a result. */
mlx_device mlx_device_new(void);

/* Device number index of a kind, present or not. */
mlx_device mlx_device_new_type(mlx_device_type type, int index);

/* Frees the handle. */
int mlx_device_free(mlx_device dev);

/* Makes *dev the device of src. */
int mlx_device_set(mlx_device *dev, const mlx_device src);

/* --- Properties ----------------------------------------------------------- */

/* Stores a text such as "Device(cpu, 0)" in *str. */
int mlx_device_tostring(mlx_string *str, mlx_device dev);

/* Whether kind and index agree. Both must be devices. */
bool mlx_device_equal(mlx_device lhs, mlx_device rhs);

/* The index among the devices of the kind, and the kind. */
int mlx_device_get_index(int *index, mlx_device dev);
int mlx_device_get_type(mlx_device_type *type, mlx_device dev);

/* --- What there is -------------------------------------------------------- */

/* Stores the default device in *dev. */
int mlx_get_default_device(mlx_device *dev);

/* Makes dev the default device of the process; fails if it is not available. */
int mlx_set_default_device(mlx_device dev);

/* Whether work can run on dev. A missing device is no error. */
int mlx_device_is_available(bool *avail, mlx_device dev);

/* Stores the number of devices of a kind: 0 GPUs where there is none. */
int mlx_device_count(int *count, mlx_device_type type);

/* --- Information by name -------------------------------------------------- */

/* A handle without information (NULL ctx), ready to be a result. */
mlx_device_info mlx_device_info_new(void);

/* Stores what is known of dev in *info. A value is a text or a size. A CPU has
 * the texts "architecture" (such as "x86_64") and "device_name"; GPUs add sizes
 * such as "memory_size" and "max_recommended_working_set_size". */
int mlx_device_info_get(mlx_device_info *info, mlx_device dev);

/* Frees info and the texts borrowed from it. */
int mlx_device_info_free(mlx_device_info info);

/* Whether there is a value called key. */
int mlx_device_info_has_key(bool *exists, mlx_device_info info,
                            const char *key);

/* Whether the value called key is a text. Returns 2 if there is none. */
int mlx_device_info_is_string(bool *is_string, mlx_device_info info,
                              const char *key);

/* Store the value called key. Return 2, without an error report, if there is
 * none or if it is of the other kind. The text is borrowed from info. */
int mlx_device_info_get_string(const char **value, mlx_device_info info,
                               const char *key);
int mlx_device_info_get_size(size_t *value, mlx_device_info info,
                             const char *key);

/* Stores the names of all values in *keys. */
int mlx_device_info_get_keys(mlx_vector_string *keys, mlx_device_info info);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
