/* update.cu: what changes state: clearing and adding to accumulators, gradient norms, optimizers.
 *
 * The optimizers make one pass over memory in vectors of four elements of whatever dtypes the
 * tensors have. Learning rate, step and scale are read from memory, so a captured step can be
 * replayed. Outputs normally are their inputs' memory; where they are not (tests), the results land
 * in the outputs and the inputs stay as they were.
 */
#include "device/cuda/cuda_any.cuh"

static constexpr int THREADS = 256;

/* ---- fill, accumulate ------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS)
    fill_kernel(struct any y, int64_t n, int64_t n_vectors, float value)
{
    const float v[4] = {value, value, value, value};
    const struct any4 r = any4_pack(v, y.dtype);
    for (int64_t i = grid_thread(); i < n_vectors; i += grid_threads())
        any4_store(y, i, r);
    for (int64_t i = 4 * n_vectors + grid_thread(); i < n; i += grid_threads())
        any_set_f32(y, i, value);
}

static const char *fill_declines(const struct op_call *c)
{
    return dtype_is_float(c->out[0].dtype) ? cuda_declines_f64(c) : "takes floats only";
}

static enum status fill_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    struct any y = any_of(&c->out[0]);
    int64_t n_vectors = any4_aligned(y) ? n / 4 : 0;
    fill_kernel<<<grid_for(n_vectors > 0 ? n_vectors : n, THREADS, grid_full(&x->env, THREADS)),
                  THREADS, 0, cuda_stream(x)>>>(y, n, n_vectors, (float)call_float(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(THREADS) fill_any_kernel(struct any y, int64_t n, double v)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        any_set(y, i, v);
}

static enum status fill_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    fill_any_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(any_of(&c->out[0]), n,
                                                                          call_float(c, 0));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static __global__ void __launch_bounds__(THREADS)
    accumulate_kernel(struct any y, struct any acc, struct any g, int64_t n, int64_t n_vectors)
{
    for (int64_t i = grid_thread(); i < n_vectors; i += grid_threads()) {
        const struct any4 raw_a = any4_load(acc, i), raw_g = any4_load(g, i);
        float a[4], b[4];
        any4_unpack(a, raw_a, acc.dtype);
        any4_unpack(b, raw_g, g.dtype);
#pragma unroll
        for (int k = 0; k < 4; k++)
            a[k] += b[k];
        any4_store(y, i, any4_pack(a, y.dtype));
    }
    for (int64_t i = 4 * n_vectors + grid_thread(); i < n; i += grid_threads())
        any_set_f32(y, i, any_get_f32(acc, i) + any_get_f32(g, i));
}

static enum status accumulate_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->out[0].shape);
    struct any y = any_of(&c->out[0]), acc = any_of(&c->in[0]), g = any_of(&c->in[1]);
    int64_t n_vectors = any4_aligned(y) && any4_aligned(acc) && any4_aligned(g) ? n / 4 : 0;
    accumulate_kernel<<<grid_for(n_vectors > 0 ? n_vectors : n, THREADS), THREADS, 0,
                        cuda_stream(x)>>>(y, acc, g, n, n_vectors);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- sum_squares ------------------------------------------------------------------------------
 */

/* A block takes a chunk of elements; two squares are added in f32, everything else in f64. One
 * block is quicker than two launches up to ONE_BLOCK elements; from there on chunks are so small
 * that a matrix of a million elements is spread over the whole GPU. */
static constexpr int SQUARES_THREADS = 512;
static constexpr int64_t ONE_BLOCK = 64 * SQUARES_THREADS, CHUNK = 32 * SQUARES_THREADS;

static int64_t chunk_elems(int64_t n)
{
    return n <= ONE_BLOCK ? ONE_BLOCK : CHUNK;
}

static int64_t chunk_count(const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape);
    return ceil_div(n, chunk_elems(n));
}

static int64_t sum_squares_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)env;
    return chunk_count(c) * (int64_t)sizeof(double);
}

