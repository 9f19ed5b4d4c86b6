/* any.cuh: tensors whose dtype is known at run time only: single elements of any dtype, and
 * vectors of four floats of f32, bf16 or f16.
 *
 * Kernels over several tensors of different dtypes (the updates) read through these instead of
 * being compiled for every combination: all vectors are loaded raw, with no use between the loads,
 * and unpacked afterwards, so nothing waits for one load before it issues the next.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_ANY_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_ANY_CUH

#include "device/cuda/support/support.cuh"

/* A tensor's memory and dtype, as a kernel's argument. */
struct any {
    void *data;
    enum dtype dtype;
};

static inline struct any any_of(const struct tensor *t)
{
    struct any a = {t->data, t->dtype};
    return a;
}

/* ---- single elements ------------------------------------------------------------------------- */

static __device__ __forceinline__ float any_get_f32(const struct any &a, int64_t i)
{
    if (a.dtype == DTYPE_F32)
        return ((const float *)a.data)[i];
    if (a.dtype == DTYPE_BF16)
        return to_f32(((const __nv_bfloat16 *)a.data)[i]);
    return to_f32(((const __half *)a.data)[i]);
}

static __device__ __forceinline__ void any_set_f32(const struct any &a, int64_t i, float v)
{
    if (a.dtype == DTYPE_F32)
        ((float *)a.data)[i] = v;
    else if (a.dtype == DTYPE_BF16)
        ((__nv_bfloat16 *)a.data)[i] = from_f32<__nv_bfloat16>(v);
    else
        ((__half *)a.data)[i] = from_f32<__half>(v);
}

/* Any dtype, integers too. */
static __device__ __forceinline__ double any_get(const struct any &a, int64_t i)
{
    switch (a.dtype) {
    case DTYPE_F64:
        return ((const double *)a.data)[i];
    case DTYPE_I32:
        return (double)((const int32_t *)a.data)[i];
    case DTYPE_I64:
        return (double)((const int64_t *)a.data)[i];
    case DTYPE_U8:
        return (double)((const uint8_t *)a.data)[i];
    default:
        return (double)any_get_f32(a, i);
    }
}

static __device__ __forceinline__ void any_set(const struct any &a, int64_t i, double v)
{
    switch (a.dtype) {
    case DTYPE_F64:
        ((double *)a.data)[i] = v;
        break;
    case DTYPE_I32:
        ((int32_t *)a.data)[i] = (int32_t)v;
        break;
    case DTYPE_I64:
        ((int64_t *)a.data)[i] = (int64_t)v;
        break;
    case DTYPE_U8:
        ((uint8_t *)a.data)[i] = (uint8_t)v;
        break;
    default:
        any_set_f32(a, i, (float)v);
    }
}

/* ---- vectors of four ------------------------------------------------------------------------- */

/* Four elements as they lie in memory: 16 bytes of f32, or 8 bytes in the first two words. */
struct any4 {
    uint32_t word[4];
};

static inline bool any4_aligned(const struct any &a)
{
    return is_aligned(a.data, a.dtype == DTYPE_F32 ? 16 : 8);
}

static __device__ __forceinline__ struct any4 any4_load(const struct any &a, int64_t i_vector)
{
    struct any4 r;
    if (a.dtype == DTYPE_F32) {
        uint4 v = ((const uint4 *)a.data)[i_vector];
        r.word[0] = v.x, r.word[1] = v.y, r.word[2] = v.z, r.word[3] = v.w;
    } else {
        uint2 v = ((const uint2 *)a.data)[i_vector];
        r.word[0] = v.x, r.word[1] = v.y, r.word[2] = 0, r.word[3] = 0;
    }
    return r;
}

static __device__ __forceinline__ void any4_store(const struct any &a, int64_t i_vector,
                                                  const struct any4 &r)
{
    if (a.dtype == DTYPE_F32)
        ((uint4 *)a.data)[i_vector] = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
    else
        ((uint2 *)a.data)[i_vector] = make_uint2(r.word[0], r.word[1]);
}

static __device__ __forceinline__ void any4_unpack(float (&v)[4], const struct any4 &r,
                                                   enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = __uint_as_float(r.word[k]);
    } else if (dtype == DTYPE_BF16) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            v[2 * k] = __uint_as_float(r.word[k] << 16);
            v[2 * k + 1] = __uint_as_float(r.word[k] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            v[2 * k] = __half2float(__ushort_as_half((unsigned short)(r.word[k] & 0xffffu)));
            v[2 * k + 1] = __half2float(__ushort_as_half((unsigned short)(r.word[k] >> 16)));
        }
    }
}

static __device__ __forceinline__ struct any4 any4_pack(const float (&v)[4], enum dtype dtype)
{
    struct any4 r = {};
    if (dtype == DTYPE_F32) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            r.word[k] = __float_as_uint(v[k]);
    } else {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t low, high;
            if (dtype == DTYPE_BF16) {
                low = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * k]));
                high = __bfloat16_as_ushort(__float2bfloat16_rn(v[2 * k + 1]));
            } else {
                low = __half_as_ushort(__float2half_rn(v[2 * k]));
                high = __half_as_ushort(__float2half_rn(v[2 * k + 1]));
            }
            r.word[k] = low | high << 16;
        }
    }
    return r;
}

#endif
