/* top_k.c: which elements of a row are among its k largest: those that fewer than k others come
 * before. Rows are batches of losses: short. */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

/* Larger ones come first, of equal ones the one further to the front; what is not a number comes
 * last. */
static bool comes_before(const struct tensor *x, int64_t i, int64_t j)
{
    double a = ref_get(x, i), b = ref_get(x, j);
    if (a > b || (a == a && b != b))
        return true;
    return !(b > a || (b == b && a != a)) && i < j;
}

static void mask_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n = shape_last(&c->in[0].shape), k = call_int(c, 0);
    (void)thread;
    for (int64_t i = first * n; i < last * n; i++) {
        int64_t before = 0, row = i / n * n;
        for (int64_t j = row; j < row + n; j++)
            before += comes_before(&c->in[0], j, i);
        ref_set(&c->out[0], i, before < k ? 1.0 : 0.0);
    }
}

static enum status top_k_mask_shared(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape);
    if (n > 0)
        cpu_loop(x, shape_rows(&c->in[0].shape), n * n, mask_rows, c);
    return OK;
}

static enum status top_k_mask_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    if (shape_last(&c->in[0].shape) > 0)
        mask_rows(c, 0, shape_rows(&c->in[0].shape), 0);
    return OK;
}

const struct kernel cpu_kernels_top_k_mask[] = {
    {"shared", NULL, NULL, top_k_mask_shared},
    {"reference", NULL, NULL, top_k_mask_reference},
    KERNEL_END,
};
