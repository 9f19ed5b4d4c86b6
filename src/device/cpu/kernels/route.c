/* route.c: which experts a token goes to, the order of rows by expert, and the gradient of the
 * weights. Equal probabilities go to the expert of the lower number; NaN is never the larger. */
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/expert_support.h"

/* ---- order ---------------------------------------------------------------------------------- */

/* A counting sort, which keeps the order of tokens within an expert. */
static void sort_rows(const struct op_call *c)
{
    const int32_t *ids = c->out[1].data;
    int32_t *order = c->out[2].data, *place = c->out[3].data, *offsets = c->out[4].data;
    int64_t n = shape_elems(&c->out[1].shape), n_experts = c->in[0].shape.dim[1];
    memset(offsets, 0, sizeof(*offsets) * (size_t)(n_experts + 1));
    for (int64_t i = 0; i < n; i++)
        offsets[ids[i] + 1]++;
    for (int64_t e = 0; e < n_experts; e++)
        offsets[e + 1] += offsets[e];
    for (int64_t i = 0; i < n; i++) { /* offsets[e] becomes the end of e's rows */
        place[i] = offsets[ids[i]]++;
        order[place[i]] = (int32_t)i;
    }
    for (int64_t e = n_experts; e > 0; e--)
        offsets[e] = offsets[e - 1];
    offsets[0] = 0;
}

static bool is_among(const int32_t *ids, int64_t n, int64_t id)
{
    bool found = false;
    for (int64_t i = 0; i < n; i++)
        found |= ids[i] == id;
    return found;
}

/* ---- route ---------------------------------------------------------------------------------- */

static void reference_row(const struct op_call *c, int64_t row, int32_t *ids)
{
    int64_t k = call_int(c, ROUTE_EXPERTS_PER_TOKEN), n_experts = c->in[0].shape.dim[1];
    double sum = 0.0, share = 1.0;
    for (int64_t j = 0; j < k; j++) {
        int64_t best = -1;
        for (int64_t e = 0; e < n_experts; e++) {
            double p = ref_get(&c->in[0], row * n_experts + e);
            if (!is_among(ids, j, e) &&
                (best < 0 || p > ref_get(&c->in[0], row * n_experts + best)))
                best = e;
        }
        ids[j] = (int32_t)best;
        sum += ref_get(&c->in[0], row * n_experts + best);
    }
    if (call_bool(c, ROUTE_NORMALIZE))
        share = 1.0 / (sum + call_float(c, ROUTE_EPSILON));
    for (int64_t j = 0; j < k; j++)
        ref_set(&c->out[0], row * k + j, share * ref_get(&c->in[0], row * n_experts + ids[j]));
}

static enum status route_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    int64_t k = call_int(c, ROUTE_EXPERTS_PER_TOKEN);
    for (int64_t row = 0; row < c->in[0].shape.dim[0]; row++)
        reference_row(c, row, (int32_t *)c->out[1].data + row * k);
    sort_rows(c);
    return OK;
}

/* The largest of p[0 .. n) that is not among the ids chosen so far. */
static int32_t next_best(const float *p, int64_t n, const int32_t *chosen, int64_t n_chosen)
{
    int32_t best = 0;
    while (is_among(chosen, n_chosen, best))
        best++;
    for (int32_t e = best + 1; e < n; e++) {
        if (p[e] > p[best] && !is_among(chosen, n_chosen, e))
            best = e;
    }
    return best;
}

static void choose_experts(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t k = call_int(c, ROUTE_EXPERTS_PER_TOKEN), n_experts = c->in[0].shape.dim[1];
    float epsilon = (float)call_float(c, ROUTE_EPSILON);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *p = (const float *)c->in[0].data + row * n_experts;
        float *weights = (float *)c->out[0].data + row * k, sum = 0.0f;
        int32_t *ids = (int32_t *)c->out[1].data + row * k;
        for (int64_t j = 0; j < k; j++) {
            ids[j] = next_best(p, n_experts, ids, j);
            sum += p[ids[j]];
        }
        float share = call_bool(c, ROUTE_NORMALIZE) ? 1.0f / (sum + epsilon) : 1.0f;
        for (int64_t j = 0; j < k; j++)
            weights[j] = share * p[ids[j]];
    }
}

