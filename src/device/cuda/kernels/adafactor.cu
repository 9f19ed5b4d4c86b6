/* adafactor.cu: Adafactor on the parameter itself, or on its master.
 *
 * Six launches: squares by lines (rows of matrices, runs of vectors) and by columns, the mean of
 * the rows' moments, the squares of the step by lines, the length of the step, and the step. Every
 * sum is made in one order, whatever the GPU.
 */
#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

static constexpr int THREADS = 256, COLUMN_LANES = 32, COLUMN_LINES = 8;

struct adafactor_args {
    struct any grad, target, image; /* image.data NULL: the target is the parameter */
    float *v;
    double *param_squares, *step_squares; /* of each line */
    double *means;                        /* of the rows' moments, for each matrix */
    double *numbers;                      /* 1 - rate weight_decay; rate / max(1, rms) */
    const float *lr, *scale;
    const int32_t *step;
    int64_t n_elems, n_lines, line;
    int64_t n_matrices, n_rows, n_columns;
    double decay_rate, clip_threshold, epsilon1, epsilon2, weight_decay;
    uint64_t seed;
    bool factored, scale_parameter, relative_step, warmup_init;
    bool vectors; /* everything lies on 16 bytes */
};

/* The sum over the block, in every thread; `shared` has a place for each warp. */
static __device__ double sum_of_block(double x, double *shared)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = x;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < THREADS / WARP; w++)
        sum += shared[w];
    return sum;
}

/* What is left of the old moment. */
static __device__ double decay_of(const struct adafactor_args &a)
{
    return 1.0 - pow((double)*a.step, a.decay_rate);
}

static __device__ float *moment_of(const struct adafactor_args &a, int64_t matrix)
{
    return a.v + matrix * (a.n_rows + a.n_columns);
}

static __device__ __forceinline__ void renew(float *v, double mean, double decay, double epsilon)
{
    *v = (float)decay * *v + (float)(1.0 - decay) * ((float)mean + (float)epsilon);
}

/* ---- the moment ------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS)
    lines_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    const double decay = decay_of(a);
    for (int64_t i = blockIdx.x; i < a.n_lines; i += gridDim.x) {
        const int64_t at = i * a.line, n = min(a.line, a.n_elems - at);
        float grads = 0.0f, params = 0.0f;
        for (int64_t k = threadIdx.x; k < n; k += THREADS) {
            const float g = any_get_f32(a.grad, at + k) * scale;
            const float p = any_get_f32(a.target, at + k);
            grads += g * g;
            params += p * p;
            if (!a.factored)
                renew(&a.v[at + k], (double)(g * g), decay, a.epsilon1);
        }
        const double all_grads = sum_of_block((double)grads, shared);
        const double all_params = sum_of_block((double)params, shared);
        if (threadIdx.x == 0) {
            a.param_squares[i] = all_params;
            if (a.factored)
                renew(moment_of(a, i / a.n_rows) + i % a.n_rows, all_grads / (double)n, decay,
                      a.epsilon1);
        }
    }
}

/* A block has 32 columns of a matrix, and every eighth of its rows in a line of threads. */
static __global__ void __launch_bounds__(COLUMN_LANES *COLUMN_LINES)
    columns_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ float shared[COLUMN_LINES][COLUMN_LANES];
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    const int64_t n_parts = (a.n_columns + COLUMN_LANES - 1) / COLUMN_LANES;
    for (int64_t i = blockIdx.x; i < a.n_matrices * n_parts; i += gridDim.x) {
        const int64_t matrix = i / n_parts, column = i % n_parts * COLUMN_LANES + threadIdx.x;
        float sum = 0.0f;
        for (int64_t r = threadIdx.y; r < a.n_rows && column < a.n_columns; r += COLUMN_LINES) {
            const int64_t at = (matrix * a.n_rows + r) * a.n_columns + column;
            const float g = any_get_f32(a.grad, at) * scale;
            sum += g * g;
        }
        __syncthreads();
        shared[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && column < a.n_columns) {
            double all = 0.0;
            for (int l = 0; l < COLUMN_LINES; l++)
                all += (double)shared[l][threadIdx.x];
            renew(moment_of(a, matrix) + a.n_rows + column, all / (double)a.n_rows, decay_of(a),
                  a.epsilon1);
        }
    }
}

