/* router.c: the logits of a router in f32, and its gradient; products whose operands differ in
 * dtype. */
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/products/gemm.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

struct sizes {
    int64_t n_tokens, n_experts, n_in;
};

static struct sizes sizes_of(const struct tensor *x, const struct tensor *w)
{
    return (struct sizes){x->shape.dim[0], w->shape.dim[0], w->shape.dim[1]};
}

/* ---- logits --------------------------------------------------------------------------------- */

static enum status reference_logits(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct sizes s = sizes_of(&c->in[0], &c->in[1]);
    for (int64_t i = 0; i < s.n_tokens * s.n_experts; i++) {
        int64_t row = i / s.n_experts, expert = i % s.n_experts;
        double sum = call_has(c, 2) ? ref_get(&c->in[2], expert) : 0.0;
        for (int64_t k = 0; k < s.n_in; k++)
            sum += ref_get(&c->in[0], row * s.n_in + k) * ref_get(&c->in[1], expert * s.n_in + k);
        ref_set(&c->out[0], i, sum);
    }
    return OK;
}

static int64_t bias_bytes(const struct op_call *c)
{
    bool converts = call_has(c, 2) && c->in[2].dtype != DTYPE_F32;
    return converts ? (c->in[1].shape.dim[0] + 15) / 16 * 64 : 0;
}

static int64_t logits_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct sizes s = sizes_of(&c->in[0], &c->in[1]);
    return bias_bytes(c) + cpu_gemm_workspace(env, s.n_tokens, s.n_experts, s.n_in);
}

static enum status logits(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(&c->in[0], &c->in[1]);
    struct cpu_gemm g = {
        .m = s.n_tokens,
        .n = s.n_experts,
        .k = s.n_in,
        .a = cpu_matrix_of(&c->in[0], 0, s.n_in),
        .b = cpu_matrix_transposed(cpu_matrix_of(&c->in[1], 0, s.n_in)),
        .c = c->out[0].data,
        .c_dtype = c->out[0].dtype,
        .c_row = s.n_experts,
    };
    if (call_has(c, 2))
        g.bias = block_read(&c->in[2], 0, s.n_experts, x->workspace);
    cpu_gemm(&x->env, (char *)x->workspace + bias_bytes(c), &g);
    return OK;
}

/* ---- gradient ------------------------------------------------------------------------------- */

static enum status reference_grad(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *in = &c->in[0], *dz = &c->in[1], *w = &c->in[2];
    struct sizes s = sizes_of(in, w);
    for (int64_t i = 0; i < s.n_tokens * s.n_in; i++) {
        double sum = 0.0;
        for (int64_t e = 0; e < s.n_experts; e++)
            sum += ref_get(dz, i / s.n_in * s.n_experts + e) * ref_get(w, e * s.n_in + i % s.n_in);
        ref_set(&c->out[0], i, sum);
    }
    for (int64_t i = 0; i < s.n_experts * s.n_in; i++) {
        double sum = 0.0;
        for (int64_t n = 0; n < s.n_tokens; n++)
            sum += ref_get(dz, n * s.n_experts + i / s.n_in) * ref_get(in, n * s.n_in + i % s.n_in);
        ref_set(&c->out[1], i, sum);
    }
    for (int64_t e = 0; e < s.n_experts; e++) {
        double sum = 0.0;
        for (int64_t n = 0; n < s.n_tokens; n++)
            sum += ref_get(dz, n * s.n_experts + e);
        ref_set(&c->out[2], e, sum);
    }
    return OK;
}

static int64_t grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct sizes s = sizes_of(&c->in[0], &c->in[2]);
    return MAX(cpu_gemm_workspace(env, s.n_tokens, s.n_in, s.n_experts),
               cpu_gemm_workspace(env, s.n_experts, s.n_in, s.n_tokens));
}

static void sum_tokens(const struct op_call *c, struct sizes s)
{
    const float *dz = c->in[1].data;
    for (int64_t e = 0; e < s.n_experts; e++) {
        double sum = 0.0;
        for (int64_t n = 0; n < s.n_tokens; n++)
            sum += (double)dz[n * s.n_experts + e];
        ref_set(&c->out[2], e, sum);
    }
}

static enum status grad(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sizes s = sizes_of(&c->in[0], &c->in[2]);
    struct cpu_matrix dz = cpu_matrix_of(&c->in[1], 0, s.n_experts);
    struct cpu_gemm to_x = {
        .m = s.n_tokens,
        .n = s.n_in,
        .k = s.n_experts,
        .a = dz,
        .b = cpu_matrix_of(&c->in[2], 0, s.n_in),
        .c = c->out[0].data,
        .c_dtype = c->out[0].dtype,
        .c_row = s.n_in,
    };
    struct cpu_gemm to_w = {
        .m = s.n_experts,
        .n = s.n_in,
        .k = s.n_tokens,
        .a = cpu_matrix_transposed(dz),
        .b = cpu_matrix_of(&c->in[0], 0, s.n_in),
        .c = c->out[1].data,
        .c_dtype = c->out[1].dtype,
        .c_row = s.n_in,
    };
    cpu_gemm(&x->env, x->workspace, &to_x);
    cpu_gemm(&x->env, x->workspace, &to_w);
    sum_tokens(c, s);
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_router[] = {
    {"product", cpu_declines_f64, logits_workspace, logits},
    {"reference", NULL, NULL, reference_logits},
    KERNEL_END,
};

const struct kernel cpu_kernels_router_grad[] = {
    {"product", cpu_declines_f64, grad_workspace, grad},
    {"reference", NULL, NULL, reference_grad},
    KERNEL_END,
};
