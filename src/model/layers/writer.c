#include "model/layers/writer.h"

#include <math.h>
#include <string.h>

void writer_begin(struct writer *w, struct builder *b, const struct model_request *r,
                  struct model_graph *out)
{
    *w = (struct writer){.b = b, .r = r, .out = out, .prefix = "", .valid = VALUE_NONE};
    *out = (struct model_graph){
        .rng = VALUE_NONE, .position = VALUE_NONE, .positions = VALUE_NONE, .logits = VALUE_NONE};
    b->block = BLOCK_NONE;
}

void writer_end(struct writer *w)
{
    value_id *features;
    w->b->block = BLOCK_NONE;
    w->out->n_blocks = w->n_blocks;
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &features, sizeof(w->values) + sizeof(w->tables));
    if (w->b->status != OK)
        return;
    for (int i = 0; i < w->n_fields; i++) {
        if (!w->fields[i].is_target && !w->fields[i].n_classes)
            features[w->out->n_features++] = w->values[i];
    }
    for (int i = 0; i < w->n_tables; i++)
        features[w->out->n_features++] = w->tables[i];
    w->out->features = features;
}

enum status writer_facts(const struct writer *w, struct model *m)
{
    struct model_field *fields;
    TRY(pool_try(&m->pool, &fields, sizeof(w->fields)));
    for (int i = 0; i < w->n_fields; i++) {
        fields[i] = w->fields[i];
        fields[i].name = pool_strdup(&m->pool, w->fields[i].name);
    }
    TRY(pool_status(&m->pool));
    m->n_layers = w->n_blocks;
    m->samples = (struct sample_facts){.fields = fields,
                                       .n_fields = w->n_fields,
                                       .coupling = w->coupling,
                                       .has_batch_norm = w->has_batch_norm};
    return OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

value_id writer_find(const struct writer *w, const char *name)
{
    for (int i = 0; i < w->n_fields; i++) {
        if (strcmp(w->fields[i].name, name) == 0)
            return w->values[i];
    }
    return VALUE_NONE;
}

value_id writer_input(struct writer *w, const struct model_field *f)
{
    struct builder *b = w->b;
    value_id there = writer_find(w, f->name);
    if (there != VALUE_NONE || b->status != OK)
        return there;
    if (w->n_fields == WRITER_MOST_FIELDS || f->shape.rank == MAX_RANK) {
        b->status = FAIL(ERR_UNSUPPORTED, "'%s': a sample has at most %d tensors of %d axes",
                         f->name, (int)WRITER_MOST_FIELDS, MAX_RANK - 1);
        return VALUE_NONE;
    }
    struct shape shape = {.rank = f->shape.rank + 1, .dim = {w->r->batch}};
    memcpy(shape.dim + 1, f->shape.dim, sizeof(shape.dim) - sizeof(shape.dim[0]));
    w->fields[w->n_fields] = *f;
    w->values[w->n_fields] =
        build_value(b, f->name, ROLE_INPUT, f->n_classes ? DTYPE_I32 : DTYPE_F32, shape);
    return w->values[w->n_fields++];
}

/* Numbers of a mask are labels of two classes: anything else in the data is told as such. */
value_id writer_mask(struct writer *w, const char *name, int64_t n_steps)
{
    const struct model_field mask = {.name = name, .shape = shape_of(1, n_steps), .n_classes = 2};
    char is[SHAPE_TEXT];
    for (int i = 0; i < w->n_fields && w->b->status == OK; i++) {
        const struct model_field *f = &w->fields[i];
        if (strcmp(f->name, name) != 0)
            continue;
        if (f->is_target || f->n_classes != 2)
            w->b->status = FAIL(ERR_CONFIG,
                                "mask '%s' is the name of another tensor of the samples: leave it "
                                "out of inputs, as masks are named by the layers that read them, "
                                "or choose another name",
                                name);
        else if (!shape_equal(&f->shape, &mask.shape))
            w->b->status = FAIL(ERR_CONFIG,
                                "mask '%s' has the shape %s where it was named before, and these "
                                "are %lld steps: sequences of other lengths need a mask of their "
                                "own",
                                name, shape_text(is, &f->shape), (long long)n_steps);
    }
    return w->b->status == OK ? writer_input(w, &mask) : VALUE_NONE;
}

void writer_name(struct writer *w, const char *name, value_id x)
{
    struct named_value *named;
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &named, sizeof(*named));
    if (w->b->status != OK)
        return;
    *named = (struct named_value){name, x, w->named};
    w->named = named;
}

value_id writer_find_named(const struct writer *w, const char *name)
{
    for (const struct named_value *n = w->named; n; n = n->before) {
        if (strcmp(n->name, name) == 0)
            return n->value;
    }
    return writer_find(w, name);
}

/* ---- places ---------------------------------------------------------------------------------- */