static __global__ void __launch_bounds__(THREADS)
    means_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    if (*a.scale == 0.0f)
        return;
    for (int64_t m = blockIdx.x; m < a.n_matrices; m += gridDim.x) {
        const float *row = moment_of(a, m);
        double sum = 0.0;
        for (int64_t r = threadIdx.x; r < a.n_rows; r += THREADS)
            sum += (double)row[r];
        sum = sum_of_block(sum, shared);
        if (threadIdx.x == 0)
            a.means[m] = sum / (double)a.n_rows;
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* What the gradient at element i is multiplied by; i is column `column` of line `line`. */
static __device__ __forceinline__ float factor_of(const struct adafactor_args &a, int64_t i,
                                                  int64_t line, int64_t column)
{
    if (!a.factored)
        return rsqrtf(a.v[i]);
    const float *v = moment_of(a, line / a.n_rows);
    const float row = (float)((double)v[line % a.n_rows] / a.means[line / a.n_rows]);
    return rsqrtf(row) * rsqrtf(v[a.n_rows + column]);
}

static __global__ void __launch_bounds__(THREADS)
    lengths_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    for (int64_t i = blockIdx.x; i < a.n_lines; i += gridDim.x) {
        const int64_t at = i * a.line, n = min(a.line, a.n_elems - at);
        float sum = 0.0f;
        for (int64_t k = threadIdx.x; k < n; k += THREADS) {
            const float u = any_get_f32(a.grad, at + k) * scale * factor_of(a, at + k, i, k);
            sum += u * u;
        }
        const double all = sum_of_block((double)sum, shared);
        if (threadIdx.x == 0)
            a.step_squares[i] = all;
    }
}

static __global__ void __launch_bounds__(THREADS)
    numbers_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    if (*a.scale == 0.0f)
        return;
    double params = 0.0, steps = 0.0;
    for (int64_t i = threadIdx.x; i < a.n_lines; i += THREADS) {
        params += a.param_squares[i];
        steps += a.step_squares[i];
    }
    params = sqrt(sum_of_block(params, shared) / (double)a.n_elems);
    steps = sqrt(sum_of_block(steps, shared) / (double)a.n_elems);
    if (threadIdx.x == 0) {
        const double t = (double)*a.step;
        double rate = (double)*a.lr;
        if (a.relative_step)
            rate = fmin(a.warmup_init ? 1e-6 * t : 1e-2, 1.0 / sqrt(t));
        if (a.scale_parameter)
            rate *= fmax(a.epsilon2, params);
        a.numbers[0] = 1.0 - rate * a.weight_decay;
        a.numbers[1] = rate / fmax(1.0, steps / a.clip_threshold);
    }
}

/* Eight elements to a thread, as in update.cuh. */
static __global__ void __launch_bounds__(THREADS)
    step_kernel(__grid_constant__ const struct adafactor_args a)
{
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    const float keep = (float)a.numbers[0], step = (float)a.numbers[1];
    const bool random = a.target.dtype == DTYPE_BF16 && a.seed != 0;
    const int64_t stride = (int64_t)gridDim.x * THREADS * UPDATE_VECTOR;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * UPDATE_VECTOR;
    for (; at < a.n_elems; at += stride) {
        const int64_t n_left = a.n_elems - at;
        const bool whole = a.vectors && n_left >= UPDATE_VECTOR;
        struct raw8 raw_grad = {}, raw_target = {};
        float g[8], p[8];
        if (whole) {
            raw8_load(raw_grad, a.grad.data, a.grad.dtype, at);
            raw8_load(raw_target, a.target.data, a.target.dtype, at);
        }
        load8(g, raw_grad, a.grad.data, a.grad.dtype, at, n_left, whole);
        load8(p, raw_target, a.target.data, a.target.dtype, at, n_left, whole);
        int64_t line = at / a.line, column = at % a.line;
        for (int k = 0; k < 8 && k < n_left; k++) {
            p[k] = p[k] * keep - step * (g[k] * scale * factor_of(a, at + k, line, column));
            if (++column == a.line) {
                column = 0;
                line++;
            }
        }
        struct update_parts parts = {};
        if (random)
            draw8(parts, a.seed, *a.step, at);
        store8(a.target.data, a.target.dtype, at, n_left, whole, p, random, parts.target);
        if (a.image.data)
            store8(a.image.data, a.image.dtype, at, n_left, whole, p, false, parts.target);
    }
}

