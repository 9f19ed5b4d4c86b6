/* adafactor.cu: Adafactor on the parameter itself, or on its master.
 *
 * Six launches: squares by lines and by columns, the mean of the rows' moments, the squares of the
 * step by lines, how far each tensor steps, and the step. graph/factored.h says what lines are and
 * which numbers of the moment are whose. Every sum is made in one order, whatever the GPU.
 */
#include "device/cuda/kernels/update.cuh"
#include "ops/update_support.h"

static constexpr int THREADS = 256, COLUMN_LANES = 32, COLUMN_LINES = 8;

struct adafactor_args {
    struct any grad, target, image; /* image.data NULL: the target is the parameter */
    float *v;
    double *param_squares, *step_squares; /* of each line */
    double *means;                        /* of the rows' moments, [pieces, inner] */
    double *numbers; /* of each tensor: 1 - rate weight_decay; rate / max(1, rms) */
    const float *lr, *scale;
    const int32_t *step;
    int64_t n_elems, n_lines, n_tensors;
    struct factored_layout layout;
    double decay_rate, clip_threshold, epsilon1, epsilon2, weight_decay;
    uint64_t seed;
    bool scale_parameter, relative_step, warmup_init;
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

static __device__ __forceinline__ void renew(float *v, double mean, double decay, double epsilon)
{
    *v = (float)decay * *v + (float)(1.0 - decay) * ((float)mean + (float)epsilon);
}

/* ---- the moment ------------------------------------------------------------------------------ */

/* Of a row whose matrices lie side by side, each number by one thread. */
static __device__ void renew_row(const struct adafactor_args &a, int64_t row, float scale,
                                 double decay)
{
    const struct factored_layout &l = a.layout;
    const int64_t at = row * factored_width(&l);
    float *v = a.v + factored_place(&l, row).row_at;
    for (int64_t i = threadIdx.x; i < l.n_inner; i += THREADS) {
        float sum = 0.0f;
        for (int64_t k = 0; k < l.n_columns; k++) {
            const float g = any_get_f32(a.grad, at + k * l.n_inner + i) * scale;
            sum += g * g;
        }
        renew(&v[i], (double)sum / (double)l.n_columns, decay, a.epsilon1);
    }
}

static __global__ void __launch_bounds__(THREADS)
    lines_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const struct factored_layout &l = a.layout;
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    const double decay = decay_of(a);
    for (int64_t i = blockIdx.x; i < a.n_lines; i += gridDim.x) {
        const struct factored_range line = factored_line(&l, i);
        float grads = 0.0f, params = 0.0f;
        for (int64_t k = threadIdx.x; k < line.n; k += THREADS) {
            const float g = any_get_f32(a.grad, line.first + k) * scale;
            const float p = any_get_f32(a.target, line.first + k);
            grads += g * g;
            params += p * p;
            if (!l.factored)
                renew(&a.v[line.first + k], (double)(g * g), decay, a.epsilon1);
        }
        const double all_grads = sum_of_block((double)grads, shared);
        const double all_params = sum_of_block((double)params, shared);
        if (threadIdx.x == 0) {
            a.param_squares[i] = all_params;
            if (l.factored && l.n_inner == 1)
                renew(a.v + factored_place(&l, i).row_at, all_grads / (double)line.n, decay,
                      a.epsilon1);
        }
        if (l.n_inner > 1)
            renew_row(a, i, scale, decay);
    }
}

/* A block has 32 columns of a piece, and every eighth of its rows in a line of threads. */
static __global__ void __launch_bounds__(COLUMN_LANES *COLUMN_LINES)
    columns_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ float shared[COLUMN_LINES][COLUMN_LANES];
    const struct factored_layout &l = a.layout;
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    const int64_t width = factored_width(&l);
    const int64_t n_parts = (width + COLUMN_LANES - 1) / COLUMN_LANES;
    for (int64_t i = blockIdx.x; i < factored_all_pieces(&l) * n_parts; i += gridDim.x) {
        const int64_t piece = i / n_parts, column = i % n_parts * COLUMN_LANES + threadIdx.x;
        const int64_t first = factored_first_row(&l, piece), n = factored_piece_rows(&l, piece);
        float sum = 0.0f;
        for (int64_t r = threadIdx.y; r < n && column < width; r += COLUMN_LINES) {
            const float g = any_get_f32(a.grad, (first + r) * width + column) * scale;
            sum += g * g;
        }
        __syncthreads();
        shared[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && column < width) {
            double all = 0.0;
            for (int k = 0; k < COLUMN_LINES; k++)
                all += (double)shared[k][threadIdx.x];
            renew(a.v + factored_place(&l, first).columns_at + column, all / (double)n, decay_of(a),
                  a.epsilon1);
        }
    }
}

