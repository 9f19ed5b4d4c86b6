/* updates.c: what an update rule keeps beside a parameter, and the op that applies it.
 *
 * A rule names its states; the parameter's role says in which format each is kept, and the format
 * which tensors that makes. Every update op takes its inputs in the same order:
 *
 *     parameter, gradient, the tensors of its states, lr, step, scale, master (if any)
 *
 * Where the gradient is the product of a few rows, an op may take those instead: dy in its place,
 * and x last.
 */
#include "optim/updates.h"

#include "base/rng.h"
#include "optim/products.h"

enum { MAX_STATES = 2, MAX_ATTRS = 10, MAX_INPUTS = 2 + MAX_STATES * FORMAT_PARTS + 4 };

const char *joined_name(struct builder *b, const char *prefix, const char *name)
{
    const char *s = pool_printf(&b->g->pool, "%s.%s", prefix, name);
    if (!s && b->status == OK)
        b->status = pool_status(&b->g->pool);
    return s ? s : "";
}

/* ---- the tensors of files that a parameter holds --------------------------------------------- */

/* Pieces of the parameter, or of what one expert has of it. */
static int pieces_of(const struct optimizer_param *p)
{
    return p->n_pieces / (int)MAX(p->n_experts, (int64_t)1);
}

/* rule_build sees to it that there are not too many. */
static struct param_tensors tensors_of(const struct optimizer_param *p)
{
    struct param_tensors k = {.n_experts = p->n_experts, .channels_last = p->channels_last};
    int n = MIN(pieces_of(p), MAX_ATTR_INTS);
    k.n_pieces = n > 1 ? n : 0;
    for (int i = 0; i < k.n_pieces; i++)
        k.rows[i] = p->pieces[i].rows;
    return k;
}

/* ---- the rules ------------------------------------------------------------------------------- */

/* Which op updates with states of a format. */
struct update_op {
    enum format states; /* NONE: the rule keeps none */
    bool has_master;
    enum op_id op;
};

struct update_rule {
    const char *name;
    const char *states[MAX_STATES]; /* prefixes of their names; NULL: no more */
    const struct update_op *ops;
    int n_ops;
    /* Fills attrs of the op; how many. */
    int (*attrs)(const struct optimizer_options *o, const struct optimizer_param *p,
                 struct attr_set attrs[MAX_ATTRS]);
};

static int adamw_attrs(const struct optimizer_options *o, const struct optimizer_param *p,
                       struct attr_set attrs[MAX_ATTRS])
{
    (void)p;
    attrs[0] = (struct attr_set){"beta1", .f = o->beta1};
    attrs[1] = (struct attr_set){"beta2", .f = o->beta2};
    attrs[2] = (struct attr_set){"epsilon", .f = o->epsilon};
    return 3;
}

static int lion_attrs(const struct optimizer_options *o, const struct optimizer_param *p,
                      struct attr_set attrs[MAX_ATTRS])
{
    (void)p;
    attrs[0] = (struct attr_set){"beta1", .f = o->beta1};
    attrs[1] = (struct attr_set){"beta2", .f = o->beta2};
    return 2;
}

static int adafactor_attrs(const struct optimizer_options *o, const struct optimizer_param *p,
                           struct attr_set attrs[MAX_ATTRS])
{
    const struct adafactor_options *a = &o->adafactor;
    const struct param_tensors k = tensors_of(p);
    attrs[0] = (struct attr_set){"decay_rate", .f = a->decay_rate};
    attrs[1] = (struct attr_set){"clip_threshold", .f = a->clip_threshold};
    attrs[2] = (struct attr_set){"scale_parameter", .i = a->scale_parameter};
    attrs[3] = (struct attr_set){"relative_step", .i = a->relative_step};
    attrs[4] = (struct attr_set){"warmup_init", .i = a->warmup_init};
    attrs[5] = (struct attr_set){"experts", .i = k.n_experts};
    attrs[6] = (struct attr_set){"rows", .n_ints = k.n_pieces};
    for (int i = 0; i < k.n_pieces; i++)
        attrs[6].ints[i] = k.rows[i];
    attrs[7] = (struct attr_set){"channels_last", .i = k.channels_last};
    return 8;
}

static int sgd_attrs(const struct optimizer_options *o, const struct optimizer_param *p,
                     struct attr_set attrs[MAX_ATTRS])
{
    (void)p;
    (void)o;
    (void)attrs;
    return 0;
}

static int momentum_attrs(const struct optimizer_options *o, const struct optimizer_param *p,
                          struct attr_set attrs[MAX_ATTRS])
{
    (void)p;
    attrs[0] = (struct attr_set){"momentum", .f = o->momentum};
    attrs[1] = (struct attr_set){"nesterov", .i = o->nesterov};
    return 2;
}

