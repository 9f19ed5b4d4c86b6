/* adamw.c: AdamW on the parameter itself, or on its master. */
#include "device/cpu/kernels/adamw_rule.h"
#include "device/cpu/kernels/update.h"

/* The tensors a call changes: what the rule acts on, m, v, and the parameter behind a master. */
struct adamw_streams {
    struct update_stream list[UPDATE_STREAMS];
    int n;
};

static struct adamw_streams streams_of(const struct op_call *c)
{
    struct adamw_streams s = {.n = 3};
    bool master = c->n_in > 7;
    s.list[0] = (struct update_stream){.in = &c->in[master ? 7 : 0],
                                       .out = &c->out[master ? 3 : 0],
                                       .rounding = master ? ROUND_NEAREST : ROUND_PARAM};
    s.list[1] =
        (struct update_stream){.in = &c->in[2], .out = &c->out[1], .rounding = ROUND_STATE1};
    s.list[2] =
        (struct update_stream){.in = &c->in[3], .out = &c->out[2], .rounding = ROUND_STATE2};
    if (master)
        s.list[s.n++] = (struct update_stream){.in = &c->in[0], .out = &c->out[0]};
    return s;
}

static enum status adamw_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    const struct adamw_streams s = streams_of(c);
    const struct adamw rule = adamw_rule(c, 4);
    const struct update u = {
        .streams = s.list,
        .n_streams = s.n,
        .grad = &c->in[1],
        .apply = s.n > 3 ? adamw_master_block : adamw_block,
        .rule = &rule,
        .draw = update_draw_of(c, ADAMW_SEED, 5),
    };
    if (update_is_skipped(&c->in[6]))
        update_copy(s.list, s.n);
    else
        update_run(x, &u);
    return OK;
}

static void adamw_element(const struct op_call *c, const struct adamw_streams *s, int64_t i)
{
    double p = ref_get(s->list[0].in, i), m = ref_get(&c->in[2], i), v = ref_get(&c->in[3], i);
    const struct update_draw draw = update_draw_of(c, ADAMW_SEED, 5);
    adamw_apply(c, 4, ref_get(&c->in[1], i), &p, &m, &v);
    update_set(&s->list[0], i, p, &draw);
    update_set(&s->list[1], i, m, &draw);
    update_set(&s->list[2], i, v, &draw);
    if (s->n > 3)
        ref_set(s->list[3].out, i, ref_get(s->list[0].out, i));
}

static enum status adamw_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    (void)x;
    const struct adamw_streams s = streams_of(c);
    if (update_is_skipped(&c->in[6])) {
        update_copy(s.list, s.n);
        return OK;
    }
    for (int64_t i = 0; i < shape_elems(&c->out[0].shape); i++)
        adamw_element(c, &s, i);
    return OK;
}

const struct kernel cpu_kernels_adamw[] = {
    {"blocked", cpu_declines_f64, NULL, adamw_blocked},
    {"reference", NULL, NULL, adamw_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adamw_master[] = {
    {"blocked", cpu_declines_f64, NULL, adamw_blocked},
    {"reference", NULL, NULL, adamw_reference},
    KERNEL_END,
};