/* A block has a piece; of matrices side by side each thread has some. */
static __global__ void __launch_bounds__(THREADS)
    means_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const struct factored_layout &l = a.layout;
    if (*a.scale == 0.0f)
        return;
    for (int64_t piece = blockIdx.x; piece < factored_all_pieces(&l); piece += gridDim.x) {
        const int64_t n = factored_piece_rows(&l, piece);
        const float *row = a.v + factored_place(&l, factored_first_row(&l, piece)).row_at;
        double *mean = a.means + piece * l.n_inner;
        if (l.n_inner > 1) {
            for (int64_t i = threadIdx.x; i < l.n_inner; i += THREADS) {
                double sum = 0.0;
                for (int64_t r = 0; r < n; r++)
                    sum += (double)row[r * l.n_inner + i];
                mean[i] = sum / (double)n;
            }
            continue;
        }
        double sum = 0.0;
        for (int64_t r = threadIdx.x; r < n; r += THREADS)
            sum += (double)row[r];
        sum = sum_of_block(sum, shared);
        if (threadIdx.x == 0)
            *mean = sum / (double)n;
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* What elements of one row are multiplied by: a number of its matrix and one of the column. */
struct row_factors {
    const float *moment, *columns; /* of the row's matrices, and of the columns */
    const double *mean;
    float one; /* of the row, where it is of one matrix */
    int64_t tensor;
};

static __device__ __forceinline__ float row_factor(float moment, double mean)
{
    return rsqrtf((float)((double)moment / mean));
}

static __device__ __forceinline__ struct row_factors row_factors_of(const struct adafactor_args &a,
                                                                    int64_t row)
{
    const struct factored_place place = factored_place(&a.layout, row);
    struct row_factors f = {};
    f.tensor = place.tensor;
    if (!a.layout.factored)
        return f;
    f.moment = a.v + place.row_at;
    f.columns = a.v + place.columns_at;
    f.mean = a.means + place.piece * a.layout.n_inner;
    if (a.layout.n_inner == 1)
        f.one = row_factor(*f.moment, *f.mean);
    return f;
}

/* What the gradient is multiplied by at element `at`, which is k of that row. */
static __device__ __forceinline__ float
factor_of(const struct adafactor_args &a, const struct row_factors &f, int64_t at, int64_t k)
{
    if (!a.layout.factored)
        return rsqrtf(a.v[at]);
    const int64_t i = a.layout.n_inner > 1 ? k % a.layout.n_inner : 0;
    const float row = a.layout.n_inner > 1 ? row_factor(f.moment[i], f.mean[i]) : f.one;
    return row * rsqrtf(f.columns[k]);
}

static __global__ void __launch_bounds__(THREADS)
    lengths_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const struct factored_layout &l = a.layout;
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
    for (int64_t i = blockIdx.x; i < a.n_lines; i += gridDim.x) {
        const struct factored_range line = factored_line(&l, i);
        const struct row_factors f = row_factors_of(a, line.first / factored_width(&l));
        float sum = 0.0f;
        for (int64_t k = threadIdx.x; k < line.n; k += THREADS) {
            const int64_t at = line.first + k;
            const float u = any_get_f32(a.grad, at) * scale * factor_of(a, f, at, k);
            sum += u * u;
        }
        const double all = sum_of_block((double)sum, shared);
        if (threadIdx.x == 0)
            a.step_squares[i] = all;
    }
}

