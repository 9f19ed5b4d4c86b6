/* product_squares.c: a gradient's sum of squares from its factors, in f64. */
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/row_pairs.h"

static double row_product(const struct tensor *t, struct row_pair p)
{
    float buffer_i[CPU_BLOCK], buffer_j[CPU_BLOCK];
    double part[BLOCK_SUMS] = {0.0}, sum = 0.0;
    int64_t n = shape_last(&t->shape);
    for (int64_t at = 0; at < n; at += CPU_BLOCK) {
        int64_t size = block_size(n, at);
        const float *a = block_read(t, p.i * n + at, size, buffer_i);
        const float *b = block_read(t, p.j * n + at, size, buffer_j);
        block_add_products(part, a, b, size);
    }
    for (int s = 0; s < BLOCK_SUMS; s++)
        sum += part[s];
    return sum;
}

static int64_t pairs_of(const struct op_call *c)
{
    return row_pair_count(shape_rows(&c->in[0].shape));
}

struct job {
    const struct op_call *c;
    double *terms; /* [pairs] */
};

static void take_pairs(const void *user, int64_t first, int64_t last, int thread)
{
    const struct job *job = user;
    (void)thread;
    for (int64_t k = first; k < last; k++) {
        struct row_pair p = row_pair_of(k);
        double both = row_product(&job->c->in[0], p) * row_product(&job->c->in[1], p);
        job->terms[k] = p.i == p.j ? both : 2.0 * both;
    }
}

static int64_t pairs_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return pairs_of(c) * (int64_t)sizeof(double);
}

static enum status product_squares_pairs(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct job job = {c, x->workspace};
    int64_t width = shape_last(&c->in[0].shape) + shape_last(&c->in[1].shape);
    double sum = 0.0;
    cpu_loop(x, pairs_of(c), width, take_pairs, &job);
    for (int64_t k = 0; k < pairs_of(c); k++)
        sum += job.terms[k];
    ref_set(&c->out[0], 0, sum);
    return OK;
}

/* The product itself, element by element. */
static enum status product_squares_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n_rows = shape_rows(&c->in[0].shape), n = shape_last(&c->in[0].shape),
            m = shape_last(&c->in[1].shape);
    double squares = 0.0;
    (void)x;
    for (int64_t e = 0; e < n * m; e++) {
        double sum = 0.0;
        for (int64_t r = 0; r < n_rows; r++)
            sum += ref_get(&c->in[0], r * n + e / m) * ref_get(&c->in[1], r * m + e % m);
        squares += sum * sum;
    }
    ref_set(&c->out[0], 0, squares);
    return OK;
}

const struct kernel cpu_kernels_product_squares[] = {
    {"pairs", cpu_declines_f64, pairs_workspace, product_squares_pairs},
    {"reference", NULL, NULL, product_squares_reference},
    KERNEL_END,
};
