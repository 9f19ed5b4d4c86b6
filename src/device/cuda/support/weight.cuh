/* weight.cuh: what kernels over rows of a matrix share: vectors of parameters in one of two
 * dtypes, and vectors of 16 bytes that wait in registers as they lie in memory.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_WEIGHT_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_WEIGHT_CUH

#include "device/cuda/support/support.cuh"

/* A vector of parameters in the activations' dtype or in f32; both NULL: absent. `offset` is added
 * to each of them where they are read. */
template <typename T> struct weight {
    const T *as_t;
    const float *as_f32;
    float offset;
};

template <typename T>
static inline weight<T> weight_of(const struct op_call *c, int i, double offset = 0.0)
{
    weight<T> w = {NULL, NULL, (float)offset};
    if (call_has(c, i) && c->in[i].dtype == DTYPE_F32)
        w.as_f32 = (const float *)c->in[i].data;
    else if (call_has(c, i))
        w.as_t = (const T *)c->in[i].data;
    return w;
}

template <typename T> static inline bool weight_aligned(const struct weight<T> &w)
{
    return is_aligned(w.as_t, 16) && is_aligned(w.as_f32, 16);
}

/* Elements [j, j + N), or `absent` N times. j is a multiple of N. */
template <int N, typename T>
static __device__ __forceinline__ void weight_load(float (&v)[N], const struct weight<T> &w,
                                                   int64_t j, float absent)
{
    if (w.as_f32) {
        load_f32(v, w.as_f32 + j);
    } else if (w.as_t) {
        load_f32(v, w.as_t + j);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = absent;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] += w.offset;
}

template <typename T>
static __device__ __forceinline__ float weight_at(const struct weight<T> &w, int64_t j,
                                                  float absent)
{
    return (w.as_f32 ? w.as_f32[j] : w.as_t ? to_f32(w.as_t[j]) : absent) + w.offset;
}

/* A 16-byte vector as it lies in memory, whole words that wait in registers: the compiler takes
 * arrays of 16-bit elements apart, one register each, long before they are needed. */
struct raw {
    uint32_t word[4];
};

template <typename T> static __device__ __forceinline__ struct raw raw_load(const T *p)
{
    const uint4 v = *reinterpret_cast<const uint4 *>(p);
    return {{v.x, v.y, v.z, v.w}};
}

/* The vector's elements in order; the last argument only tells their type. */
static __device__ __forceinline__ void raw_unpack(float (&v)[4], const struct raw &r, const float *)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = __uint_as_float(r.word[k]);
}
static __device__ __forceinline__ void raw_unpack(float (&v)[8], const struct raw &r,
                                                  const __nv_bfloat16 *)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[2 * k] = __uint_as_float(r.word[k] << 16);
        v[2 * k + 1] = __uint_as_float(r.word[k] & 0xffff0000u);
    }
}
static __device__ __forceinline__ void raw_unpack(float (&v)[8], const struct raw &r,
                                                  const __half *)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        v[2 * k] = __half2float(__ushort_as_half((unsigned short)(r.word[k] & 0xffffu)));
        v[2 * k + 1] = __half2float(__ushort_as_half((unsigned short)(r.word[k] >> 16)));
    }
}

/* As f32; N is the number of T in 16 bytes. */
template <typename T, int N>
static __device__ __forceinline__ void raw_get(float (&v)[N], const struct raw &r)
{
    raw_unpack(v, r, (const T *)nullptr);
}

/* Makes the compiler forget what it has computed from the vector, so that a later pass unpacks it
 * again instead of keeping the numbers in registers. */
static __device__ __forceinline__ void raw_renew(struct raw &r)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        asm volatile("" : "+r"(r.word[k]));
}

/* A vector of 16 bytes, or one element, between its load and its use. */
template <int N, typename T> struct waiting {
    struct raw held;
    static __device__ __forceinline__ struct waiting at(const T *p)
    {
        return {raw_load(p)};
    }
    __device__ __forceinline__ void get(float (&v)[N]) const
    {
        raw_get<T>(v, held);
    }
};
template <typename T> struct waiting<1, T> {
    T held;
    static __device__ __forceinline__ struct waiting at(const T *p)
    {
        return {*p};
    }
    __device__ __forceinline__ void get(float (&v)[1]) const
    {
        v[0] = to_f32(held);
    }
};

#endif