/* A block has a tensor. */
static __global__ void __launch_bounds__(THREADS)
    numbers_kernel(__grid_constant__ const struct adafactor_args a)
{
    __shared__ double shared[THREADS / WARP];
    const struct factored_layout &l = a.layout;
    if (*a.scale == 0.0f)
        return;
    for (int64_t tensor = blockIdx.x; tensor < a.n_tensors; tensor += gridDim.x) {
        const struct factored_range lines = factored_tensor_lines(&l, tensor);
        const double n_elems = (double)factored_tensor_elems(&l, tensor);
        double params = 0.0, steps = 0.0;
        for (int64_t i = threadIdx.x; i < lines.n; i += THREADS) {
            params += a.param_squares[lines.first + i];
            steps += a.step_squares[lines.first + i];
        }
        params = sqrt(sum_of_block(params, shared) / n_elems);
        steps = sqrt(sum_of_block(steps, shared) / n_elems);
        if (threadIdx.x == 0) {
            const double t = (double)*a.step;
            double rate = (double)*a.lr;
            if (a.relative_step)
                rate = fmin(a.warmup_init ? 1e-6 * t : 1e-2, 1.0 / sqrt(t));
            if (a.scale_parameter)
                rate *= fmax(a.epsilon2, params);
            a.numbers[ADAFACTOR_NUMBERS * tensor] = 1.0 - rate * a.weight_decay;
            a.numbers[ADAFACTOR_NUMBERS * tensor + 1] = rate / fmax(1.0, steps / a.clip_threshold);
        }
    }
}

/* p after the step: up to eight elements from `at` on, with gradients g. */
static __device__ __forceinline__ void step8(const struct adafactor_args &a, int64_t at, int64_t n,
                                             float scale, const float *g, float *p)
{
    const int64_t width = factored_width(&a.layout);
    int64_t row = at / width, column = at % width;
    struct row_factors f = row_factors_of(a, row);
#pragma unroll
    for (int k = 0; k < UPDATE_VECTOR; k++) {
        if (k >= n)
            break;
        if (column == width) {
            column = 0;
            f = row_factors_of(a, ++row);
        }
        const double *numbers = a.numbers + ADAFACTOR_NUMBERS * f.tensor;
        const float u = g[k] * scale * factor_of(a, f, at + k, column++);
        p[k] = p[k] * (float)numbers[0] - (float)numbers[1] * u;
    }
}

/* Eight elements to a thread, as in update.cuh. */
static __global__ void __launch_bounds__(THREADS)
    step_kernel(__grid_constant__ const struct adafactor_args a)
{
    const float scale = *a.scale;
    if (scale == 0.0f)
        return;
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
        step8(a, at, n_left, scale, g, p);
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
    const struct factored_layout l = adafactor_layout(c);
    const struct adafactor_sums n = adafactor_sums_of(&l);
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
    a->n_lines = n.n_lines;
    a->n_tensors = n.n_tensors;
    a->layout = l;
    a->param_squares = (double *)x->workspace;
    a->step_squares = a->param_squares + n.n_lines;
    a->means = a->step_squares + n.n_lines;
    a->numbers = a->means + n.n_means;
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
    if (a.layout.factored) {
        const dim3 block(COLUMN_LANES, COLUMN_LINES);
        const int64_t n_pieces = factored_all_pieces(&a.layout);
        const int64_t n_parts = ceil_div(factored_width(&a.layout), COLUMN_LANES);
        columns_kernel<<<blocks_for(n_pieces * n_parts), block, 0, stream>>>(a);
        means_kernel<<<blocks_for(n_pieces), THREADS, 0, stream>>>(a);
    }
    lengths_kernel<<<n_lines, THREADS, 0, stream>>>(a);
    numbers_kernel<<<blocks_for(a.n_tensors), THREADS, 0, stream>>>(a);
    step_kernel<<<blocks_for(ceil_div(a.n_elems, THREADS * UPDATE_VECTOR)), THREADS, 0, stream>>>(
        a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(adafactor, lines, adafactor_run)

CUDA_RUN(adafactor_master, lines, adafactor_run)
