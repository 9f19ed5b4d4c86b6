/* rotary.c: rotary position embedding of the query and key heads of a packed row. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"
#include "ops/layer_support.h"

enum { MAX_HEAD_DIM = 512 }; /* of the fast kernel: its buffers are on the stack */

/* Are there positions for every row, or once for all batch entries? */
static bool by_row(const struct op_call *c)
{
    return call_has(c, 2) && c->in[2].shape.rank == 2;
}

static enum status reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t half = c->in[1].shape.dim[0], n_all = d.heads + 2 * d.kv_heads;
    double scale = call_float(c, ROTARY_SCALE), sign = call_bool(c, ROTARY_INVERSE) ? -1.0 : 1.0;
    for (int64_t i = 0; i < d.batch * d.n_tokens * n_all; i++) {
        int64_t token = i / n_all % d.n_tokens, head = i % n_all;
        int64_t at_row = by_row(c) ? i / n_all : token;
        double position = call_has(c, 2) ? ref_get(&c->in[2], at_row) : (double)token;
        for (int64_t j = 0; j < half; j++) {
            int64_t at = i * d.head_dim + j;
            double a = ref_get(&c->in[0], at), b = ref_get(&c->in[0], at + half);
            double angle = sign * position * ref_get(&c->in[1], j);
            bool rotates = head < d.heads + d.kv_heads;
            double cosine = rotates ? scale * cos(angle) : 1.0;
            double sine = rotates ? scale * sin(angle) : 0.0;
            ref_set(&c->out[0], at, a * cosine - b * sine);
            ref_set(&c->out[0], at + half, b * cosine + a * sine);
        }
        for (int64_t at = i * d.head_dim + 2 * half; at < (i + 1) * d.head_dim; at++)
            ref_set(&c->out[0], at, ref_get(&c->in[0], at));
    }
    return OK;
}

/* cos and sin of a double angle in f32: the angle is reduced to |r| <= pi/4 in double, where a long
 * position loses nothing, and the rest is polynomials (Taylor series; the first term left out is
 * below 2e-9 and 3e-8) and a choice by quadrant, so that loops vectorise. */
static inline void cosine_and_sine(double angle, float *cosine, float *sine)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    double shifted = angle * 0.63661977236758134308 + round; /* 2 / pi */
    double quarter = shifted - round;
    float r = (float)(angle - quarter * 1.57079632679489661923);
    float z = r * r;
    float s =
        r +
        r * z * (-1.6666667e-1f + z * (8.3333333e-3f + z * (-1.9841270e-4f + z * 2.7557319e-6f)));
    float c = 1.0f + z * (-0.5f + z * (4.1666667e-2f + z * (-1.3888889e-3f + z * 2.4801587e-5f)));
    double four = quarter * 0.25;
    double phase = (four - ((four + round) - round)) * 4.0; /* -2, -1, 0, 1 or 2 */
    bool swaps = phase == 1.0 || phase == -1.0;
    bool opposite = phase == 2.0 || phase == -2.0;
    float from_c = swaps ? s : c, from_s = swaps ? c : s;
    *cosine = opposite || phase == 1.0 ? -from_c : from_c;
    *sine = opposite || phase == -1.0 ? -from_s : from_s;
}

struct turning {
    const struct op_call *c;
    float *table; /* of all tokens; NULL: each row makes its own */
};

/* Cosines of the angles of a position, then sines: both times scale, [2, pairs]. */
static void fill_angles(const struct op_call *c, double position, float *table)
{
    int64_t half = c->in[1].shape.dim[0];
    const float *inv_freq = c->in[1].data;
    float scale = (float)call_float(c, ROTARY_SCALE);
    float sign = call_bool(c, ROTARY_INVERSE) ? -scale : scale;
    float *restrict cosines = table, *restrict sines = table + half;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float cosine, sine;
        cosine_and_sine(position * (double)inv_freq[i], &cosine, &sine);
        cosines[i] = scale * cosine;
        sines[i] = sign * sine;
    }
}

/* table[token]: its angles, [T, 2, pairs]. */
static void fill_table(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = ((const struct turning *)job)->c;
    float *table = ((const struct turning *)job)->table;
    int64_t half = c->in[1].shape.dim[0];
    const int32_t *positions = call_has(c, 2) ? c->in[2].data : NULL;
    (void)thread;
    for (int64_t token = first; token < last; token++)
        fill_angles(c, positions ? (double)positions[token] : (double)token,
                    table + token * 2 * half);
}

/* The first n pairs of a head; to may be from. */
static void rotate(const float *from, float *to, const float *restrict table, int64_t n)
{
    const float *restrict cosines = table, *restrict sines = table + n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float a = from[i], b = from[i + n];
        to[i] = a * cosines[i] - b * sines[i];
        to[i + n] = b * cosines[i] + a * sines[i];
    }
}

static int64_t table_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return by_row(c)
               ? 0
               : qkv_dims_of(c, 0).n_tokens * 2 * c->in[1].shape.dim[0] * (int64_t)sizeof(float);
}

static void turn_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = ((const struct turning *)job)->c;
    const float *table = ((const struct turning *)job)->table;
    struct qkv_dims d = qkv_dims_of(c, 0);
    int64_t n_rotated = d.heads + d.kv_heads, n_all = d.heads + 2 * d.kv_heads;
    int64_t half = c->in[1].shape.dim[0], n_turned = 2 * half;
    (void)thread;
    for (int64_t row = first; row < last; row++) {
        float own[MAX_HEAD_DIM];
        const float *angles = table ? table + row % d.n_tokens * n_turned : own;
        if (!table)
            fill_angles(c, (double)((const int32_t *)c->in[2].data)[row], own);
        for (int64_t head = 0; head < n_all; head++) {
            float in[MAX_HEAD_DIM], out[MAX_HEAD_DIM];
            int64_t at = row * d.width + head * d.head_dim;
            const float *from = block_read(&c->in[0], at, d.head_dim, in);
            if (head < n_rotated) {
                float *to = block_open(&c->out[0], at, out);
                rotate(from, to, angles, half);
                if (to != from)
                    memcpy(to + n_turned, from + n_turned,
                           (size_t)(d.head_dim - n_turned) * sizeof(float));
                block_close(&c->out[0], at, to, d.head_dim);
            } else if (c->in[0].data != c->out[0].data) {
                cpu_store_f32(c->out[0].data, c->out[0].dtype, at, from, d.head_dim);
            }
        }
    }
}

static enum status with_table(const struct kernel_ctx *x, const struct op_call *c)
{
    struct qkv_dims d = qkv_dims_of(c, 0);
    struct turning t = {c, by_row(c) ? NULL : x->workspace};
    if (t.table)
        cpu_loop(x, d.n_tokens, c->in[1].shape.dim[0], fill_table, &t);
    cpu_loop(x, d.batch * d.n_tokens, d.width, turn_rows, &t);
    return OK;
}

static const char *declines(const struct op_call *c, const struct kernel_env *env)
{
    if (qkv_dims_of(c, 0).head_dim > MAX_HEAD_DIM)
        return "takes head_dim up to 512";
    return cpu_declines_f64(c, env);
}

const struct kernel cpu_kernels_rotary[] = {
    {"table", declines, table_workspace, with_table},
    {"reference", NULL, NULL, reference},
    KERNEL_END,
};
