/* sequences.c: graphs (kernels/edges.cu) and scans (kernels/scan.cu). */
#include "device/cuda/declared/sequences.h"
#include "base/compiler.h"
#include "device/cuda/declared/declared.h"
#include "ops/edge_support.h"
#include "ops/scan_support.h"

int64_t cuda_edges_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return (2 * call_int(c, EDGE_ROWS) + 1 + shape_elems(&edge_targets(c)->shape)) *
           (int64_t)sizeof(int32_t);
}

const char *cuda_scan_declines(const struct op_call *c, const struct kernel_env *env)
{
    int i = c->op == OP_selective_scan_grad;
    if (scan_dims_of(c, i).states > SCAN_MOST_STATES)
        return "takes at most 64 states";
    return cuda_declines_f64(c, env);
}

/* The states of all steps, and the gradients by them. */
int64_t cuda_scan_grad_workspace(const struct op_call *c, const struct kernel_env *env)
{
    struct scan_dims d = scan_dims_of(c, 1);
    (void)env;
    return 2 * d.batch * d.n_steps * d.channels * d.states * (int64_t)sizeof(float);
}
