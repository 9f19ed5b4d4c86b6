#include "device/cuda/convolution/conv_plan.h"

#include "base/alloc.h"
#include "device/cuda/support/dnn_graph.h"

/* Whose memory a tensor with memory is. */
enum conv_slot { SLOT_X, SLOT_W, SLOT_Y, SLOT_BIAS, SLOT_COUNT };

struct conv_plan {
    struct conv_shape shape;
    enum conv_form form;
    struct dnn_graph graph;
};

/* ---- the graph ------------------------------------------------------------------------------- */

static cudnnDataType_t type_of(enum dtype d)
{
    return d == DTYPE_F32    ? CUDNN_DATA_FLOAT
           : d == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16
                             : CUDNN_DATA_HALF;
}

/* cuDNN knows two axes or three. */
static int axes_of(const struct conv_shape *s)
{
    return s->dims.window.rank < WINDOW_AXES ? 2 : WINDOW_AXES;
}

/* [n, c, places..], the channels next to each other. */
static struct dnn_tensor channels_last(struct dnn_graph *g, const struct conv_shape *s,
                                       enum conv_slot slot, enum dtype dtype, int64_t n, int64_t c,
                                       const int64_t size[WINDOW_AXES])
{
    int n_axes = axes_of(s);
    int64_t dim[DNN_MAX_RANK] = {n, c}, stride[DNN_MAX_RANK] = {0, 1}, step = c;
    for (int i = n_axes - 1; i >= 0; i--) {
        dim[2 + i] = size[WINDOW_AXES - n_axes + i];
        stride[2 + i] = step;
        step *= dim[2 + i];
    }
    stride[0] = step;
    return dnn_tensor_new(g, (int)slot, type_of(dtype), 2 + n_axes, dim, stride);
}

static struct dnn_window window_of(const struct conv_shape *s)
{
    const struct window *from = &s->dims.window;
    struct dnn_window w = {.n_axes = axes_of(s)};
    for (int i = 0; i < w.n_axes; i++) {
        int k = WINDOW_AXES - w.n_axes + i;
        w.stride[i] = from->stride[k];
        w.pad_before[i] = from->pad_before[k];
        w.pad_after[i] = from->pad_after[k];
        w.dilation[i] = from->dilation[k];
    }
    return w;
}

/* y = sum + bias, where sum stays inside the graph in f32. */
static void add_bias(struct dnn_graph *g, const struct conv_shape *s, const struct dnn_tensor *sum,
                     const struct dnn_tensor *y)
{
    static const int64_t one[WINDOW_AXES] = {1, 1, 1};
    struct dnn_tensor bias = channels_last(g, s, SLOT_BIAS, s->out_dtype, 1, s->dims.features, one);
    dnn_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, sum, &bias, NULL, y, 0);
}

static void build_graph(struct dnn_graph *g, const struct conv_shape *s, enum conv_form form)
{
    static const enum dnn_direction directions[] = {[CONV_FORWARD] = DNN_FORWARD,
                                                    [CONV_GRAD_INPUT] = DNN_GRAD_INPUT,
                                                    [CONV_GRAD_WEIGHT] = DNN_GRAD_WEIGHT};
    const struct conv_dims *d = &s->dims;
    const struct window *w = &d->window;
    enum dtype x_type = s->kind == CONV_GRAD_INPUT ? s->out_dtype : s->dtype;
    bool makes_w = s->kind == CONV_GRAD_WEIGHT && form != CONV_ROUNDED;
    enum dtype w_type = makes_w ? s->out_dtype : s->dtype;
    enum dtype y_type = s->kind == CONV_FORWARD ? s->out_dtype : s->dtype;
    bool with_bias = form == CONV_WHOLE && s->has_bias;
    struct dnn_tensor x = channels_last(g, s, SLOT_X, x_type, w->batch, d->channels, w->size);
    struct dnn_tensor weight =
        channels_last(g, s, SLOT_W, w_type, d->features, d->channels / d->groups, w->kernel);
    struct dnn_tensor y = channels_last(g, s, SLOT_Y, y_type, w->batch, d->features, w->out);
    struct dnn_tensor sum = with_bias ? dnn_like(g, &y, CUDNN_DATA_FLOAT) : y;
    const struct dnn_convolution c = {.direction = directions[s->kind],
                                      .window = window_of(s),
                                      .add = form == CONV_WHOLE && s->adds,
                                      .x = &x,
                                      .w = &weight,
                                      .y = &sum};
    dnn_convolve(g, &c);
    if (with_bias)
        add_bias(g, s, &sum, &y);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Engines that do not give the same bits every time, or lose more than f32 sums of exact products
 * do. Tensor cores round f32 factors (TF32). */
static uint32_t refused_notes(const struct conv_shape *s, bool tf32)
{
    uint32_t notes = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                     1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                     1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                     1u << CUDNN_NUMERICAL_NOTE_FFT | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD;
    if (s->dtype == DTYPE_F32 && !tf32)
        notes |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return notes;
}

enum status conv_plan_new(struct conv_plan **out, cudnnHandle_t handle,
                          const struct conv_shape *shape, const struct conv_wish *wish)
{
    const struct dnn_limits limits = {.most_bytes = wish->most_bytes,
                                      .refused = refused_notes(shape, wish->tf32),
                                      .n_configs = DNN_MOST_CONFIGS,
                                      .n_passed_over = wish->n_passed_over};
    struct conv_plan *plan = NULL;
    enum status status = OK;
    TRY(mem_try_array(&plan, 1, sizeof *plan));
    plan->shape = *shape;
    plan->form = wish->form;
    build_graph(&plan->graph, shape, wish->form);
    TRY_GOTO(dnn_graph_finish(&plan->graph, handle, &limits, "convolution"), out);
    *out = plan;
    plan = NULL;
out:
    conv_plan_free(plan);
    return status;
}

void conv_plan_free(struct conv_plan *plan)
{
    if (!plan)
        return;
    dnn_graph_release(&plan->graph);
    mem_free(plan);
}

int64_t conv_plan_bytes(const struct conv_plan *plan)
{
    return plan->graph.n_bytes;
}

enum conv_form conv_plan_form(const struct conv_plan *plan)
{
    return plan->form;
}

const struct conv_shape *conv_plan_shape(const struct conv_plan *plan)
{
    return &plan->shape;
}

enum status conv_plan_run(const struct conv_plan *plan, cudnnHandle_t handle,
                          const struct conv_tensors *t, void *workspace)
{
    void *const by_slot[SLOT_COUNT] = {
        [SLOT_X] = t->x, [SLOT_W] = t->w, [SLOT_Y] = t->y, [SLOT_BIAS] = t->bias};
    return dnn_graph_run(&plan->graph, handle, by_slot, workspace, "convolution");
}
