/* cells.c: one step of the recurrent networks LSTM and GRU, and its gradient: what comes after the
 * products with the weights, unit by unit; f32 arithmetic over f32, bf16, f16 storage. */
#include <math.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/math.h"
#include "device/cpu/support/ref.h"
#include "ops/cell_support.h"

/* A row's units [at, at + n), n at most CPU_BLOCK: gate k of tensor t, or the units of t. */
static const float *gate_read(const struct tensor *t, int64_t row, int64_t units, int64_t k,
                              int64_t at, int64_t n, float *buffer)
{
    return block_read(t, row * shape_last(&t->shape) + k * units + at, n, buffer);
}

/* Of an input that may be absent: zeros then. */
static const float *given_read(const struct op_call *c, int i, int64_t at, int64_t n, float *buffer)
{
    if (call_has(c, i))
        return block_read(&c->in[i], at, n, buffer);
    for (int64_t k = 0; k < n; k++)
        buffer[k] = 0.0f;
    return buffer;
}

/* ---- LSTM ------------------------------------------------------------------------------------ */

struct lstm_numbers {
    double i, f, g, o, state; /* gates as they act, c' */
};

static struct lstm_numbers lstm_of(const struct op_call *c, int64_t row, int64_t unit,
                                   int64_t units)
{
    struct lstm_numbers v;
    double gate[LSTM_GATES];
    for (int k = 0; k < LSTM_GATES; k++)
        gate[k] = ref_get(&c->in[0], (row * LSTM_GATES + k) * units + unit);
    v.i = 1.0 / (1.0 + exp(-gate[0]));
    v.f = 1.0 / (1.0 + exp(-gate[1]));
    v.g = tanh(gate[2]);
    v.o = 1.0 / (1.0 + exp(-gate[3]));
    v.state = v.f * ref_get(&c->in[1], row * units + unit) + v.i * v.g;
    return v;
}

static enum status lstm_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t units = c->in[1].shape.dim[1];
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[1].shape); i++) {
        struct lstm_numbers v = lstm_of(c, i / units, i % units, units);
        ref_set(&c->out[0], i, v.o * tanh(v.state));
        ref_set(&c->out[1], i, v.state);
    }
    return OK;
}

static enum status lstm_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t units = c->in[1].shape.dim[1];
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[1].shape); i++) {
        int64_t row = i / units, unit = i % units;
        struct lstm_numbers v = lstm_of(c, row, unit, units);
        double dh = call_has(c, 2) ? ref_get(&c->in[2], i) : 0.0, t = tanh(v.state);
        double dc = (call_has(c, 3) ? ref_get(&c->in[3], i) : 0.0) + dh * v.o * (1.0 - t * t);
        const double d_gate[LSTM_GATES] = {
            dc * v.g * v.i * (1.0 - v.i), dc * ref_get(&c->in[1], i) * v.f * (1.0 - v.f),
            dc * v.i * (1.0 - v.g * v.g), dh * t * v.o * (1.0 - v.o)};
        for (int k = 0; k < LSTM_GATES; k++)
            ref_set(&c->out[0], (row * LSTM_GATES + k) * units + unit, d_gate[k]);
        ref_set(&c->out[1], i, dc * v.f);
    }
    return OK;
}

static void lstm_block(const struct op_call *c, int64_t row, int64_t units, int64_t k, int64_t n)
{
    float b[LSTM_GATES][CPU_BLOCK], c_buffer[CPU_BLOCK], h_buffer[CPU_BLOCK], s_buffer[CPU_BLOCK];
    const float *gate[LSTM_GATES], *state;
    int64_t at = row * units + k;
    for (int g = 0; g < LSTM_GATES; g++)
        gate[g] = gate_read(&c->in[0], row, units, g, k, n, b[g]);
    state = block_read(&c->in[1], at, n, c_buffer);
    float *h = block_open(&c->out[0], at, h_buffer), *s = block_open(&c->out[1], at, s_buffer);
    const float *in = gate[0], *forget = gate[1], *cell = gate[2], *out = gate[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        s[i] = cpu_sigmoidf(forget[i]) * state[i] + cpu_sigmoidf(in[i]) * cpu_tanhf(cell[i]);
        h[i] = cpu_sigmoidf(out[i]) * cpu_tanhf(s[i]);
    }
    block_close(&c->out[0], at, h, n);
    block_close(&c->out[1], at, s, n);
}

