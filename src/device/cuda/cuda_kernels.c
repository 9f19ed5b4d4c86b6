#include "device/cuda/cuda_kernels.h"

#include <stddef.h>

#define LIST_YES(sym) sym
#define LIST_NO(sym)  NULL

static const struct kernel *const lists[OP_COUNT] = {
#define OP(name, family, cpu, cuda) [OP_##name] = LIST_##cuda(cuda_kernels_##name),
#include "graph/ops.def"
#undef OP
};

const struct kernel *cuda_kernels(enum op_id op)
{
    return lists[op];
}

/* Kernels that take many calls at once. */
static const struct {
    const struct kernel *kernel;
    kernel_batch *run;
} batches[] = {
    {cuda_kernels_adamw, cuda_batch_adamw},
    {cuda_kernels_adamw_master, cuda_batch_adamw},
    {cuda_kernels_adamw_8bit, cuda_batch_adamw_8bit},
    {cuda_kernels_adamw_8bit_master, cuda_batch_adamw_8bit},
    {cuda_kernels_sgd, cuda_batch_sgd},
    {cuda_kernels_sgd_momentum, cuda_batch_sgd_momentum},
    {cuda_kernels_accumulate, cuda_batch_accumulate},
};

kernel_batch *cuda_batch(const struct kernel *k)
{
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        if (batches[i].kernel == k)
            return batches[i].run;
    }
    return NULL;
}

static bool any_dtype_is(const struct op_call *c, enum dtype d)
{
    for (int i = 0; i < c->n_in; i++) {
        if (c->in[i].dtype == d)
            return true;
    }
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].dtype == d)
            return true;
    }
    return false;
}

const char *cuda_declines_f64(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return any_dtype_is(c, DTYPE_F64) ? "does not take f64" : NULL;
}

const char *cuda_declines_unless_half(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    bool bf16 = any_dtype_is(c, DTYPE_BF16), f16 = any_dtype_is(c, DTYPE_F16);
    if (any_dtype_is(c, DTYPE_F64) || bf16 == f16)
        return "takes one 16-bit float dtype";
    return NULL;
}