/* One block's sum goes to `partial`, or to y itself when it is the only one. */
static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(float *y, double *partial, struct any g, int64_t n, int64_t chunk, bool vectors)
{
    __shared__ double scratch[WARP];
    const int64_t first = (int64_t)blockIdx.x * chunk;
    const int64_t last = first + chunk < n ? first + chunk : n;
    const int64_t last_vector = vectors ? last / 4 : first / 4;
    double sum = 0.0;
    for (int64_t i = first / 4 + threadIdx.x; i < last_vector; i += 4 * SQUARES_THREADS) {
        struct any4 raw[4] = {}; /* zeros past the end */
#pragma unroll
        for (int u = 0; u < 4; u++) {
            if (i + u * SQUARES_THREADS < last_vector)
                raw[u] = any4_load(g, i + u * SQUARES_THREADS);
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            float v[4];
            any4_unpack(v, raw[u], g.dtype);
            sum += (double)(v[0] * v[0] + v[1] * v[1]) + (double)(v[2] * v[2] + v[3] * v[3]);
        }
    }
    for (int64_t i = last_vector * 4 + threadIdx.x; i < last; i += SQUARES_THREADS) {
        float v = any_get_f32(g, i);
        sum += (double)v * (double)v;
    }
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0 && gridDim.x == 1)
        *y = (float)sum;
    else if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(SQUARES_THREADS)
    squares_finish_kernel(float *y, const double *partial, int64_t n_partials)
{
    __shared__ double scratch[WARP];
    double sum = 0.0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n_partials; i += SQUARES_THREADS)
        sum += partial[i];
    sum = block_sum<SQUARES_THREADS>(sum, scratch);
    if (threadIdx.x == 0)
        *y = (float)sum;
}

static enum status sum_squares_chunks(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape), n_chunks = chunk_count(c);
    struct any g = any_of(&c->in[0]);
    float *y = (float *)c->out[0].data;
    double *partial = (double *)x->workspace;
    squares_kernel<<<grid_for(n_chunks, 1), SQUARES_THREADS, 0, cuda_stream(x)>>>(
        y, partial, g, n, chunk_elems(n), any4_aligned(g));
    if (n_chunks > 1)
        squares_finish_kernel<<<1, SQUARES_THREADS, 0, cuda_stream(x)>>>(y, partial, n_chunks);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- clip_scale --------------------------------------------------------------------------------
 */

/* Sums of squares lie one by one in memory: their addresses go to the kernel by value, as many as
 * its arguments (4 KiB) hold; several launches in a row add to one number in the workspace. */
static constexpr int CLIP_THREADS = 416;

struct clip_args {
    const float *squares[CLIP_THREADS];
    int n_squares;
    bool is_first, is_last;
    double *sum;
    const float *count, *scale_in; /* scale_in may be NULL */
    float *scale, *norm;
    double max_norm, nominal;
};

static __global__ void __launch_bounds__(CLIP_THREADS)
    clip_kernel(__grid_constant__ const struct clip_args a)
{
    __shared__ double scratch[WARP];
    double squares = (int)threadIdx.x < a.n_squares ? (double)*a.squares[threadIdx.x] : 0.0;
    squares = block_sum<CLIP_THREADS>(squares, scratch);
    if (threadIdx.x != 0)
        return;
    if (!a.is_first)
        squares += *a.sum;
    *a.sum = squares;
    if (!a.is_last)
        return;
    double count = (double)*a.count;
    double s = count == 0.0 ? 0.0 : a.nominal / count;
    if (a.scale_in)
        s /= (double)*a.scale_in;
    double norm = s * sqrt(squares), scale = s;
    if (a.max_norm > 0.0)
        scale *= fmin(1.0, a.max_norm / (norm + 1e-6));
    *a.scale = isfinite(norm) && isfinite(scale) ? (float)scale : 0.0f;
    *a.norm = (float)norm;
}

static int64_t clip_scale_workspace(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return (int64_t)sizeof(double);
}

static enum status clip_scale_block(const struct kernel_ctx *x, const struct op_call *c)
{
    struct clip_args a = {};
    a.sum = (double *)x->workspace;
    a.count = (const float *)c->in[0].data;
    a.scale_in = call_has(c, 1) ? (const float *)c->in[1].data : NULL;
    a.scale = (float *)c->out[0].data;
    a.norm = (float *)c->out[1].data;
    a.max_norm = call_float(c, 0);
    a.nominal = call_float(c, 1);
    int next = 2;
    do {
        a.is_first = next == 2;
        a.n_squares = 0;
        while (next < c->n_in && a.n_squares < CLIP_THREADS)
            a.squares[a.n_squares++] = (const float *)c->in[next++].data;
        a.is_last = next >= c->n_in;
        clip_kernel<<<1, CLIP_THREADS, 0, cuda_stream(x)>>>(a);
        CUDA_TRY(cudaGetLastError());
    } while (!a.is_last);
    return OK;
}

