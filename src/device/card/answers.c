/* answers.c: the libraries' answers without the libraries.
 *
 * Recorded on an H200 with CUDA 13.0, cuBLASLt 13.1 and cuDNN 9.14; tests/cuda/test_cuda_cards.c
 * compares them with the libraries of a GPU that is there. On other GPUs the libraries are taken to
 * answer alike: where they decline a call that is planned for them here, the kernels that take it
 * instead need less workspace.
 */
#include "base/compiler.h"
#include "device/card/card.h"
#include "device/cuda/declared/attention.h"
#include "device/cuda/declared/convolution.h"
#include "device/cuda/declared/product.h"
#include "device/cuda/declared/sums.h"

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

static const char *product_declined(const struct kernel_env *env, const struct cuda_gemm *g)
{
    if (g->dtype == DTYPE_BF16 && env->gpu->major < 8)
        return "cuBLASLt has no algorithm for it on this GPU";
    return NULL;
}

static int64_t product_bytes(const struct kernel_env *env, const struct cuda_gemm *g)
{
    return product_allowance(env->gpu, g);
}

/* ---- cuDNN ----------------------------------------------------------------------------------- */

enum { CUDNN_RECORDED = 91400, ENGINE_BYTES = 256 };

/* What the engine asks for. The deterministic gradient keeps an f32 copy of dq for every tile of
 * keys, heads rounded up to 64 or 128 columns, and where query heads share keys and values a copy
 * of dk and dv for each of them. */
static int64_t engine_bytes(const struct sdpa_shape *part)
{
    if (part->kind == SDPA_FORWARD)
        return ENGINE_BYTES;
    int64_t columns = ceil_div(part->head_dim, 64) * 64, tile = columns <= 64 ? 128 : 256;
    int64_t n = part->batch * part->heads * part->n_tokens * columns;
    int64_t copies = part->heads != part->kv_heads ? 2 * dtype_size(part->dtype) : 0;
    int64_t tiles = ceil_div(part->n_tokens, tile) * (int64_t)sizeof(float);
    return ENGINE_BYTES + n * (tiles + copies);
}

static int64_t part_bytes(const struct sdpa_shape *whole, int64_t n)
{
    struct sdpa_shape part = sdpa_part_shape(whole, n);
    return sdpa_space_of(&part).engine_at + engine_bytes(&part);
}

/* Groups of the part that is asked for first, to learn what a group needs (attention/sdpa.c). */
static int64_t probed_part(const struct sdpa_shape *whole)
{
    if (whole->kind == SDPA_FORWARD)
        return sdpa_part_whole(whole);
    return MAX(whole->kv_heads, sdpa_part_next(whole, 0));
}

/* Groups of the part that runs at a time; 0: every part wants too much. */
static int64_t chosen_part(const struct gpu_model *gpu, const struct sdpa_shape *whole)
{
    const struct sdpa_machine machine = {gpu->n_multiprocessors, gpu->memory_bytes};
    int64_t probed = probed_part(whole), most = sdpa_part_most_bytes(whole, &machine);
    int64_t group_bytes = part_bytes(whole, probed) / probed;
    int64_t chosen = sdpa_part_choose(whole, group_bytes * sdpa_part_whole(whole), &machine);
    while (chosen > 0 && chosen != probed && part_bytes(whole, chosen) > most)
        chosen = sdpa_part_previous(whole, chosen);
    return chosen;
}

static const char *attention_declined(const struct op_call *c, const struct kernel_env *env)
{
    struct sdpa_shape whole = sdpa_shape_of(c);
    const char *why = sdpa_known_limit(env->gpu, &whole, CUDNN_RECORDED);
    if (why)
        return why;
    return chosen_part(env->gpu, &whole) > 0 ? NULL : "cuDNN wants too much workspace for it";
}

static int64_t attention_bytes(const struct op_call *c, const struct kernel_env *env)
{
    struct sdpa_shape whole = sdpa_shape_of(c);
    return part_bytes(&whole, chosen_part(env->gpu, &whole));
}

/* Every shape that cuDNN is asked for, it has an engine for. */
static const char *convolution_declined(const struct kernel_env *env, const struct conv_shape *s)
{
    (void)env;
    (void)s;
    return NULL;
}

const struct gpu_answers card_answers = {
    .product_declines = product_declined,
    .product_workspace = product_bytes,
    .attention_declines = attention_declined,
    .attention_workspace = attention_bytes,
    .convolution_declines = convolution_declined,
};

/* ---- the context ----------------------------------------------------------------------------- */

/* 314 MiB on an H200: our code, cuBLASLt's and cuDNN's, the driver's queues. What the driver keeps
 * for each multiprocessor is a small part of it, so other GPUs are taken to be alike. */
int64_t card_context_bytes(const struct gpu_model *gpu)
{
    (void)gpu;
    return (int64_t)314 << 20;
}
