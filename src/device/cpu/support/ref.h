/* ref.h: element access for the reference kernels: any float dtype, in double. */
#ifndef SNUG_DEVICE_CPU_SUPPORT_REF_H
#define SNUG_DEVICE_CPU_SUPPORT_REF_H

#include "base/half.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline double ref_get(const struct tensor *t, int64_t i)
{
    switch (t->dtype) {
    case DTYPE_F32:
        return (double)((const float *)t->data)[i];
    case DTYPE_F64:
        return ((const double *)t->data)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((const uint16_t *)t->data)[i]);
    case DTYPE_F16:
        return (double)f16_to_f32(((const uint16_t *)t->data)[i]);
    case DTYPE_I32:
        return (double)((const int32_t *)t->data)[i];
    case DTYPE_I64:
        return (double)((const int64_t *)t->data)[i];
    case DTYPE_U8:
        return (double)((const uint8_t *)t->data)[i];
    default:
        return 0.0;
    }
}

static inline void ref_set(const struct tensor *t, int64_t i, double x)
{
    switch (t->dtype) {
    case DTYPE_F32:
        ((float *)t->data)[i] = (float)x;
        break;
    case DTYPE_F64:
        ((double *)t->data)[i] = x;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->data)[i] = bf16_from_f32((float)x);
        break;
    case DTYPE_F16:
        ((uint16_t *)t->data)[i] = f16_from_f32((float)x);
        break;
    case DTYPE_I32:
        ((int32_t *)t->data)[i] = (int32_t)x;
        break;
    case DTYPE_I64:
        ((int64_t *)t->data)[i] = (int64_t)x;
        break;
    case DTYPE_U8:
        ((uint8_t *)t->data)[i] = (uint8_t)x;
        break;
    default:
        break;
    }
}

#ifdef __cplusplus
}
#endif
#endif