static void lstm_grad_block(const struct op_call *c, int64_t row, int64_t units, int64_t k,
                            int64_t n)
{
    float b[LSTM_GATES][CPU_BLOCK], d[LSTM_GATES][CPU_BLOCK], c_buffer[CPU_BLOCK],
        h_buffer[CPU_BLOCK], s_buffer[CPU_BLOCK], d_buffer[CPU_BLOCK];
    const float *gate[LSTM_GATES];
    int64_t at = row * units + k;
    for (int g = 0; g < LSTM_GATES; g++)
        gate[g] = gate_read(&c->in[0], row, units, g, k, n, b[g]);
    const float *state = block_read(&c->in[1], at, n, c_buffer);
    const float *dh = given_read(c, 2, at, n, h_buffer), *ds = given_read(c, 3, at, n, s_buffer);
    float *d_state = block_open(&c->out[1], at, d_buffer);
    const float *in = gate[0], *forget = gate[1], *cell = gate[2], *out = gate[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float vi = cpu_sigmoidf(in[i]), vf = cpu_sigmoidf(forget[i]), vg = cpu_tanhf(cell[i]);
        float vo = cpu_sigmoidf(out[i]), t = cpu_tanhf(vf * state[i] + vi * vg);
        float dc = ds[i] + dh[i] * vo * (1.0f - t * t);
        d[0][i] = dc * vg * vi * (1.0f - vi);
        d[1][i] = dc * state[i] * vf * (1.0f - vf);
        d[2][i] = dc * vi * (1.0f - vg * vg);
        d[3][i] = dh[i] * t * vo * (1.0f - vo);
        d_state[i] = dc * vf;
    }
    for (int g = 0; g < LSTM_GATES; g++)
        cpu_store_f32(c->out[0].data, c->out[0].dtype, (row * LSTM_GATES + g) * units + k, d[g], n);
    block_close(&c->out[1], at, d_state, n);
}

/* ---- GRU ------------------------------------------------------------------------------------- */

struct gru_numbers {
    double r, u, n, z; /* gates as they act; z_n */
};

static struct gru_numbers gru_of(const struct op_call *c, int64_t row, int64_t unit, int64_t units)
{
    double x[GRU_GATES], z[GRU_GATES];
    struct gru_numbers v;
    for (int k = 0; k < GRU_GATES; k++) {
        x[k] = ref_get(&c->in[0], (row * GRU_GATES + k) * units + unit);
        z[k] = ref_get(&c->in[1], (row * GRU_GATES + k) * units + unit);
    }
    v.r = 1.0 / (1.0 + exp(-x[0] - z[0]));
    v.u = 1.0 / (1.0 + exp(-x[1] - z[1]));
    v.n = tanh(x[2] + v.r * z[2]);
    v.z = z[2];
    return v;
}

static enum status gru_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t units = c->in[2].shape.dim[1];
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[2].shape); i++) {
        struct gru_numbers v = gru_of(c, i / units, i % units, units);
        ref_set(&c->out[0], i, (1.0 - v.u) * v.n + v.u * ref_get(&c->in[2], i));
    }
    return OK;
}

static enum status gru_grad_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t units = c->in[2].shape.dim[1];
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[2].shape); i++) {
        int64_t row = i / units, unit = i % units;
        struct gru_numbers v = gru_of(c, row, unit, units);
        double d = ref_get(&c->in[3], i), h = ref_get(&c->in[2], i);
        double dn = d * (1.0 - v.u) * (1.0 - v.n * v.n);
        double dr = dn * v.z * v.r * (1.0 - v.r), du = d * (h - v.n) * v.u * (1.0 - v.u);
        const double dx[GRU_GATES] = {dr, du, dn}, dz[GRU_GATES] = {dr, du, dn * v.r};
        for (int k = 0; k < GRU_GATES; k++) {
            ref_set(&c->out[0], (row * GRU_GATES + k) * units + unit, dx[k]);
            ref_set(&c->out[1], (row * GRU_GATES + k) * units + unit, dz[k]);
        }
        ref_set(&c->out[2], i, d * v.u);
    }
    return OK;
}

/* The gates of both inputs: x then z. */
struct gru_gates {
    const float *x[GRU_GATES], *z[GRU_GATES];
};

static void gru_read(struct gru_gates *v, float (*buffers)[CPU_BLOCK], const struct op_call *c,
                     int64_t row, int64_t k, int64_t n)
{
    int64_t units = c->in[2].shape.dim[1];
    for (int g = 0; g < GRU_GATES; g++) {
        v->x[g] = gate_read(&c->in[0], row, units, g, k, n, buffers[g]);
        v->z[g] = gate_read(&c->in[1], row, units, g, k, n, buffers[GRU_GATES + g]);
    }
}