static const struct update_op adamw_ops[] = {
    {FORMAT_F32, false, OP_adamw},         {FORMAT_F32, true, OP_adamw_master},
    {FORMAT_BF16, false, OP_adamw},        {FORMAT_BF16, true, OP_adamw_master},
    {FORMAT_BLOCK8, false, OP_adamw_8bit}, {FORMAT_BLOCK8, true, OP_adamw_8bit_master},
};
static const struct update_op lion_ops[] = {
    {FORMAT_F32, false, OP_lion},         {FORMAT_F32, true, OP_lion_master},
    {FORMAT_BF16, false, OP_lion},        {FORMAT_BF16, true, OP_lion_master},
    {FORMAT_BLOCK8, false, OP_lion_8bit}, {FORMAT_BLOCK8, true, OP_lion_8bit_master},
};
static const struct update_op adafactor_ops[] = {
    {FORMAT_FACTORED, false, OP_adafactor},
    {FORMAT_FACTORED, true, OP_adafactor_master},
};
static const struct update_op sgd_ops[] = {
    {FORMAT_NONE, false, OP_sgd},
    {FORMAT_NONE, true, OP_sgd_master},
};
static const struct update_op momentum_ops[] = {
    {FORMAT_F32, false, OP_sgd_momentum},
    {FORMAT_F32, true, OP_sgd_momentum_master},
    {FORMAT_BF16, false, OP_sgd_momentum},
    {FORMAT_BF16, true, OP_sgd_momentum_master},
};

static const struct update_rule adamw = {
    "adamw", {"m", "v"}, adamw_ops, ARRAY_LEN(adamw_ops), adamw_attrs};
static const struct update_rule lion = {"lion", {"m"}, lion_ops, ARRAY_LEN(lion_ops), lion_attrs};
static const struct update_rule adafactor = {
    "adafactor", {"v"}, adafactor_ops, ARRAY_LEN(adafactor_ops), adafactor_attrs};
static const struct update_rule sgd = {"sgd", {NULL}, sgd_ops, ARRAY_LEN(sgd_ops), sgd_attrs};
static const struct update_rule momentum = {
    "sgd with momentum", {"momentum"}, momentum_ops, ARRAY_LEN(momentum_ops), momentum_attrs};

static const struct update_rule *rule_of(const struct optimizer_options *o)
{
    if (o->kind == OPTIMIZER_ADAMW || o->kind == OPTIMIZER_MUON)
        return &adamw;
    if (o->kind == OPTIMIZER_ADAFACTOR)
        return &adafactor;
    if (o->kind == OPTIMIZER_LION)
        return &lion;
    return o->momentum == 0.0 ? &sgd : &momentum;
}

/* The rule's op for these states; with a master where there is such a one. NULL: there is none. */
static const struct update_op *find_op(const struct update_rule *r, enum format states,
                                       bool wants_master)
{
    const struct update_op *found = NULL;
    for (int i = 0; i < r->n_ops; i++) {
        const struct update_op *op = &r->ops[i];
        if (op->states == states && (!found || op->has_master == wants_master))
            found = op;
    }
    return found;
}

/* ---- one parameter --------------------------------------------------------------------------- */

int update_add_parts(struct builder *b, const char *prefix, const struct optimizer_param *p,
                     enum role role, enum format format, value_id *in, int n)
{
    struct format_part part[FORMAT_PARTS];
    struct shape shape = *build_shape(b, p->value);
    struct param_tensors k = tensors_of(p);
    int n_parts = format_parts_stacked(format, &shape, &k, part);
    for (int i = 0; i < n_parts; i++) {
        const char *name = joined_name(b, prefix, p->name);
        if (part[i].suffix[0])
            name = joined_name(b, name, part[i].suffix);
        in[n++] = build_value(b, name, role, part[i].dtype, part[i].shape);
    }
    return n;
}

int64_t update_seed(const struct optimizer_options *o, size_t i_param)
{
    if (o->seed == 0)
        return 0;
    struct philox4 r = philox((uint64_t)o->seed, UINT64_C(0x726f756e64), (uint64_t)i_param);
    return (int64_t)((uint64_t)(r.v[0] >> 1) << 32 | r.v[1] | 1u);
}

static void fail_without_op(struct builder *b, const struct update_rule *r, enum format states)
{
    b->status =
        FAIL(ERR_UNSUPPORTED, "%s has no update for states in %s", r->name, format_name(states));
}

/* ---- by a product ---------------------------------------------------------------------------- */

/* Ops that take the factors of a gradient instead of it. */
static const struct product_op {
    enum op_id op, by_product;
} product_ops[] = {{OP_adamw_8bit, OP_adamw_8bit_product}};

/* *op, and the gradient among its inputs, are exchanged for those by the product that the gradient
 * is, where there is such an op: the other factor, or VALUE_NONE. With more rows they would take
 * longer to go through than the gradient. */
static value_id take_product(const struct builder *b, enum op_id *op, value_id *grad)
{
    enum { FEW_ROWS = 4 };
    const struct node *n = gradient_product(b, *grad, FEW_ROWS);
    for (size_t i = 0; n && i < ARRAY_LEN(product_ops); i++) {
        if (product_ops[i].op != *op)
            continue;
        *op = product_ops[i].by_product;
        *grad = n->in[0];
        return n->in[1];
    }
    return VALUE_NONE;
}

/* ---- one update ------------------------------------------------------------------------------ */

