/* The plans of the shapes asked for so far, in a list that the device releases. A shape without a
 * plan keeps its place in the list, so that cuDNN is asked once. */
#include "device/cuda/convolution/conv_cudnn.h"

#include "base/alloc.h"
#include "base/log.h"
#include "device/cuda/convolution/conv_plan.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/declared/conv_parts.h"

/* Of one shape: a sample's first slab, those in the middle and its last. */
enum { MOST_PLANS = 3 };

struct entry {
    struct entry *next;
    struct conv_shape shape;
    bool tf32;
    struct conv_cut cut;
    struct conv_plan *plan[MOST_PLANS]; /* of parts that differ; none: the call is declined */
    int n_plans;
};

static void release_plans(struct entry *e)
{
    while (e->n_plans > 0)
        conv_plan_free(e->plan[--e->n_plans]);
}

static void release_entries(void *data)
{
    for (struct entry *e = data, *next; e; e = next) {
        next = e->next;
        release_plans(e);
        mem_free(e);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The forms that a graph may have, the best first. What is written in place has to be added by the
 * engine, unless there is room to write it aside. Engines that give f32 for factors in 16 bits take
 * four times as long and more, and some add up in too few parts: such a gradient is made in 16
 * bits, as PyTorch makes it. */
static int forms_of(const struct conv_shape *whole, bool in_parts, enum conv_form forms[2])
{
    int n = 0;
    bool aside = conv_aside_bytes(whole) > 0;
    if (conv_widens(whole)) {
        forms[n++] = CONV_ROUNDED;
        return n;
    }
    if (!in_parts || !aside)
        forms[n++] = CONV_WHOLE;
    if (whole->has_bias || aside)
        forms[n++] = CONV_BARE;
    return n;
}

static struct conv_plan *new_plan(const struct cuda_libraries *l, const struct conv_shape *whole,
                                  const struct conv_shape *part, enum conv_form form)
{
    struct conv_plan *plan = NULL;
    const struct conv_wish wish = {.form = form,
                                   .most_bytes =
                                       conv_allowance(&l->gpu, whole) - conv_aside_bytes(whole),
                                   .tf32 = l->tf32};
    if (conv_plan_new(&plan, l->cudnn, part, &wish) == OK)
        return plan;
    log_debug("convolution, form %d: no plan: %s", (int)form, status_message());
    return NULL;
}

static struct conv_plan *plan_of(const struct entry *e, const struct conv_shape *part)
{
    for (int i = 0; i < e->n_plans; i++) {
        if (conv_shape_equal(conv_plan_shape(e->plan[i]), part))
            return e->plan[i];
    }
    return NULL;
}

/* Plans of every part that differs from those before it, all of one form. */
static bool make_plans(const struct cuda_libraries *l, struct entry *e, enum conv_form form)
{
    for (int64_t i = 0; i < e->cut.n_slabs; i++) { /* samples are alike */
        const struct conv_part part = conv_part_of(&e->shape, &e->cut, i);
        if (plan_of(e, &part.shape))
            continue;
        struct conv_plan *plan =
            e->n_plans < MOST_PLANS ? new_plan(l, &e->shape, &part.shape, form) : NULL;
        if (!plan) {
            release_plans(e);
            return false;
        }
        e->plan[e->n_plans++] = plan;
    }
    return true;
}

/* None remain where a part has none. */
static void find_plans(const struct cuda_libraries *l, struct entry *e)
{
    enum conv_form forms[2];
    int n = forms_of(&e->shape, e->cut.n_parts > 1, forms);
    for (int i = 0; i < n && e->cut.n_parts > 0 && !make_plans(l, e, forms[i]); i++)
        continue;
}

static struct entry *find(const struct cuda_libraries *l, const struct conv_shape *s)
{
    for (struct entry *e = l->convolution.data; e; e = e->next) {
        if (e->tf32 == l->tf32 && conv_shape_equal(&e->shape, s))
            return e;
    }
    return NULL;
}

/* The entry of a shape, made when there is none yet; NULL when memory is short. */
static struct entry *find_or_make(struct cuda_libraries *l, const struct conv_shape *s)
{
    struct entry *e = find(l, s);
    if (e)
        return e;
    e = mem_calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->shape = *s;
    e->tf32 = l->tf32;
    e->next = l->convolution.data;
    l->convolution.data = e;
    l->convolution.release = release_entries;
    e->cut = conv_cut_of(s, CONV_MOST_ELEMS);
    find_plans(l, e);
    return e;
}

const char *cuda_conv_declines(const struct kernel_env *env, const struct conv_shape *s)
{
    struct cuda_libraries *l = cuda_libraries_of(env);
    if (!l || !l->cudnn)
        return "there is no cuDNN without a GPU";
    struct entry *e = find_or_make(l, s);
    return !e ? "out of memory" : e->n_plans == 0 ? "cuDNN has no plan for it on this GPU" : NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Of a call, and of each of its parts. */
struct run {
    const struct kernel_ctx *x;
    const struct entry *e;
    struct conv_tensors t;
    void *aside; /* where a weight gradient goes that is added later */
};

static void *moved(void *p, int64_t n_elems, enum dtype dtype)
{
    return (char *)p + n_elems * dtype_size(dtype);
}

/* A part's x and y: further on. */
static struct conv_tensors tensors_of_part(const struct run *r, const struct conv_part *part)
{
    const struct conv_shape *s = &part->shape;
    enum dtype x_type = s->kind == CONV_GRAD_INPUT ? s->out_dtype : s->dtype;
    enum dtype y_type = s->kind == CONV_FORWARD ? s->out_dtype : s->dtype;
    struct conv_tensors t = r->t;
    t.x = moved(t.x, part->first_x, x_type);
    t.y = moved(t.y, part->first_y, y_type);
    return t;
}

/* What the graph left out; `adds`: the output holds something already. */
static enum status finish_part(const struct run *r, const struct conv_plan *plan,
                               const struct conv_tensors *t, bool adds)
{
    const struct conv_shape *part = conv_plan_shape(plan);
    int64_t features = part->dims.features, n_w = conv_w_elems(part);
    enum conv_form form = conv_plan_form(plan);
    if (form == CONV_ROUNDED)
        return conv_widen(r->x, part->dtype, r->t.w, r->aside, n_w, adds);
    if (form == CONV_WHOLE)
        return OK;
    if (part->has_bias)
        return conv_add_bias(r->x, part->out_dtype, t->y, t->bias, conv_y_elems(part) / features,
                             features);
    return t->w == r->aside ? conv_add(r->x, part->out_dtype, r->t.w, r->aside, n_w) : OK;
}

static enum status run_part(const struct run *r, int64_t i)
{
    const struct conv_part part = conv_part_of(&r->e->shape, &r->e->cut, i);
    const struct conv_plan *plan = plan_of(r->e, &part.shape);
    struct conv_tensors t = tensors_of_part(r, &part);
    enum conv_form form = conv_plan_form(plan);
    bool adds = r->e->shape.adds || i > 0;
    if (r->aside && (form == CONV_ROUNDED || (form == CONV_BARE && adds)))
        t.w = r->aside;
    TRY(conv_plan_run(plan, cuda_libraries_of(&r->x->env)->cudnn, &t, r->x->workspace));
    return finish_part(r, plan, &t, adds);
}

/* Inputs are x w bias, dy w, x dy. */
static struct conv_tensors tensors_of(const struct op_call *c, enum conv_kind kind)
{
    void *first = c->in[0].data, *second = c->in[1].data, *out = c->out[0].data;
    if (kind == CONV_FORWARD)
        return (struct conv_tensors){first, second, out, call_has(c, 2) ? c->in[2].data : NULL};
    if (kind == CONV_GRAD_INPUT)
        return (struct conv_tensors){out, second, first, NULL};
    return (struct conv_tensors){first, out, second, NULL};
}

/* What is added to lies where the result goes; programs see to that. */
static enum status bring_sum(const struct kernel_ctx *x, const struct op_call *c)
{
    if (c->in[2].data == c->out[0].data)
        return OK;
    cudaError_t e = cudaMemcpyAsync(c->out[0].data, c->in[2].data, (size_t)tensor_bytes(&c->out[0]),
                                    cudaMemcpyDeviceToDevice, (cudaStream_t)x->queue);
    return e == cudaSuccess ? OK : FAIL(ERR_FAILED, "CUDA: %s", cudaGetErrorString(e));
}

/* Only plans whose workspace was planned for may run. */
enum status cuda_conv_run(const struct kernel_ctx *x, const struct op_call *c)
{
    struct cuda_libraries *l = cuda_libraries_of(&x->env);
    struct conv_shape s = conv_shape_of(c);
    struct run r = {.x = x, .e = find(l, &s), .t = tensors_of(c, s.kind)};
    if (!r.e || r.e->n_plans == 0)
        return FAIL(ERR_INTERNAL, "%s: cuDNN has no plan for a call that was planned for it",
                    op_get(c->op)->name);
    if (s.adds)
        TRY(bring_sum(x, c));
    int64_t aside_bytes = conv_aside_bytes(&s);
    if (aside_bytes > 0)
        r.aside = (char *)x->workspace + conv_allowance(&l->gpu, &s) - aside_bytes;
    cudnnStatus_t set = cudnnSetStream(l->cudnn, (cudaStream_t)x->queue);
    if (set != CUDNN_STATUS_SUCCESS)
        return FAIL(ERR_FAILED, "cuDNN convolution: %s", cudnnGetErrorString(set));
    for (int64_t i = 0; i < r.e->cut.n_parts; i++)
        TRY(run_part(&r, i));
    return OK;
}