/* ---- several tensors in step -------------------------------------------------------------------
 */

static constexpr int MAX_STREAMS = 4;

/* Tensors that are updated (from in to out) and the gradient that changes them. */
struct streams {
    int n;
    struct any in[MAX_STREAMS], out[MAX_STREAMS], grad;
    int64_t n_elems, n_vectors;
    const float *lr, *scale;
    const int32_t *step;
};

static void streams_add(struct streams *s, const struct tensor *in, const struct tensor *out)
{
    s->in[s->n] = any_of(in);
    s->out[s->n++] = any_of(out);
}

/* After all tensors are added: whether vectors will do. */
static void streams_close(struct streams *s, const struct tensor *grad)
{
    s->grad = any_of(grad);
    s->n_elems = shape_elems(&grad->shape);
    bool aligned = any4_aligned(s->grad);
    for (int i = 0; i < s->n; i++)
        aligned = aligned && any4_aligned(s->in[i]) && any4_aligned(s->out[i]);
    s->n_vectors = aligned ? s->n_elems / 4 : 0;
}

static unsigned streams_grid(const struct kernel_env *env, const struct streams *s)
{
    int64_t n = s->n_vectors > 0 ? s->n_vectors : s->n_elems;
    return grid_for(n, THREADS, grid_full(env, THREADS, 1));
}

/* Outputs are the inputs, unchanged. */
template <int N_STREAMS> static __device__ void copy_streams(const struct streams &s)
{
#pragma unroll
    for (int t = 0; t < N_STREAMS; t++) {
        if (s.in[t].data == s.out[t].data)
            continue;
        for (int64_t i = grid_thread(); i < s.n_elems; i += grid_threads())
            any_set_f32(s.out[t], i, any_get_f32(s.in[t], i));
    }
}

/* One vector of every tensor, as they lie in memory. */
template <int N_STREAMS> struct vectors {
    struct any4 stream[N_STREAMS], grad;
};

/* Vectors i, if there are any. */
template <int N_STREAMS>
static __device__ __forceinline__ void load_vectors(struct vectors<N_STREAMS> &to,
                                                    const struct streams &s, int64_t i)
{
    if (i >= s.n_vectors)
        return;
    to.grad = any4_load(s.grad, i);
#pragma unroll
    for (int t = 0; t < N_STREAMS; t++)
        to.stream[t] = any4_load(s.in[t], i);
}

/* One pass: R::apply(rule, v, g) changes v[t], the four elements of stream t. scale = 0 (nothing
 * counted, or the norm was not finite; see clip_scale) changes nothing. `raw` holds the thread's
 * first vectors: the kernel asks for them before it works out its rule, which for a small tensor
 * takes as long as the rest. */
template <int N_STREAMS, typename R>
static __device__ void update_streams(const struct streams &s, struct vectors<N_STREAMS> &raw,
                                      const R &rule)
{
    for (int64_t i = grid_thread(); i < s.n_vectors; i += grid_threads()) {
        float v[N_STREAMS][4], g[4];
        any4_unpack(g, raw.grad, s.grad.dtype);
#pragma unroll
        for (int t = 0; t < N_STREAMS; t++)
            any4_unpack(v[t], raw.stream[t], s.in[t].dtype);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float e[N_STREAMS];
#pragma unroll
            for (int t = 0; t < N_STREAMS; t++)
                e[t] = v[t][k];
            rule.apply(e, g[k]);
#pragma unroll
            for (int t = 0; t < N_STREAMS; t++)
                v[t][k] = e[t];
        }
#pragma unroll
        for (int t = 0; t < N_STREAMS; t++)
            any4_store(s.out[t], i, any4_pack(v[t], s.out[t].dtype));
        load_vectors<N_STREAMS>(raw, s, i + grid_threads());
    }
    for (int64_t i = 4 * s.n_vectors + grid_thread(); i < s.n_elems; i += grid_threads()) {
        float e[N_STREAMS];
#pragma unroll
        for (int t = 0; t < N_STREAMS; t++)
            e[t] = any_get_f32(s.in[t], i);
        rule.apply(e, any_get_f32(s.grad, i));
#pragma unroll
        for (int t = 0; t < N_STREAMS; t++)
            any_set_f32(s.out[t], i, e[t]);
    }
}

