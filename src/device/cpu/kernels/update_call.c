#include "device/cpu/kernels/update_call.h"

#include <math.h>

#include "base/sanitizer.h"
#include "device/cpu/support/ref.h"
#include "ops/update_support.h"

enum { MOST_STATES = 2 };

/* ---- which tensors a call changes ------------------------------------------------------------ */

/* What the rule acts on, the states, and the parameter behind a master. */
struct call_streams {
    struct update_stream list[UPDATE_STREAMS];
    struct update_codes codes[MOST_STATES];
    int n;
};

static bool is_coded(const struct op_call *c, int n_states)
{
    return n_states > 0 && c->in[2].dtype == DTYPE_U8;
}

int update_lr_input(const struct op_call *c, int n_states)
{
    return 2 + n_states * (is_coded(c, n_states) ? 2 : 1);
}

/* A master is the last of the outputs: the parameter and the states' tensors are as many as there
 * are inputs before lr, but one. */
static bool has_master(const struct op_call *c, int lr)
{
    return c->n_out == lr;
}

/* NULL: the gradient is an input. */
static const struct update_factors *factors_of(const struct op_call *c, int lr,
                                               struct update_factors *f)
{
    int x = lr + 3;
    if (has_master(c, lr) || c->n_in <= x)
        return NULL;
    enum dtype dtype = (enum dtype)call_int(c, CODED_FACTOR_DTYPE);
    *f = (struct update_factors){
        .dy = &c->in[1], .x = &c->in[x], .dtype = dtype == DTYPE_NONE ? c->in[1].dtype : dtype};
    return f;
}

static void add_state(struct call_streams *s, const struct op_call *c, int i, bool coded,
                      const struct dynamic_map *maps)
{
    int in = 2 + i * (coded ? 2 : 1);
    struct update_stream *state = &s->list[s->n++];
    *state = (struct update_stream){.in = &c->in[in], .out = &c->out[in - 1]};
    if (!coded) {
        state->rounding = i == 0 ? ROUND_STATE1 : ROUND_STATE2;
        return;
    }
    s->codes[i] = (struct update_codes){&c->in[in + 1], &c->out[in], &maps[i], i == 0};
    state->codes = &s->codes[i];
}

static void streams_of(struct call_streams *s, const struct op_call *c, int n_states, int lr,
                       struct dynamic_map *maps)
{
    int master = lr + 3;
    bool mastered = has_master(c, lr), coded = is_coded(c, n_states);
    *s = (struct call_streams){.n = 1};
    s->list[0] =
        (struct update_stream){.in = &c->in[0], .out = &c->out[0], .rounding = ROUND_PARAM};
    if (mastered)
        s->list[0] = (struct update_stream){.in = &c->in[master], .out = &c->out[c->n_out - 1]};
    bool split = mastered && c->in[master].dtype == DTYPE_U8;
    if (split) {
        s->list[0].rounding = ROUND_PARAM;
        s->list[0].upper_in = &c->in[0];
        s->list[0].upper_out = &c->out[0];
    }
    for (int i = 0; i < n_states; i++) {
        if (coded)
            maps[i] = dynamic_map_make(i == 0);
        add_state(s, c, i, coded, maps);
    }
    if (mastered && !split)
        s->list[s->n++] =
            (struct update_stream){.in = &c->in[0], .out = &c->out[0], .is_image = true};
}

static struct update_draw draw_of(const struct op_call *c, int lr)
{
    return update_draw_of(c, op_get(c->op)->n_attrs - 1, lr + 1);
}

