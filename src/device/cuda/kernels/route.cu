/* route.cu: which experts a token goes to, and the order of rows by expert.
 *
 * The order is a counting sort: chunks of slots are counted by expert, one block turns the counts
 * into the first place of each chunk's rows of each expert, then every slot finds its place behind
 * the earlier slots of its chunk. Counts are whole numbers, so nothing depends on which thread came
 * first.
 */
#include "device/cuda/declared/experts.h"
#include "device/cuda/support/any.cuh"
#include "ops/expert_support.h"

static constexpr int THREADS = 256;

/* ---- choice ---------------------------------------------------------------------------------- */

struct choice {
    struct any p;
    float *weights;
    int32_t *ids;
    int64_t n_tokens, n_experts, k;
    bool normalize;
    float epsilon;
};

static __device__ bool is_among(const int32_t *ids, int64_t n, int64_t id)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

/* The larger of two candidates, of the lower number where they are equal; id -1 is none. A NaN is
 * larger than nothing, and what comes before it in number goes first. */
static __device__ __forceinline__ void take_larger(float &value, int32_t &id, float other,
                                                   int32_t other_id)
{
    bool wins = other > value || (!(value > other) && other_id < id);
    if (other_id >= 0 && (id < 0 || wins)) {
        value = other;
        id = other_id;
    }
}

/* A warp for each token: k times the largest that is not taken yet. */
static __global__ void __launch_bounds__(THREADS) choose_kernel(const struct choice c)
{
    const int64_t token = grid_thread() / WARP;
    const int lane = threadIdx.x % WARP;
    if (token >= c.n_tokens)
        return;
    int32_t *ids = c.ids + token * c.k;
    float sum = 0.0f;
    for (int64_t j = 0; j < c.k; j++) {
        float best = 0.0f;
        int32_t id = -1;
        for (int64_t e = lane; e < c.n_experts; e += WARP) {
            if (!is_among(ids, j, e))
                take_larger(best, id, any_get_f32(c.p, token * c.n_experts + e), (int32_t)e);
        }
        for (int step = WARP / 2; step > 0; step /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, best, step);
            int32_t other_id = __shfl_xor_sync(0xffffffffu, id, step);
            take_larger(best, id, other, other_id);
        }
        if (lane == 0)
            ids[j] = id;
        sum += best;
        __syncwarp();
    }
    const float share = c.normalize ? 1.0f / (sum + c.epsilon) : 1.0f;
    for (int64_t j = lane; j < c.k; j += WARP)
        c.weights[token * c.k + j] = share * any_get_f32(c.p, token * c.n_experts + ids[j]);
}

/* ---- order ----------------------------------------------------------------------------------- */

struct sort {
    const int32_t *ids;
    int32_t *counts; /* [chunks, experts]: how many; then the first place */
    int32_t *order, *place, *offsets;
    int64_t n, n_experts, n_chunks;
};

static __global__ void __launch_bounds__(ROUTE_CHUNK) count_kernel(const struct sort s)
{
    extern __shared__ int32_t own[];
    for (int64_t e = threadIdx.x; e < s.n_experts; e += ROUTE_CHUNK)
        own[e] = 0;
    __syncthreads();
    const int64_t i = (int64_t)blockIdx.x * ROUTE_CHUNK + threadIdx.x;
    if (i < s.n)
        atomicAdd(&own[s.ids[i]], 1);
    __syncthreads();
    for (int64_t e = threadIdx.x; e < s.n_experts; e += ROUTE_CHUNK)
        s.counts[blockIdx.x * s.n_experts + e] = own[e];
}

/* One block. Places within an expert first, with the expert's total kept in shared memory; then
 * what the experts before it have. */
static __global__ void __launch_bounds__(ROUTE_CHUNK) scan_kernel(const struct sort s)
{
    extern __shared__ int32_t starts[];
    for (int64_t e = threadIdx.x; e < s.n_experts; e += ROUTE_CHUNK) {
        int32_t before = 0;
        for (int64_t chunk = 0; chunk < s.n_chunks; chunk++) {
            int32_t count = s.counts[chunk * s.n_experts + e];
            s.counts[chunk * s.n_experts + e] = before;
            before += count;
        }
        starts[e] = before;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t before = 0;
        for (int64_t e = 0; e < s.n_experts; e++) {
            int32_t size = starts[e];
            starts[e] = before;
            before += size;
        }
    }
    __syncthreads();
    for (int64_t e = threadIdx.x; e <= s.n_experts; e += ROUTE_CHUNK)
        s.offsets[e] = e < s.n_experts ? starts[e] : (int32_t)s.n;
}

static __global__ void __launch_bounds__(ROUTE_CHUNK) place_kernel(const struct sort s)
{
    __shared__ int32_t ids[ROUTE_CHUNK];
    const int64_t i = (int64_t)blockIdx.x * ROUTE_CHUNK + threadIdx.x;
    const int32_t id = i < s.n ? s.ids[i] : -1;
    ids[threadIdx.x] = id;
    __syncthreads();
    if (i >= s.n)
        return;
    int32_t earlier = 0;
    for (int t = 0; t < (int)threadIdx.x; t++)
        earlier += ids[t] == id;
    const int32_t place = s.offsets[id] + s.counts[blockIdx.x * s.n_experts + id] + earlier;
    s.place[i] = place;
    s.order[place] = (int32_t)i;
}