/* ---- adamw ------------------------------------------------------------------------------------
 */

struct adamw_attrs {
    double beta1, beta2, epsilon, weight_decay;
};

/* Everything that is the same for all elements, worked out in f64. */
struct adamw_rule {
    float scale, keep;           /* of the gradient; 1 - lr weight_decay */
    float beta1, beta2;          /* */
    float rate1, rate2;          /* 1 - beta */
    float step_size, correction; /* lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float epsilon;

    /* e: parameter (or master), m, v */
    __device__ __forceinline__ void apply(float *e, float grad) const
    {
        float g = grad * scale;
        e[1] = beta1 * e[1] + rate1 * g;
        e[2] = beta2 * e[2] + rate2 * (g * g);
        e[0] = e[0] * keep - step_size * e[1] / (sqrtf(e[2]) * correction + epsilon);
    }
};

/* The fourth stream is the parameter, made again from the first, the master. */
struct adamw_master_rule {
    struct adamw_rule rule;

    __device__ __forceinline__ void apply(float *e, float grad) const
    {
        rule.apply(e, grad);
        e[3] = e[0];
    }
};

/* base^n by squaring: a handful of f64 products where pow would take hundreds. */
static __device__ double power(double base, int32_t n)
{
    double result = 1.0;
    for (uint32_t k = n < 0 ? 0u - (uint32_t)n : (uint32_t)n; k > 0; k /= 2) {
        if (k % 2 == 1)
            result *= base;
        base *= base;
    }
    return n < 0 ? 1.0 / result : result;
}

/* By the whole block: a thread of the first warp and one of the second share the work. */
static __device__ void adamw_rule_share(struct adamw_rule *r, const struct streams &s,
                                        const struct adamw_attrs &a)
{
    if (threadIdx.x == 0) {
        double lr = (double)*s.lr;
        r->scale = *s.scale;
        r->keep = (float)(1.0 - lr * a.weight_decay);
        r->beta1 = (float)a.beta1;
        r->beta2 = (float)a.beta2;
        r->rate1 = (float)(1.0 - a.beta1);
        r->rate2 = (float)(1.0 - a.beta2);
        r->step_size = (float)(lr / (1.0 - power(a.beta1, *s.step)));
        r->epsilon = (float)a.epsilon;
    } else if (threadIdx.x == WARP) {
        r->correction = (float)(1.0 / sqrt(1.0 - power(a.beta2, *s.step)));
    }
    __syncthreads();
}

template <bool MASTER>
static __global__ void __launch_bounds__(THREADS)
    adamw_kernel(__grid_constant__ const struct streams s, const struct adamw_attrs a)
{
    constexpr int N_STREAMS = MASTER ? 4 : 3;
    __shared__ struct adamw_rule shared_rule;
    struct vectors<N_STREAMS> first;
    load_vectors<N_STREAMS>(first, s, grid_thread());
    adamw_rule_share(&shared_rule, s, a);
    if (shared_rule.scale == 0.0f) {
        copy_streams<N_STREAMS>(s);
        return;
    }
    if constexpr (MASTER) {
        const struct adamw_master_rule rule = {shared_rule};
        update_streams<N_STREAMS>(s, first, rule);
    } else {
        const struct adamw_rule rule = shared_rule;
        update_streams<N_STREAMS>(s, first, rule);
    }
}

template <bool MASTER>
static enum status adamw_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct streams s = {};
    struct adamw_attrs a = {call_float(c, 0), call_float(c, 1), call_float(c, 2), call_float(c, 3)};
    streams_add(&s, &c->in[MASTER ? 7 : 0], &c->out[MASTER ? 3 : 0]);
    streams_add(&s, &c->in[2], &c->out[1]);
    streams_add(&s, &c->in[3], &c->out[2]);
    if (MASTER)
        streams_add(&s, &c->in[0], &c->out[0]);
    streams_close(&s, &c->in[1]);
    s.lr = (const float *)c->in[4].data;
    s.step = (const int32_t *)c->in[5].data;
    s.scale = (const float *)c->in[6].data;
    adamw_kernel<MASTER><<<streams_grid(&x->env, &s), THREADS, 0, cuda_stream(x)>>>(s, a);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- sgd --------------------------------------------------------------------------------------
 */