int64_t update_maps_bytes(const struct op_call *c, const struct kernel_env *env)
{
    (void)c;
    (void)env;
    return MOST_STATES * (int64_t)sizeof(struct dynamic_map);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

enum status update_call_run(const struct kernel_ctx *x, const struct op_call *c, int n_states,
                            int lr, update_rule *apply, const void *rule)
{
    struct call_streams s;
    struct update_factors factors;
    streams_of(&s, c, n_states, lr, x->workspace);
    const struct update u = {
        .streams = s.list,
        .n_streams = s.n,
        .grad = &c->in[1],
        .factors = factors_of(c, lr, &factors),
        .apply = apply,
        .rule = rule,
        .draw = draw_of(c, lr),
    };
    if (update_is_skipped(&c->in[lr + 2]))
        update_copy(s.list, s.n);
    else
        update_run(x, &u);
    return OK;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* The code whose number is nearest to x, by looking at all of them; a negative number keeps its
 * sign. */
static UNSANITIZED uint8_t nearest(const struct update_codes *k, double x)
{
    int best = 0;
    sanitizer_expect(k->map->value, DYNAMIC_CODES * sizeof(*k->map->value));
    for (int code = 1; code < DYNAMIC_CODES; code++) {
        if (fabs(x - (double)k->map->value[code]) < fabs(x - (double)k->map->value[best]))
            best = code;
    }
    return (uint8_t)(k->is_signed && x < 0 && best == DYNAMIC_ZERO ? best - 1 : best);
}

void update_read(const struct update_stream *s, int64_t at, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = ref_get(s->in, at + i);
        if (s->codes)
            x[i] = (double)s->codes->map->value[(int)x[i]] *
                   ref_get(s->codes->absmax_in, at / DYNAMIC_BLOCK);
    }
}

void update_write(const struct update_stream *s, int64_t at, int64_t n, const double *x,
                  const struct update_draw *draw)
{
    double most = 0.0;
    for (int64_t i = 0; i < n && !s->codes; i++)
        update_set(s, at + i, x[i], draw);
    if (!s->codes)
        return;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    ref_set(s->codes->absmax_out, at / DYNAMIC_BLOCK, most);
    bool is_kept = dynamic_inverse((float)most) > 0.0f;
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)s->out->data)[at + i] = nearest(s->codes, is_kept ? x[i] / most : 0.0);
}

struct reference {
    const struct op_call *c;
    struct call_streams streams;
    int n_states, lr;
    update_element *apply;
    const void *rule;
};

/* Elements [at, at + n), at most a block of codes. */
static void reference_block(const struct reference *r, int64_t at, int64_t n)
{
    double x[MOST_STATES][DYNAMIC_BLOCK];
    const struct call_streams *s = &r->streams;
    const struct update_draw draw = draw_of(r->c, r->lr);
    struct update_factors f;
    const struct update_factors *factors = factors_of(r->c, r->lr, &f);
    for (int k = 0; k < r->n_states; k++)
        update_read(&s->list[1 + k], at, n, x[k]);
    for (int64_t i = 0; i < n; i++) {
        double p = update_get(&s->list[0], at + i), state[MOST_STATES] = {0};
        for (int k = 0; k < r->n_states; k++)
            state[k] = x[k][i];
        double grad = factors ? update_factors_get(factors, draw.first_element + at + i)
                              : ref_get(&r->c->in[1], at + i);
        r->apply(r->c, r->rule, at + i, grad, &p, state);
        for (int k = 0; k < r->n_states; k++)
            x[k][i] = state[k];
        update_set(&s->list[0], at + i, p, &draw);
        if (s->n > 1 + r->n_states)
            ref_set(s->list[s->n - 1].out, at + i, ref_get(s->list[0].out, at + i));
    }
    for (int k = 0; k < r->n_states; k++)
        update_write(&s->list[1 + k], at, n, x[k], &draw);
}

enum status update_call_reference(const struct kernel_ctx *x, const struct op_call *c, int n_states,
                                  int lr, update_element *apply, const void *rule)
{
    struct reference r = {.c = c, .n_states = n_states, .lr = lr, .apply = apply, .rule = rule};
    int64_t n = shape_elems(&c->in[0].shape);
    streams_of(&r.streams, c, n_states, lr, x->workspace);
    if (update_is_skipped(&c->in[lr + 2])) {
        update_copy(r.streams.list, r.streams.n);
        return OK;
    }
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK)
        reference_block(&r, at, MIN((int64_t)DYNAMIC_BLOCK, n - at));
    return OK;
}