void writer_start_block(struct writer *w)
{
    w->b->block = w->n_blocks++;
}

static const char *name_of(struct writer *w, const char *suffix)
{
    const char *name = pool_printf(&w->b->g->pool, "%s%s", w->prefix, suffix);
    if (!name && w->b->status == OK)
        w->b->status = pool_status(&w->b->g->pool);
    return name ? name : "";
}

const char *writer_enter(struct writer *w, const char *name)
{
    const char *before = w->prefix, *inside;
    if (!name[0])
        return before;
    inside = pool_printf(&w->b->g->pool, "%s%s.", before, name);
    if (!inside && w->b->status == OK)
        w->b->status = pool_status(&w->b->g->pool);
    w->prefix = inside ? inside : "";
    return before;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static struct model_param *find_param(const struct writer *w, const char *name)
{
    for (int i = 0; i < w->out->n_params; i++) {
        if (strcmp(w->out->params[i].name, name) == 0)
            return &w->out->params[i];
    }
    return NULL;
}

/* The parameter that a module has had since it was first written. */
static value_id param_again(struct writer *w, const struct model_param *param)
{
    const struct model_param *there = find_param(w, param->name);
    if (there && shape_equal(&there->shape, &param->shape))
        return there->value;
    w->b->status =
        FAIL(ERR_CONFIG, "'%s' has another shape where its weights are used again", param->name);
    return VALUE_NONE;
}

value_id writer_param(struct writer *w, const char *suffix, struct model_param param)
{
    struct hf_piece *piece;
    if (w->b->status == OK)
        w->b->status = pool_try(&w->b->g->pool, &piece, sizeof(*piece));
    param.name = name_of(w, suffix);
    if (w->b->status != OK)
        return VALUE_NONE;
    if (w->repeats)
        return param_again(w, &param);
    *piece = (struct hf_piece){param.name, param.shape.dim[0]};
    param.pieces = piece;
    param.n_pieces = 1;
    param.decay = param.shape.rank >= 2;
    param.frozen = param.buffer;
    return model_add_param(w->b, w->out, &w->params_room, param, w->r->dtype);
}

static void set_init(struct model_param *p, const struct weight_init *init, double fan_in,
                     double fan_out)
{
    double std = 0;
    if (init->rule == WEIGHT_KAIMING) /* for ReLU, as PyTorch's functions have it */
        std = sqrt(2.0 / (init->fan_out ? fan_out : fan_in));
    else if (init->rule == WEIGHT_XAVIER)
        std = sqrt(2.0 / (fan_in + fan_out));
    else if (init->rule == WEIGHT_NORMAL)
        std = init->std;
    p->init = init->rule == WEIGHT_ZERO ? INIT_ZERO : INIT_NORMAL;
    p->std = std;
    if (init->rule == WEIGHT_PRESET || (init->uniform && std > 0)) {
        p->init = INIT_UNIFORM;
        p->bound = init->rule == WEIGHT_PRESET ? 1.0 / sqrt(fan_in) : sqrt(3.0) * std;
    }
}

value_id writer_weight(struct writer *w, const char *suffix, struct shape shape, int64_t fan_in,
                       int64_t fan_out, const struct weight_init *init)
{
    struct model_param p = {.shape = shape};
    set_init(&p, init, (double)fan_in, (double)fan_out);
    if (shape.rank > 2) {
        p.channels = shape_last(&shape);
    } else if (w->flat_channels) {
        p.channels = w->flat_channels;
        p.flat = true;
    }
    return writer_param(w, suffix, p);
}

/* Beside weights that do not begin with the preset biases begin with zero. */
value_id writer_bias(struct writer *w, int64_t n, int64_t fan_in, const struct weight_init *init)
{
    struct model_param p = {.shape = shape_of(1, n), .init = INIT_ZERO};
    if (init->rule == WEIGHT_PRESET) {
        p.init = INIT_UNIFORM;
        p.bound = 1.0 / sqrt((double)fan_in);
    }
    return writer_param(w, "bias", p);
}

/* ---- layers ---------------------------------------------------------------------------------- */

int64_t writer_channels(const struct writer *w, value_id x)
{
    return w->b->status == OK ? shape_last(build_shape(w->b, x)) : 1;
}

value_id writer_linear(struct writer *w, value_id x, const struct linear_layer *l)
{
    int64_t n_in = writer_channels(w, x);
    struct shape shape = shape_of(2, l->n_out, n_in);
    value_id in[3] = {x, writer_weight(w, "weight", shape, n_in, l->n_out, &l->init), VALUE_NONE};
    if (l->bias)
        in[2] = writer_bias(w, l->n_out, n_in, &l->init);
    w->flat_channels = 0;
    return build(w->b, OP_linear, in, l->bias ? 3 : 2, NO_ATTRS);
}

static value_id norm_weight(struct writer *w, int64_t n)
{
    return writer_param(w, "weight",
                        (struct model_param){.shape = shape_of(1, n), .init = INIT_ONE});
}

static value_id norm_bias(struct writer *w, int64_t n)
{
    return writer_param(w, "bias", (struct model_param){.shape = shape_of(1, n)});
}

value_id writer_layer_norm(struct writer *w, value_id x, double epsilon)
{
    int64_t n = writer_channels(w, x);
    value_id weight = norm_weight(w, n), bias = norm_bias(w, n);
    return build(w->b, OP_layer_norm, IN(x, weight, bias),
                 ATTRS({.name = "epsilon", .f = epsilon}));
}

value_id writer_group_norm(struct writer *w, value_id x, int64_t groups, double epsilon)
{
    int64_t n = writer_channels(w, x);
    value_id weight = norm_weight(w, n), bias = norm_bias(w, n);
    return build(w->b, OP_group_norm, IN(x, weight, bias),
                 ATTRS({.name = "groups", .i = groups}, {.name = "epsilon", .f = epsilon}));
}

/* Moves running statistics on from what the calls before have made of them. */
static void move_running(struct writer *w, const char *suffix, value_id batch,
                         const struct batch_norm_layer *l, int64_t count, bool of_variance)
{
    struct model_param *p = find_param(w, name_of(w, suffix));
    if (!p)
        return;
    p->latest =
        build(w->b, OP_running_average, IN(p->latest, batch),
              ATTRS({.name = "momentum", .f = l->momentum}, {.name = "epsilon", .f = l->epsilon},
                    {.name = "count", .i = count}, {.name = "of_variance", .i = of_variance}));
}

value_id writer_batch_norm(struct writer *w, value_id x, const struct batch_norm_layer *l)
{
    struct builder *b = w->b;
    struct shape shape = shape_of(1, writer_channels(w, x));
    const struct attr_set epsilon = {.name = "epsilon", .f = l->epsilon};
    struct model_param one = {.shape = shape, .init = INIT_ONE}, zero = {.shape = shape};
    value_id gamma = norm_weight(w, shape.dim[0]), beta = norm_bias(w, shape.dim[0]);
    one.buffer = zero.buffer = true;
    value_id mean = writer_param(w, "running_mean", zero);
    value_id var = writer_param(w, "running_var", one);
    w->has_batch_norm = true;
    if (w->r->purpose != MODEL_TRAIN || b->status != OK)
        return build(b, OP_batch_norm_inference, IN(x, gamma, beta, mean, var), &epsilon, 1);
    int64_t count = shape_rows(build_shape(b, x));
    if (count < 2) {
        b->status = FAIL(ERR_CONFIG, "batch_norm has one value of a channel to take statistics of: "
                                     "per_device_train_batch_size must be at least 2");
        return VALUE_NONE;
    }
    value_id y = build(b, OP_batch_norm, IN(x, gamma, beta), &epsilon, 1);
    value_id batch_mean = build_output(b, 1), batch_rstd = build_output(b, 2);
    move_running(w, "running_mean", batch_mean, l, count, false);
    move_running(w, "running_var", batch_rstd, l, count, true);
    return y;
}

value_id writer_random_state(struct writer *w)
{
    if (w->out->rng == VALUE_NONE)
        w->out->rng = build_value(w->b, "rng", ROLE_INPUT, DTYPE_I64, shape_of(1, INT64_C(2)));
    return w->out->rng;
}

value_id writer_dropout(struct writer *w, value_id x, double rate, bool channels)
{
    if (w->r->purpose != MODEL_TRAIN || !(rate > 0))
        return x;
    value_id rng = writer_random_state(w);
    return build(w->b, OP_dropout, IN(x, rng),
                 ATTRS({.name = "p", .f = rate}, {.name = "seed", .i = ++w->n_dropouts},
                       {.name = "channels", .i = channels}));
}

/* Stages of a run share what has one name, so the name says which number it is. */
value_id writer_number(struct writer *w, double number)
{
    float x = (float)number;
    const char *name = pool_printf(&w->b->g->pool, "number.%.9g", (double)x);
    value_id there = name ? graph_find_value(w->b->g, name) : VALUE_NONE;
    if (!name && w->b->status == OK)
        w->b->status = pool_status(&w->b->g->pool);
    if (there != VALUE_NONE || w->b->status != OK)
        return there;
    return build_constant(w->b, name, DTYPE_F32, (struct shape){0}, &x);
}

value_id writer_table(struct writer *w, const char *name, struct shape shape, const float *data)
{
    BUG_ON(w->n_tables == WRITER_MOST_TABLES);
    value_id table = build_constant(w->b, name, DTYPE_F32, shape, data);
    w->tables[w->n_tables++] = table;
    return table;
}