static void gru_block(const struct op_call *c, int64_t row, int64_t units, int64_t k, int64_t n)
{
    struct gru_gates v;
    float buffers[2 * GRU_GATES][CPU_BLOCK];
    float h_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    int64_t at = row * units + k;
    gru_read(&v, buffers, c, row, k, n);
    const float *h = block_read(&c->in[2], at, n, h_buffer);
    float *y = block_open(&c->out[0], at, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float r = cpu_sigmoidf(v.x[0][i] + v.z[0][i]), u = cpu_sigmoidf(v.x[1][i] + v.z[1][i]);
        y[i] = (1.0f - u) * cpu_tanhf(v.x[2][i] + r * v.z[2][i]) + u * h[i];
    }
    block_close(&c->out[0], at, y, n);
}

static void gru_grad_block(const struct op_call *c, int64_t row, int64_t units, int64_t k,
                           int64_t n)
{
    struct gru_gates v;
    float buffers[2 * GRU_GATES][CPU_BLOCK];
    float h_buffer[CPU_BLOCK], d_buffer[CPU_BLOCK], y_buffer[CPU_BLOCK];
    float dx[GRU_GATES][CPU_BLOCK], dz[CPU_BLOCK];
    int64_t at = row * units + k;
    gru_read(&v, buffers, c, row, k, n);
    const float *h = block_read(&c->in[2], at, n, h_buffer);
    const float *d = block_read(&c->in[3], at, n, d_buffer);
    float *dh = block_open(&c->out[2], at, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float r = cpu_sigmoidf(v.x[0][i] + v.z[0][i]), u = cpu_sigmoidf(v.x[1][i] + v.z[1][i]);
        float m = cpu_tanhf(v.x[2][i] + r * v.z[2][i]);
        float dm = d[i] * (1.0f - u) * (1.0f - m * m);
        dx[0][i] = dm * v.z[2][i] * r * (1.0f - r);
        dx[1][i] = d[i] * (h[i] - m) * u * (1.0f - u);
        dx[2][i] = dm;
        dz[i] = dm * r;
        dh[i] = d[i] * u;
    }
    for (int g = 0; g < GRU_GATES; g++) {
        int64_t to = (row * GRU_GATES + g) * units + k;
        cpu_store_f32(c->out[0].data, c->out[0].dtype, to, dx[g], n);
        cpu_store_f32(c->out[1].data, c->out[1].dtype, to, g < 2 ? dx[g] : dz, n);
    }
    block_close(&c->out[2], at, dh, n);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef void cell_block(const struct op_call *c, int64_t row, int64_t units, int64_t k, int64_t n);

struct cell_job {
    const struct op_call *c;
    int64_t units;
    cell_block *block;
};

static void cell_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct cell_job *j = job;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        for (int64_t k = 0; k < j->units; k += CPU_BLOCK)
            j->block(j->c, row, j->units, k, block_size(j->units, k));
    }
}

static enum status run_rows(const struct kernel_ctx *x, const struct op_call *c, int i_units,
                            cell_block *block)
{
    const struct shape *s = &c->in[i_units].shape;
    struct cell_job j = {c, s->dim[1], block};
    cpu_loop(x, s->dim[0], 16 * s->dim[1], cell_rows, &j);
    return OK;
}

static enum status lstm_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_rows(x, c, 1, lstm_block);
}

static enum status lstm_grad_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_rows(x, c, 1, lstm_grad_block);
}

static enum status gru_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_rows(x, c, 2, gru_block);
}

static enum status gru_grad_run(const struct kernel_ctx *x, const struct op_call *c)
{
    return run_rows(x, c, 2, gru_grad_block);
}

const struct kernel cpu_kernels_lstm_cell[] = {
    {"rows", cpu_declines_f64, NULL, lstm_run},
    {"reference", NULL, NULL, lstm_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_lstm_cell_grad[] = {
    {"rows", cpu_declines_f64, NULL, lstm_grad_run},
    {"reference", NULL, NULL, lstm_grad_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_gru_cell[] = {
    {"rows", cpu_declines_f64, NULL, gru_run},
    {"reference", NULL, NULL, gru_reference},
    KERNEL_END,
};
const struct kernel cpu_kernels_gru_cell_grad[] = {
    {"rows", cpu_declines_f64, NULL, gru_grad_run},
    {"reference", NULL, NULL, gru_grad_reference},
    KERNEL_END,
};
