/* adamw_8bit.c: AdamW with states in 8-bit codes, on the parameter itself or on its master. */
#include "device/cpu/kernels/adamw_rule.h"
#include "device/cpu/kernels/codes.h"
#include "device/cpu/kernels/update.h"

/* The tensors a call changes: what the rule acts on, m, v, and the parameter behind a master. */
struct coded_streams {
    struct update_stream list[UPDATE_STREAMS];
    struct update_codes m, v;
    int n;
};

static void streams_of(struct coded_streams *s, const struct op_call *c,
                       const struct dynamic_map *maps)
{
    bool master = c->n_in > CODED_MASTER;
    *s = (struct coded_streams){
        .m = {&c->in[CODED_M + 1], &c->out[2], &maps[0], true},
        .v = {&c->in[CODED_V + 1], &c->out[4], &maps[1], false},
        .n = master ? 4 : 3,
    };
    s->list[0] = (struct update_stream){.in = &c->in[master ? CODED_MASTER : 0],
                                        .out = &c->out[master ? 5 : 0],
                                        .rounding = master ? ROUND_NEAREST : ROUND_PARAM};
    s->list[1] = (struct update_stream){.in = &c->in[CODED_M], .out = &c->out[1], .codes = &s->m};
    s->list[2] = (struct update_stream){.in = &c->in[CODED_V], .out = &c->out[3], .codes = &s->v};
    s->list[3] = (struct update_stream){.in = &c->in[0], .out = &c->out[0]};
}

/* Tables are made at every call, in a few microseconds: kernels keep nothing. */
static int64_t maps_bytes(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return 2 * (int64_t)sizeof(struct dynamic_map);
}

static enum status coded_blocked(const struct kernel_ctx *x, const struct op_call *c)
{
    struct coded_streams s;
    struct dynamic_map *maps = x->workspace;
    const struct adamw rule = adamw_rule(c, CODED_LR);
    maps[0] = dynamic_map_make(true);
    maps[1] = dynamic_map_make(false);
    streams_of(&s, c, maps);
    const struct update u = {
        .streams = s.list,
        .n_streams = s.n,
        .grad = &c->in[1],
        .apply = s.n > 3 ? adamw_master_block : adamw_block,
        .rule = &rule,
        .draw = update_draw_of(c, ADAMW_SEED, CODED_STEP),
    };
    if (update_is_skipped(&c->in[CODED_SCALE]))
        update_copy(s.list, s.n);
    else
        update_run(x, &u);
    return OK;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* The code whose number is nearest to x, by looking at all of them; a negative number keeps its
 * sign. */
static uint8_t nearest(const struct update_codes *k, double x)
{
    int best = 0;
    for (int code = 1; code < DYNAMIC_CODES; code++) {
        if (fabs(x - (double)k->map->value[code]) < fabs(x - (double)k->map->value[best]))
            best = code;
    }
    return (uint8_t)(k->is_signed && x < 0 && best == DYNAMIC_ZERO ? best - 1 : best);
}

static void decode_reference(const struct update_stream *s, int64_t at, int64_t n, double *x)
{
    const uint8_t *codes = (const uint8_t *)s->in->data + at;
    double scale = ref_get(s->codes->absmax_in, at / DYNAMIC_BLOCK);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)s->codes->map->value[codes[i]] * scale;
}

static void encode_reference(const struct update_stream *s, int64_t at, int64_t n, const double *x)
{
    uint8_t *codes = (uint8_t *)s->out->data + at;
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    ref_set(s->codes->absmax_out, at / DYNAMIC_BLOCK, most);
    bool is_kept = dynamic_inverse((float)most) > 0.0f;
    for (int64_t i = 0; i < n; i++)
        codes[i] = nearest(s->codes, is_kept ? x[i] / most : 0.0);
}

static void reference_block(const struct op_call *c, const struct coded_streams *s, int64_t at,
                            int64_t n)
{
    double m[DYNAMIC_BLOCK], v[DYNAMIC_BLOCK];
    const struct update_draw draw = update_draw_of(c, ADAMW_SEED, CODED_STEP);
    decode_reference(&s->list[1], at, n, m);
    decode_reference(&s->list[2], at, n, v);
    for (int64_t i = 0; i < n; i++) {
        double p = ref_get(s->list[0].in, at + i);
        adamw_apply(c, CODED_LR, ref_get(&c->in[1], at + i), &p, &m[i], &v[i]);
        update_set(&s->list[0], at + i, p, &draw);
        if (s->n > 3)
            ref_set(s->list[3].out, at + i, ref_get(s->list[0].out, at + i));
    }
    encode_reference(&s->list[1], at, n, m);
    encode_reference(&s->list[2], at, n, v);
}

static enum status coded_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    struct coded_streams s;
    struct dynamic_map *maps = x->workspace;
    int64_t n = shape_elems(&c->in[0].shape);
    maps[0] = dynamic_map_make(true);
    maps[1] = dynamic_map_make(false);
    streams_of(&s, c, maps);
    if (update_is_skipped(&c->in[CODED_SCALE])) {
        update_copy(s.list, s.n);
        return OK;
    }
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK)
        reference_block(c, &s, at, MIN((int64_t)DYNAMIC_BLOCK, n - at));
    return OK;
}

const struct kernel cpu_kernels_adamw_8bit[] = {
    {"blocked", cpu_declines_f64, maps_bytes, coded_blocked},
    {"reference", NULL, maps_bytes, coded_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adamw_8bit_master[] = {
    {"blocked", cpu_declines_f64, maps_bytes, coded_blocked},
    {"reference", NULL, maps_bytes, coded_reference},
    KERNEL_END,
};