struct sgd_rule {
    float lr, scale, weight_decay;

    __device__ __forceinline__ void apply(float *e, float grad) const
    {
        e[0] -= lr * (grad * scale + weight_decay * e[0]);
    }
};

struct sgd_momentum_rule {
    float lr, scale, weight_decay, momentum;
    bool nesterov;
    bool first; /* the buffer starts as the gradient */

    /* e: parameter, momentum buffer */
    __device__ __forceinline__ void apply(float *e, float grad) const
    {
        float g = grad * scale + weight_decay * e[0];
        e[1] = first ? g : momentum * e[1] + g;
        e[0] -= lr * (nesterov ? g + momentum * e[1] : e[1]);
    }
};

static __global__ void __launch_bounds__(THREADS)
    sgd_kernel(__grid_constant__ const struct streams s, struct sgd_rule rule)
{
    struct vectors<1> first;
    load_vectors<1>(first, s, grid_thread());
    if (*s.scale == 0.0f) {
        copy_streams<1>(s);
        return;
    }
    rule.lr = *s.lr;
    rule.scale = *s.scale;
    update_streams<1>(s, first, rule);
}

static __global__ void __launch_bounds__(THREADS)
    sgd_momentum_kernel(__grid_constant__ const struct streams s, struct sgd_momentum_rule rule)
{
    struct vectors<2> first;
    load_vectors<2>(first, s, grid_thread());
    if (*s.scale == 0.0f) {
        copy_streams<2>(s);
        return;
    }
    rule.lr = *s.lr;
    rule.scale = *s.scale;
    rule.first = *s.step <= 1;
    update_streams<2>(s, first, rule);
}

static enum status sgd_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    struct streams s = {};
    struct sgd_rule rule = {};
    streams_add(&s, &c->in[0], &c->out[0]);
    streams_close(&s, &c->in[1]);
    s.lr = (const float *)c->in[2].data;
    s.step = (const int32_t *)c->in[3].data;
    s.scale = (const float *)c->in[4].data;
    rule.weight_decay = (float)call_float(c, 0);
    sgd_kernel<<<streams_grid(&x->env, &s), THREADS, 0, cuda_stream(x)>>>(s, rule);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status sgd_momentum_vectors(const struct kernel_ctx *x, const struct op_call *c)
{
    struct streams s = {};
    struct sgd_momentum_rule rule = {};
    streams_add(&s, &c->in[0], &c->out[0]);
    streams_add(&s, &c->in[2], &c->out[1]);
    streams_close(&s, &c->in[1]);
    s.lr = (const float *)c->in[3].data;
    s.step = (const int32_t *)c->in[4].data;
    s.scale = (const float *)c->in[5].data;
    rule.momentum = (float)call_float(c, 0);
    rule.nesterov = call_bool(c, 1);
    rule.weight_decay = (float)call_float(c, 2);
    sgd_momentum_kernel<<<streams_grid(&x->env, &s), THREADS, 0, cuda_stream(x)>>>(s, rule);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- lists ------------------------------------------------------------------------------------
 */

extern "C" const struct kernel cuda_kernels_fill[] = {
    {"vectors", fill_declines, NULL, fill_vectors},
    {"elements", NULL, NULL, fill_elements},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_sum_squares[] = {
    {"chunks", cuda_declines_f64, sum_squares_workspace, sum_squares_chunks},
    KERNEL_END,
};

extern "C" const struct kernel cuda_kernels_clip_scale[] = {
    {"block", cuda_declines_f64, clip_scale_workspace, clip_scale_block},
    KERNEL_END,
};

#define LIST(name, run)                                      \
    extern "C" const struct kernel cuda_kernels_##name[] = { \
        {"vectors", cuda_declines_f64, NULL, run},           \
        KERNEL_END,                                          \
    };
LIST(accumulate, accumulate_vectors)
LIST(adamw, adamw_run<false>)
LIST(adamw_master, adamw_run<true>)
LIST(sgd, sgd_vectors)
LIST(sgd_momentum, sgd_momentum_vectors)
