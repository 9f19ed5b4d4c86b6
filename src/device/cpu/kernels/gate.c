/* gate.c: gated activations of feed-forward layers, with gradients: rows of x are [gate | up], each
 * half as long as a row of y; y = f(gate) up. */
#include "device/cpu/kernels/activation.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

enum { GATE_Y = 1 }; /* the output that ops ending in _with_grad add */

/* An activation as a gate. In grad dg and du may be g and u, y may be dy. */
struct gate {
    void (*forward)(float *y, const float *g, const float *u, int64_t n);
    void (*grad)(float *dg, float *du, float *y, const float *dy, const float *g, const float *u,
                 int64_t n);
    double (*at)(double x), (*slope)(double x); /* of the reference */
};

static inline float relu2(float x)
{
    return x < 0.0f ? 0.0f : x * x; /* what is no number stays so */
}
static inline float relu2_slope(float x)
{
    return x < 0.0f ? 0.0f : 2.0f * x;
}

#define GATE(name, f, f_slope, ref_f, ref_f_slope)                                               \
    static void name##_forward(float *y, const float *g, const float *u, int64_t n)              \
    {                                                                                            \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = f(g[i]) * u[i];               \
    }                                                                                            \
    static void name##_backward(float *dg, float *du, float *y, const float *dy, const float *g, \
                                const float *u, int64_t n)                                       \
    {                                                                                            \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                      \
        {                                                                                        \
            float gate = f(g[i]), slope = f_slope(g[i]), up = u[i], d = dy[i];                   \
            dg[i] = d * up * slope;                                                              \
            du[i] = d * gate;                                                                    \
            y[i] = gate * up;                                                                    \
        }                                                                                        \
    }                                                                                            \
    static double name##_at(double x)                                                            \
    {                                                                                            \
        return ref_f;                                                                            \
    }                                                                                            \
    static double name##_slope_at(double x)                                                      \
    {                                                                                            \
        return ref_f_slope;                                                                      \
    }                                                                                            \
    static const struct gate name##_gate = {name##_forward, name##_backward, name##_at,          \
                                            name##_slope_at};
GATE(silu, silu, silu_slope, ref_silu(x), ref_silu_slope(x))
GATE(gelu, gelu_tanh, gelu_tanh_slope, ref_gelu(x, true), ref_gelu_slope(x, true))
GATE(relu2, relu2, relu2_slope, x < 0 ? 0 : x * x, x < 0 ? 0 : 2 * x)
#undef GATE

/* ---- blocks --------------------------------------------------------------------------------- */

struct gating {
    const struct op_call *c;
    const struct gate *gate;
};

static void gate_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct gating *k = job;
    const struct op_call *c = k->c;
    int64_t width = shape_last(&c->out[0].shape), per_row = block_count(width);
    (void)thread;
    for (int64_t i_block = first; i_block < last; i_block++) {
        float g_buffer[CPU_BLOCK], u_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
        int64_t row = i_block / per_row, column = i_block % per_row * CPU_BLOCK;
        int64_t size = block_size(width, column), at = row * 2 * width + column;
        const float *g = block_read(&c->in[0], at, size, g_buffer);
        const float *u = block_read(&c->in[0], at + width, size, u_buffer);
        float *y = block_open(&c->out[0], row * width + column, y_buffer);
        k->gate->forward(y, g, u, size);
        block_close(&c->out[0], row * width + column, y, size);
    }
}

static void gate_grad_blocks(const void *job, int64_t first, int64_t last, int thread)
{
    const struct gating *k = job;
    const struct op_call *c = k->c;
    int64_t width = shape_last(&c->in[0].shape), per_row = block_count(width);
    (void)thread;
    for (int64_t i_block = first; i_block < last; i_block++) {
        float dy_buffer[CPU_BLOCK], g_buffer[CPU_BLOCK], u_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
        int64_t row = i_block / per_row, column = i_block % per_row * CPU_BLOCK;
        int64_t size = block_size(width, column), at = row * 2 * width + column;
        const float *dy = block_read(&c->in[0], row * width + column, size, dy_buffer);
        const float *g = block_read(&c->in[1], at, size, g_buffer);
        const float *u = block_read(&c->in[1], at + width, size, u_buffer);
        float *dg = block_open(&c->out[0], at, g_buffer);
        float *du = block_open(&c->out[0], at + width, u_buffer);
        float *y = block_open_given(c, GATE_Y, row * width + column, y_buffer);
        k->gate->grad(dg, du, y, dy, g, u, size);
        block_close(&c->out[0], at, dg, size);
        block_close(&c->out[0], at + width, du, size);
        block_close_given(c, GATE_Y, row * width + column, y, size);
    }
}

/* Over the rows of t, which are as long as y's. */
static void run_blocks(const struct kernel_ctx *x, const struct op_call *c, const struct tensor *t,
                       const struct gate *gate, team_work *work)
{
    struct gating k = {c, gate};
    int64_t width = shape_last(&t->shape), n_rows = shape_rows(&t->shape);
    cpu_loop(x, n_rows * block_count(width), MIN(width, (int64_t)CPU_BLOCK), work, &k);
}

/* ---- reference ------------------------------------------------------------------------------ */

static void reference(const struct op_call *c, const struct gate *gate)
{
    int64_t width = shape_last(&c->out[0].shape);
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++) {
        int64_t at = i / width * 2 * width + i % width;
        double g = ref_get(&c->in[0], at), u = ref_get(&c->in[0], at + width);
        ref_set(&c->out[0], i, gate->at(g) * u);
    }
}

static void reference_grad(const struct op_call *c, const struct gate *gate)
{
    int64_t width = shape_last(&c->in[0].shape);
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        int64_t at = i / width * 2 * width + i % width;
        double dy = ref_get(&c->in[0], i);
        double g = ref_get(&c->in[1], at), u = ref_get(&c->in[1], at + width);
        ref_set(&c->out[0], at, dy * u * gate->slope(g));
        ref_set(&c->out[0], at + width, dy * gate->at(g));
        if (GATE_Y < c->n_out)
            ref_set(&c->out[GATE_Y], i, gate->at(g) * u);
    }
}

/* ---- lists ---------------------------------------------------------------------------------- */

#define RUN(name, body)                                                          \
    static enum status name(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                            \
        (void)x;                                                                 \
        body;                                                                    \
        return OK;                                                               \
    }
#define LIST(op, fast, slow)                       \
    const struct kernel cpu_kernels_##op[] = {     \
        {"blocked", cpu_declines_f64, NULL, fast}, \
        {"reference", NULL, NULL, slow},           \
        KERNEL_END,                                \
    };
#define KERNELS(name)                                                                     \
    RUN(name##_blocked, run_blocks(x, c, &c->out[0], &name##_gate, gate_blocks))          \
    RUN(name##_grad_blocked, run_blocks(x, c, &c->in[0], &name##_gate, gate_grad_blocks)) \
    RUN(name##_reference, reference(c, &name##_gate))                                     \
    RUN(name##_grad_reference, reference_grad(c, &name##_gate))                           \
    LIST(name##_gate, name##_blocked, name##_reference)                                   \
    LIST(name##_gate_grad, name##_grad_blocked, name##_grad_reference)                    \
    LIST(name##_gate_with_grad, name##_grad_blocked, name##_grad_reference)
KERNELS(silu)
KERNELS(gelu)
KERNELS(relu2)
