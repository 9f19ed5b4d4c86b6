/* muon.c: what Muon has beside matrix products: its momentum, lengths, and the step. */
#include <math.h>

#include "device/cpu/kernels/codes.h"
#include "device/cpu/kernels/update_call.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

/* ---- muon_momentum, with numbers or codes ---------------------------------------------------- */

struct momentum {
    const struct op_call *c;
    bool coded, nesterov;
    const struct tensor *direction; /* the last output */
    float scale, keep, rate;        /* of the gradient; momentum; 1 - momentum */
    struct dynamic_map *map;
};

static void momentum_init(struct momentum *m, const struct kernel_ctx *x, const struct op_call *c)
{
    double keep = call_float(c, MUON_MOMENTUM);
    *m = (struct momentum){
        .c = c,
        .coded = c->in[1].dtype == DTYPE_U8,
        .nesterov = call_bool(c, MUON_NESTEROV),
        .direction = &c->out[c->n_out - 1],
        .scale = (float)ref_get(&c->in[c->n_in - 1], 0),
        .keep = (float)keep,
        .rate = (float)(1.0 - keep),
        .map = x->workspace,
    };
    if (m->coded)
        *m->map = dynamic_map_make(true);
}

static int64_t momentum_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return (int64_t)sizeof(struct dynamic_map);
}

/* scale = 0: the momentum stays to the bit, and there is no direction. */
static void stand_still(const struct op_call *c, const struct tensor *direction)
{
    const struct update_stream parts[] = {{.in = &c->in[1], .out = &c->out[0]},
                                          {.in = &c->in[2], .out = &c->out[1]}};
    update_copy(parts, c->n_out - 1);
    for (int64_t i = 0; i < shape_elems(&direction->shape); i++)
        ref_set(direction, i, 0.0);
}

static void momentum_block(const void *job, int64_t at, int64_t n)
{
    const struct momentum *m = job;
    const struct op_call *c = m->c;
    float buf[CPU_BLOCK], g_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    const float *g = block_read(&c->in[0], at, n, g_buffer);
    float *y = block_open(m->direction, at, y_buffer);
    const float fresh = m->nesterov ? m->rate : 0.0f, carried = m->nesterov ? m->keep : 1.0f;
    if (m->coded)
        cpu_decode(buf, (const uint8_t *)c->in[1].data + at,
                   (const float *)c->in[2].data + at / DYNAMIC_BLOCK, m->map, n);
    else
        cpu_load_f32(buf, c->in[1].data, c->in[1].dtype, at, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = g[i] * m->scale;
        buf[i] = m->keep * buf[i] + m->rate * x;
        y[i] = fresh * x + carried * buf[i];
    }
    block_close(m->direction, at, y, n);
    if (m->coded)
        cpu_encode((uint8_t *)c->out[0].data + at, (float *)c->out[1].data + at / DYNAMIC_BLOCK,
                   buf, m->map, true, n);
    else
        cpu_store_f32(c->out[0].data, c->out[0].dtype, at, buf, n);
}

static enum status momentum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    struct momentum m;
    momentum_init(&m, x, c);
    if (update_is_skipped(&c->in[c->n_in - 1]))
        stand_still(c, m.direction);
    else
        cpu_each_block(x, shape_elems(&c->in[0].shape), momentum_block, &m);
    return OK;
}

static void momentum_elements(const struct momentum *m, int64_t at, int64_t n)
{
    const struct op_call *c = m->c;
    double buf[DYNAMIC_BLOCK], keep = call_float(c, MUON_MOMENTUM);
    const struct update_codes codes = {&c->in[2], &c->out[1], m->map, true};
    const struct update_stream s = {
        .in = &c->in[1], .out = &c->out[0], .codes = m->coded ? &codes : NULL};
    update_read(&s, at, n, buf);
    for (int64_t i = 0; i < n; i++) {
        double g = ref_get(&c->in[0], at + i) * ref_get(&c->in[c->n_in - 1], 0);
        buf[i] = keep * buf[i] + (1.0 - keep) * g;
        ref_set(m->direction, at + i, m->nesterov ? (1.0 - keep) * g + keep * buf[i] : buf[i]);
    }
    update_write(&s, at, n, buf, &(struct update_draw){0});
}