static const char *declines_all_but_f32(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[0].dtype == DTYPE_F32 ? NULL : "takes probabilities in f32";
}

static enum status route_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t k = call_int(c, ROUTE_EXPERTS_PER_TOKEN);
    cpu_loop(x, c->in[0].shape.dim[0], c->in[0].shape.dim[1] * k, choose_experts, c);
    sort_rows(c);
    return OK;
}

/* ---- gradient ------------------------------------------------------------------------------- */

static enum status grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct tensor *dw = &c->in[0], *p = &c->in[1], *dp = &c->out[0];
    const int32_t *ids = c->in[2].data;
    int64_t k = c->in[2].shape.dim[1], n_experts = p->shape.dim[1];
    for (int64_t i = 0; i < shape_elems(&dp->shape); i++)
        ref_set(dp, i, 0.0);
    for (int64_t row = 0; row < p->shape.dim[0]; row++) {
        double total = call_float(c, ROUTE_GRAD_EPSILON), mean = 0.0;
        for (int64_t j = row * k; j < (row + 1) * k; j++)
            total += ref_get(p, row * n_experts + ids[j]);
        for (int64_t j = row * k; j < (row + 1) * k; j++)
            mean += ref_get(p, row * n_experts + ids[j]) / total * ref_get(dw, j);
        for (int64_t j = row * k; j < (row + 1) * k; j++) {
            double d = ref_get(dw, j);
            int64_t at = row * n_experts + ids[j];
            ref_set(dp, at,
                    ref_get(dp, at) +
                        (call_bool(c, ROUTE_GRAD_NORMALIZE) ? (d - mean) / total : d));
        }
    }
    return OK;
}

static void grad_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t k = c->in[2].shape.dim[1], n_experts = c->in[1].shape.dim[1];
    float epsilon = (float)call_float(c, ROUTE_GRAD_EPSILON);
    bool normalized = call_bool(c, ROUTE_GRAD_NORMALIZE);
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        const float *dw = (const float *)c->in[0].data + row * k;
        const float *p = (const float *)c->in[1].data + row * n_experts;
        const int32_t *ids = (const int32_t *)c->in[2].data + row * k;
        float *dp = (float *)c->out[0].data + row * n_experts, total = epsilon, dot = 0.0f;
        memset(dp, 0, sizeof(*dp) * (size_t)n_experts);
        for (int64_t j = 0; j < k; j++) {
            total += p[ids[j]];
            dot += p[ids[j]] * dw[j];
        }
        for (int64_t j = 0; j < k; j++)
            dp[ids[j]] += normalized ? (dw[j] - dot / total) / total : dw[j];
    }
}

static const char *grad_declines(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return c->in[1].dtype == DTYPE_F32 ? NULL : "takes probabilities in f32";
}

static enum status grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_loop(x, c->in[1].shape.dim[0], c->in[1].shape.dim[1], grad_some, c);
    return OK;
}

/* ---- capacity ------------------------------------------------------------------------------ */

static enum status capacity_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    const int32_t *ids = c->in[1].data, *place = c->in[2].data, *offsets = c->in[3].data;
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        bool fits = place[i] - offsets[ids[i]] < call_int(c, CAPACITY_ROWS);
        ref_set(&c->out[0], i, fits ? ref_get(&c->in[0], i) : 0.0);
    }
    return OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

const struct kernel cpu_kernels_route[] = {
    {"rows", declines_all_but_f32, NULL, route_rows},
    {"reference", NULL, NULL, route_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_route_grad[] = {
    {"rows", grad_declines, NULL, grad_rows},
    {"reference", NULL, NULL, grad_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_capacity[] = {
    {"reference", NULL, NULL, capacity_reference},
    KERNEL_END,
};
