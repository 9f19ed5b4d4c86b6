/* binary.cu: add, sub, mul, div. b's elements repeat over a's leading axes: element i of a meets
 * element i % n_b of b. */
#include "device/cuda/support/map.cuh"

#define BINARY(name, expression)                                                           \
    struct name##_fn {                                                                     \
        template <bool FAST> static __device__ __forceinline__ float at(float a, float b)  \
        {                                                                                  \
            return expression;                                                             \
        }                                                                                  \
    };                                                                                     \
    static enum status name##_vectors(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                      \
        return cuda_map2<name##_fn>(x, c);                                                 \
    }                                                                                      \
    CUDA_RUN(name, vectors, name##_vectors)
BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, a / b)
