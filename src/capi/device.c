/* device.c: devices and what is known of them. */
#include "device.h"

#include "backends.h"

#include "base/alloc.h"
#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

/* ---- handles ---- */

qn_status qn_handle_set_device(mlx_device *res, qn_device device)
{
    qn_device_box *box = res->ctx;
    if (!box) {
        box = qn_alloc(sizeof *box);
        if (!box)
            return QN_E_NOMEM;
        res->ctx = box;
    }
    box->device = device;
    return QN_OK;
}

int qn_device_text(char *text, size_t size, qn_device device)
{
    return snprintf(text, size, "Device(%s, %d)",
                    device.type == QN_DEVICE_GPU ? "gpu" : "cpu", device.index);
}

mlx_device mlx_device_new(void)
{
    return (mlx_device){NULL};
}

mlx_device mlx_device_new_type(mlx_device_type type, int index)
{
    mlx_device res = {NULL};
    qn_device device = {type == MLX_GPU ? QN_DEVICE_GPU : QN_DEVICE_CPU, index};
    QN_CALL_OR(qn_handle_set_device(&res, device), res);
    return res;
}

int mlx_device_free(mlx_device dev)
{
    qn_free(dev.ctx);
    return 0;
}

int mlx_device_set(mlx_device *dev, const mlx_device src)
{
    QN_GET_DEVICE(box, src);
    QN_CALL(qn_handle_set_device(dev, box->device));
    return 0;
}

/* ---- properties ---- */

int mlx_device_tostring(mlx_string *str, mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    char text[64];
    int size = qn_device_text(text, sizeof text, box->device);
    return QN_STORE_STRING(str, text, (size_t)size);
}

bool mlx_device_equal(mlx_device lhs, mlx_device rhs)
{
    const qn_device_box *a = lhs.ctx, *b = rhs.ctx;
    if (!a || !b)
        return a == b;
    return a->device.type == b->device.type &&
           a->device.index == b->device.index;
}

int mlx_device_get_index(int *index, mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    *index = box->device.index;
    return 0;
}

int mlx_device_get_type(mlx_device_type *type, mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    *type = box->device.type == QN_DEVICE_GPU ? MLX_GPU : MLX_CPU;
    return 0;
}

/* ---- what there is ---- */

int mlx_get_default_device(mlx_device *dev)
{
    QN_CALL(qn_handle_set_device(dev, qn_device_default()));
    return 0;
}

int mlx_set_default_device(mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    qn_backends_need();
    QN_CALL(qn_device_set_default(box->device));
    return 0;
}

int mlx_device_is_available(bool *avail, mlx_device dev)
{
    QN_GET_DEVICE(box, dev);
    *avail = box->device.index >= 0 &&
             box->device.index < qn_backends_count(box->device.type);
    return 0;
}

int mlx_device_count(int *count, mlx_device_type type)
{
    *count = qn_backends_count(type == MLX_GPU ? QN_DEVICE_GPU : QN_DEVICE_CPU);
    return 0;
}

/* ---- information by name ---- */

/* A text, or a size where there is no text. */
typedef struct fact {
    const char *key;
    const char *text; /* lives as long as the process */
    size_t size;
} fact;

enum { MAX_FACTS = 6 };

typedef struct info_box {
    size_t count;
    fact facts[MAX_FACTS];
} info_box;

static void describe_cpu(info_box *info)
{
    size_t memory = qn_memory_total();
    *info = (info_box){
        .count = MAX_FACTS,
        .facts = {
            {.key = "architecture", .text = qn_cpu_machine()},
            {.key = "device_name", .text = qn_cpu_name()},
            {.key = "isa", .text = qn_isa_name(qn_cpu_isa())},
            {.key = "cores", .size = (size_t)qn_cpu_allowed_cores()},
            {.key = "memory_size", .size = memory},
            /* What leaves the rest of the system room. */
            {.key = "max_recommended_working_set_size", .size = memory / 4 * 3},
        }};
}

static const fact *find(const info_box *info, const char *key)
{
    for (size_t i = 0; i < info->count; i++)
        if (!strcmp(info->facts[i].key, key))
            return &info->facts[i];
    return NULL;
}

#define QN_GET_INFO(name, handle)                                              \
    QN_GET_OR(const info_box, name, (handle).ctx, mlx_device_info, 1)

mlx_device_info mlx_device_info_new(void)
{
    return (mlx_device_info){NULL};
}

int mlx_device_info_get(mlx_device_info *info, mlx_device dev)
{
    QN_GET_DEVICE(device, dev);
    qn_backends_need();
    info_box *box = info->ctx;
    if (!box) {
        box = qn_calloc(1, sizeof *box);
        if (!box)
            return QN_REPORT();
        info->ctx = box;
    }
    /* An alias of the CPU is described as what it is; of a device that is not
     * there nothing is known. */
    if (qn_device_usable(device->device))
        describe_cpu(box);
    else
        box->count = 0;
    return 0;
}

int mlx_device_info_free(mlx_device_info info)
{
    qn_free(info.ctx);
    return 0;
}

int mlx_device_info_has_key(bool *exists, mlx_device_info info, const char *key)
{
    QN_GET_INFO(box, info);
    *exists = find(box, key);
    return 0;
}

/* In these, 2 without a report says that there is no such value. */

int mlx_device_info_is_string(bool *is_string, mlx_device_info info,
                              const char *key)
{
    QN_GET_INFO(box, info);
    const fact *f = find(box, key);
    if (!f)
        return 2;
    *is_string = f->text;
    return 0;
}

int mlx_device_info_get_string(const char **value, mlx_device_info info,
                               const char *key)
{
    QN_GET_INFO(box, info);
    const fact *f = find(box, key);
    if (!f || !f->text)
        return 2;
    *value = f->text;
    return 0;
}

int mlx_device_info_get_size(size_t *value, mlx_device_info info,
                             const char *key)
{
    QN_GET_INFO(box, info);
    const fact *f = find(box, key);
    if (!f || f->text)
        return 2;
    *value = f->size;
    return 0;
}

int mlx_device_info_get_keys(mlx_vector_string *keys, mlx_device_info info)
{
    QN_GET_INFO(box, info);
    const char *names[MAX_FACTS];
    for (size_t i = 0; i < box->count; i++)
        names[i] = box->facts[i].key;
    return QN_STORE(qn_handle_set_strings(keys, names, box->count));
}
