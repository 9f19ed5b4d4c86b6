#include "device/cuda/cuda_kernels.h"

#include <stddef.h>

#include "device/cuda/declared/runs.h"

#ifdef SNUG_HAVE_CUDA
#define RUN(symbol)   symbol
#define BATCH(symbol) symbol
#else
#define RUN(symbol)   NULL
#define BATCH(symbol) batch_not_built
/* Kernels that would run together are timed together, also in a plan for a GPU that is elsewhere.
 */
static enum status batch_not_built(const struct kernel_ctx *x, const struct op_call *const *calls,
                                   int n)
{
    (void)x;
    (void)calls;
    (void)n;
    return FAIL(ERR_INTERNAL, "this build has no CUDA to run kernels with");
}
#endif

#define LIST(op, ...) static const struct kernel kernels_##op[] = {__VA_ARGS__ KERNEL_END};
#define KERNEL(op, name, declines, workspace) \
    {#name, declines, workspace, RUN(cuda_run_##op##_##name)},
#include "device/cuda/declared/kernels.def"
#undef LIST
#undef KERNEL

#define LIST_YES(sym) sym
#define LIST_NO(sym)  NULL

static const struct kernel *const lists[OP_COUNT] = {
#define OP(name, family, cpu, cuda) [OP_##name] = LIST_##cuda(kernels_##name),
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
    {kernels_adamw, BATCH(cuda_batch_adamw)},
    {kernels_adamw_master, BATCH(cuda_batch_adamw)},
    {kernels_adamw_8bit, BATCH(cuda_batch_adamw_8bit)},
    {kernels_adamw_8bit_master, BATCH(cuda_batch_adamw_8bit)},
    {kernels_lion, BATCH(cuda_batch_lion)},
    {kernels_lion_master, BATCH(cuda_batch_lion)},
    {kernels_lion_8bit, BATCH(cuda_batch_lion_8bit)},
    {kernels_lion_8bit_master, BATCH(cuda_batch_lion_8bit)},
    {kernels_muon_update, BATCH(cuda_batch_muon_update)},
    {kernels_muon_update_master, BATCH(cuda_batch_muon_update)},
    {kernels_sgd, BATCH(cuda_batch_sgd)},
    {kernels_sgd_momentum, BATCH(cuda_batch_sgd_momentum)},
    {kernels_sgd_master, BATCH(cuda_batch_sgd)},
    {kernels_sgd_momentum_master, BATCH(cuda_batch_sgd_momentum)},
    {kernels_accumulate, BATCH(cuda_batch_accumulate)},
};

kernel_batch *cuda_batch(const struct kernel *k)
{
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        if (batches[i].kernel == k)
            return batches[i].run;
    }
    return NULL;
}