static const struct updated nothing = {VALUE_NONE, VALUE_NONE};

static struct updated rule_build(struct builder *b, const struct optimizer_options *o,
                                 const struct optimizer_param *p, const struct knobs *k,
                                 size_t i_param)
{
    const struct update_rule *r = rule_of(o);
    struct param_role role = precision_role(&o->precision, graph_value(b->g, p->value), p->frozen);
    enum format states = r->states[0] ? role.states : FORMAT_NONE;
    const struct update_op *found = find_op(r, states, role.master != FORMAT_NONE);
    if (!found) {
        fail_without_op(b, r, states);
        return nothing;
    }
    if (states == FORMAT_FACTORED && pieces_of(p) > MAX_ATTR_INTS) {
        b->status = FAIL(ERR_UNSUPPORTED, "%s: '%s' is stacked of %d tensors; %d can be told apart",
                         r->name, p->name, pieces_of(p), MAX_ATTR_INTS);
        return nothing;
    }
    enum op_id op = found->op;
    value_id in[MAX_INPUTS] = {p->value, p->grad}, factor = take_product(b, &op, &in[1]);
    int n = 2;
    for (int i = 0; i < MAX_STATES && r->states[i]; i++)
        n = update_add_parts(b, r->states[i], p, ROLE_STATE, states, in, n);
    in[n++] = k->lr;
    in[n++] = k->step;
    in[n++] = k->scale;
    if (found->has_master)
        n = update_add_parts(b, "master", p, ROLE_MASTER, role.master, in, n);
    struct attr_set attrs[MAX_ATTRS];
    int n_attrs = r->attrs(o, p, attrs);
    if (factor != VALUE_NONE) {
        in[n++] = factor;
        attrs[n_attrs++] = (struct attr_set){"dtype", .i = graph_value(b->g, p->grad)->dtype};
    }
    attrs[n_attrs++] = (struct attr_set){"weight_decay", .f = p->decay ? o->weight_decay : 0.0};
    attrs[n_attrs++] = (struct attr_set){"seed", .i = update_seed(o, i_param)};
    value_id param = build(b, op, in, n, attrs, n_attrs);
    bool is_f32 = found->has_master && role.master == FORMAT_F32;
    return (struct updated){param, is_f32 ? build_output(b, op_get(op)->n_out - 1) : VALUE_NONE};
}

/* ---- averages -------------------------------------------------------------------------------- */

static struct updated lookahead_build(struct builder *b, const struct optimizer_options *o,
                                      const struct optimizer_param *p, const struct knobs *k,
                                      struct updated u)
{
    value_id in[4] = {u.param};
    bool has_master = u.master != VALUE_NONE;
    int n = update_add_parts(b, "slow", p, ROLE_STATE, FORMAT_F32, in, 1);
    in[n++] = k->step;
    if (has_master)
        in[n++] = u.master;
    u.param = build(b, has_master ? OP_lookahead_master : OP_lookahead, in, n,
                    ATTRS({"period", .i = o->lookahead.period}, {"rate", .f = o->lookahead.rate}));
    u.master = has_master ? build_output(b, 2) : VALUE_NONE;
    return u;
}

static void ema_build(struct builder *b, const struct optimizer_options *o,
                      const struct optimizer_param *p, struct updated u)
{
    value_id in[2];
    int n = update_add_parts(b, "ema", p, ROLE_STATE, FORMAT_F32, in, 0);
    in[n++] = u.master != VALUE_NONE ? u.master : u.param;
    (void)build(b, OP_ema, in, n, ATTRS({"decay", .f = o->ema_decay}));
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The learning rate of this parameter; what learns as all do reads the input itself. */
static value_id lr_of(struct builder *b, const struct optimizer_param *p, struct knobs *k)
{
    if (p->lr_factor == 0.0 || p->lr_factor == 1.0)
        return k->lr;
    for (int i = 0; i < k->n_rates; i++) {
        if (k->rates[i].factor == p->lr_factor)
            return k->rates[i].lr;
    }
    int block = b->block;
    b->block = BLOCK_NONE;
    value_id lr = build(b, OP_scale, IN(k->lr), ATTRS({"factor", .f = p->lr_factor}));
    b->block = block;
    if (k->n_rates < MOST_RATES) {
        k->rates[k->n_rates].factor = p->lr_factor;
        k->rates[k->n_rates++].lr = lr;
    }
    return lr;
}

void update_build(struct builder *b, const struct optimizer_options *o,
                  const struct optimizer_param *p, struct knobs *k, size_t i_param)
{
    if (b->status != OK)
        return;
    const struct knobs own = {.lr = lr_of(b, p, k), .step = k->step, .scale = k->scale};
    bool is_muon = o->kind == OPTIMIZER_MUON && muon_takes(b, p);
    struct updated u =
        is_muon ? muon_build(b, o, p, &own, i_param) : rule_build(b, o, p, &own, i_param);
    if (o->lookahead.period > 0 && b->status == OK)
        u = lookahead_build(b, o, p, k, u);
    if (o->ema_decay > 0 && b->status == OK)
        ema_build(b, o, p, u);
}