/* ---- launches (host) ------------------------------------------------------------------------- */

static enum status fill_args(struct adafactor_args *a, const struct kernel_ctx *x,
                             const struct op_call *c)
{
    const bool master = c->n_in > ADAFACTOR_MASTER;
    const struct adafactor_dims d = adafactor_dims_of(c);
    const struct adafactor_cut cut = adafactor_cut_of(c);
    const int target = master ? ADAFACTOR_MASTER : 0;
    void *v;
    *a = {};
    a->grad = any_of(&c->in[1]);
    a->target = any_of(&c->out[master ? 2 : 0]);
    TRY(update_in_place(x, &c->in[target], &c->out[master ? 2 : 0], &a->target.data));
    TRY(update_in_place(x, &c->in[ADAFACTOR_V], &c->out[1], &v));
    a->v = (float *)v;
    if (master) {
        a->image.dtype = c->in[0].dtype;
        TRY(update_in_place(x, &c->in[0], &c->out[0], &a->image.data));
    }
    a->n_elems = shape_elems(&c->in[0].shape);
    a->n_lines = cut.n_lines;
    a->line = cut.line;
    a->n_matrices = d.n_matrices;
    a->n_rows = d.n_rows;
    a->n_columns = d.n_columns;
    a->factored = d.factored;
    a->param_squares = (double *)x->workspace;
    a->step_squares = a->param_squares + cut.n_lines;
    a->means = a->step_squares + cut.n_lines;
    a->numbers = a->means + d.n_matrices;
    a->lr = (const float *)c->in[ADAFACTOR_LR].data;
    a->step = (const int32_t *)c->in[ADAFACTOR_STEP].data;
    a->scale = (const float *)c->in[ADAFACTOR_SCALE].data;
    a->decay_rate = call_float(c, ADAFACTOR_DECAY_RATE);
    a->clip_threshold = call_float(c, ADAFACTOR_CLIP_THRESHOLD);
    a->epsilon1 = call_float(c, ADAFACTOR_EPSILON1);
    a->epsilon2 = call_float(c, ADAFACTOR_EPSILON2);
    a->weight_decay = call_float(c, ADAFACTOR_WEIGHT_DECAY);
    a->seed = (uint64_t)call_int(c, ADAFACTOR_SEED);
    a->scale_parameter = call_bool(c, ADAFACTOR_SCALE_PARAMETER);
    a->relative_step = call_bool(c, ADAFACTOR_RELATIVE_STEP);
    a->warmup_init = call_bool(c, ADAFACTOR_WARMUP_INIT);
    a->vectors = is_aligned(a->grad.data, 16) && is_aligned(a->target.data, 16) &&
                 is_aligned(a->image.data, 16);
    return OK;
}

static unsigned blocks_for(int64_t n)
{
    const int64_t most = 65535;
    return (unsigned)MAX(MIN(n, most), (int64_t)1);
}

static enum status adafactor_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct adafactor_args a;
    const cudaStream_t stream = cuda_stream(x);
    TRY(fill_args(&a, x, c));
    const unsigned n_lines = blocks_for(a.n_lines);
    lines_kernel<<<n_lines, THREADS, 0, stream>>>(a);
    if (a.factored) {
        const dim3 block(COLUMN_LANES, COLUMN_LINES);
        const unsigned n_parts = blocks_for(a.n_matrices * ceil_div(a.n_columns, COLUMN_LANES));
        columns_kernel<<<n_parts, block, 0, stream>>>(a);
        means_kernel<<<blocks_for(a.n_matrices), THREADS, 0, stream>>>(a);
    }
    lengths_kernel<<<n_lines, THREADS, 0, stream>>>(a);
    numbers_kernel<<<1, THREADS, 0, stream>>>(a);
    step_kernel<<<blocks_for(ceil_div(a.n_elems, THREADS * UPDATE_VECTOR)), THREADS, 0, stream>>>(
        a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(adafactor, lines, adafactor_run)

CUDA_RUN(adafactor_master, lines, adafactor_run)