static enum status momentum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct momentum m;
    int64_t n = shape_elems(&c->in[0].shape);
    momentum_init(&m, x, c);
    if (update_is_skipped(&c->in[c->n_in - 1])) {
        stand_still(c, m.direction);
        return OK;
    }
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK)
        momentum_elements(&m, at, MIN((int64_t)DYNAMIC_BLOCK, n - at));
    return OK;
}

const struct kernel cpu_kernels_muon_momentum[] = {
    {"blocked", cpu_declines_f64, NULL, momentum_blocked},
    {"reference", NULL, NULL, momentum_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_muon_momentum_8bit[] = {
    {"blocked", cpu_declines_f64, momentum_workspace, momentum_blocked},
    {"reference", NULL, momentum_workspace, momentum_reference},
    KERNEL_END,
};

/* ---- inverse_norm ---------------------------------------------------------------------------- */

static enum status inverse_norm_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    ref_set(&c->out[0], 0, 1.0 / fmax(sqrt(ref_get(&c->in[0], 0)), call_float(c, 0)));
    return OK;
}

const struct kernel cpu_kernels_inverse_norm[] = {
    {"reference", NULL, NULL, inverse_norm_reference},
    KERNEL_END,
};

/* ---- weighted_sum ---------------------------------------------------------------------------- */

static void sum_block(const void *job, int64_t at, int64_t n)
{
    const struct op_call *c = job;
    float buffer[3][CPU_BLOCK];
    const float *p = block_read(&c->in[0], at, n, buffer[0]);
    const float *q = block_read(&c->in[1], at, n, buffer[1]);
    float *y = block_open(&c->out[0], at, buffer[2]);
    const float a = (float)call_float(c, 0), b = (float)call_float(c, 1);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a * p[i] + b * q[i];
    block_close(&c->out[0], at, y, n);
}

static enum status sum_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    cpu_each_block(x, shape_elems(&c->out[0].shape), sum_block, c);
    return OK;
}

static enum status sum_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        ref_set(&c->out[0], i,
                call_float(c, 0) * ref_get(&c->in[0], i) +
                    call_float(c, 1) * ref_get(&c->in[1], i));
    return OK;
}

const struct kernel cpu_kernels_weighted_sum[] = {
    {"blocked", cpu_declines_f64, NULL, sum_blocked},
    {"reference", NULL, NULL, sum_reference},
    KERNEL_END,
};

/* ---- muon_update ----------------------------------------------------------------------------- */

enum { UPDATE_LR = 2 };

struct step {
    float keep, lr; /* 1 - lr weight_decay */
};

static void step_block(const void *rule, float *const *block, const float *direction, int64_t at,
                       int64_t n)
{
    const struct step r = *(const struct step *)rule;
    float *restrict p = block[0];
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = p[i] * r.keep - r.lr * direction[i];
}

static enum status step_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    double lr = ref_get(&c->in[UPDATE_LR], 0);
    const struct step rule = {(float)(1.0 - lr * call_float(c, 0)), (float)lr};
    return update_call_run(x, c, 0, UPDATE_LR, step_block, &rule);
}

static void step_element(const struct op_call *c, const void *rule, int64_t i, double direction,
                         double *p, double *state)
{
    double lr = ref_get(&c->in[UPDATE_LR], 0);
    (void)rule;
    (void)i;
    (void)state;
    *p = *p * (1.0 - lr * call_float(c, 0)) - lr * direction;
}

static enum status step_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    return update_call_reference(x, c, 0, UPDATE_LR, step_element, NULL);
}

const struct kernel cpu_kernels_muon_update[] = {
    {"blocked", cpu_declines_f64, NULL, step_blocked},
    {"reference", NULL, NULL, step_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_muon_update_master[] = {
    {"blocked", cpu_declines_f64, NULL, step_blocked},
    {"reference", NULL, NULL, step_reference},
    KERNEL_END,
};
