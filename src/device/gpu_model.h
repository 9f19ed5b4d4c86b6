/* gpu_model.h: what the CUDA kernels' choices and workspaces depend on beside a call: sizes of a
 * GPU, and who answers for the libraries on it.
 *
 * No CUDA in here. A GPU that was opened fills it from its driver and asks cuBLASLt and cuDNN; one
 * that is only planned for (card/card.h) fills it from a table and goes by recorded rules.
 */
#ifndef SNUG_DEVICE_GPU_MODEL_H
#define SNUG_DEVICE_GPU_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_env;
struct op_call;
struct cuda_gemm;
struct conv_shape;

/* Answers of the libraries, as struct kernel has them: why a call is not taken, its workspace. */
struct gpu_answers {
    const char *(*product_declines)(const struct kernel_env *env, const struct cuda_gemm *g);
    int64_t (*product_workspace)(const struct kernel_env *env, const struct cuda_gemm *g);
    const char *(*attention_declines)(const struct op_call *c, const struct kernel_env *env);
    int64_t (*attention_workspace)(const struct op_call *c, const struct kernel_env *env);
    const char *(*convolution_declines)(const struct kernel_env *env, const struct conv_shape *s);
};

struct gpu_model {
    int major, minor; /* compute capability */
    int n_multiprocessors;
    int shared_per_block_optin; /* bytes a kernel may ask for */
    int shared_per_multiprocessor;
    int threads_per_multiprocessor;
    int64_t l2_bytes;
    int64_t memory_bytes; /* as the driver counts them */
    const struct gpu_answers *answers;
};

#ifdef __cplusplus
}
#endif
#endif