static enum status sort_slots(const struct kernel_ctx *x, const struct op_call *c)
{
    struct sort s = {};
    s.ids = (const int32_t *)c->out[1].data;
    s.counts = (int32_t *)x->workspace;
    s.order = (int32_t *)c->out[2].data;
    s.place = (int32_t *)c->out[3].data;
    s.offsets = (int32_t *)c->out[4].data;
    s.n = shape_elems(&c->out[1].shape);
    s.n_experts = c->in[0].shape.dim[1];
    s.n_chunks = ceil_div(s.n, ROUTE_CHUNK);
    size_t n_bytes = (size_t)s.n_experts * sizeof(int32_t);
    unsigned grid = (unsigned)s.n_chunks;
    if (grid > 0)
        count_kernel<<<grid, ROUTE_CHUNK, n_bytes, cuda_stream(x)>>>(s);
    scan_kernel<<<1, ROUTE_CHUNK, n_bytes, cuda_stream(x)>>>(s);
    if (grid > 0)
        place_kernel<<<grid, ROUTE_CHUNK, 0, cuda_stream(x)>>>(s);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

static enum status route_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct choice a = {};
    a.p = any_of(&c->in[0]);
    a.weights = (float *)c->out[0].data;
    a.ids = (int32_t *)c->out[1].data;
    a.n_tokens = c->in[0].shape.dim[0];
    a.n_experts = c->in[0].shape.dim[1];
    a.k = call_int(c, ROUTE_EXPERTS_PER_TOKEN);
    a.normalize = call_bool(c, ROUTE_NORMALIZE);
    a.epsilon = (float)call_float(c, ROUTE_EPSILON);
    choose_kernel<<<grid_for(a.n_tokens, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(a);
    CUDA_TRY(cudaGetLastError());
    return sort_slots(x, c);
}

/* ---- gradient -------------------------------------------------------------------------------- */

struct route_grad {
    const float *dw;
    struct any p, dp;
    const int32_t *ids;
    int64_t n_tokens, n_experts, k;
    bool normalize;
    float epsilon;
};

/* A warp for each token. An expert's sum is made by the lane that writes it. */
static __global__ void __launch_bounds__(THREADS) route_grad_kernel(const struct route_grad g)
{
    const int64_t token = grid_thread() / WARP;
    if (token >= g.n_tokens)
        return;
    const int32_t *ids = g.ids + token * g.k;
    const float *dw = g.dw + token * g.k;
    float total = g.epsilon, dot = 0.0f;
    for (int64_t j = 0; j < g.k && g.normalize; j++) {
        float p = any_get_f32(g.p, token * g.n_experts + ids[j]);
        total += p;
        dot += p * dw[j];
    }
    for (int64_t e = threadIdx.x % WARP; e < g.n_experts; e += WARP) {
        float sum = 0.0f;
        for (int64_t j = 0; j < g.k; j++) {
            if (ids[j] == e)
                sum += g.normalize ? (dw[j] - dot / total) / total : dw[j];
        }
        any_set_f32(g.dp, token * g.n_experts + e, sum);
    }
}

static enum status route_grad_rows(const struct kernel_ctx *x, const struct op_call *c)
{
    struct route_grad g = {};
    g.dw = (const float *)c->in[0].data;
    g.p = any_of(&c->in[1]);
    g.dp = any_of(&c->out[0]);
    g.ids = (const int32_t *)c->in[2].data;
    g.n_tokens = c->in[1].shape.dim[0];
    g.n_experts = c->in[1].shape.dim[1];
    g.k = c->in[2].shape.dim[1];
    g.normalize = call_bool(c, ROUTE_GRAD_NORMALIZE);
    g.epsilon = (float)call_float(c, ROUTE_GRAD_EPSILON);
    route_grad_kernel<<<grid_for(g.n_tokens, THREADS / WARP), THREADS, 0, cuda_stream(x)>>>(g);
    CUDA_TRY(cudaGetLastError());
    return OK;
}

/* ---- capacity -------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    capacity_kernel(struct any y, struct any x, const int32_t *ids, const int32_t *place,
                    const int32_t *offsets, int64_t n, int64_t most)
{
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const bool fits = place[i] - offsets[ids[i]] < most;
        any_set_f32(y, i, fits ? any_get_f32(x, i) : 0.0f);
    }
}

static enum status capacity_elements(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_elems(&c->in[0].shape);
    capacity_kernel<<<grid_for(n, THREADS), THREADS, 0, cuda_stream(x)>>>(
        any_of(&c->out[0]), any_of(&c->in[0]), (const int32_t *)c->in[1].data,
        (const int32_t *)c->in[2].data, (const int32_t *)c->in[3].data, n,
        call_int(c, CAPACITY_ROWS));
    CUDA_TRY(cudaGetLastError());
    return OK;
}

CUDA_RUN(capacity, elements, capacity_elements)
CUDA_RUN(route, rows, route_rows)

CUDA_RUN(route_grad, rows, route_grad_rows)
