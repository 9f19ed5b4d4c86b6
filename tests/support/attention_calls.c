#include "support/attention_calls.h"

#include <stdio.h>

#include "base/alloc.h"

void attention_attrs(struct host_call *h, const struct attention_case *s)
{
    h->attrs[0].i = s->heads;
    h->attrs[1].i = s->kv_heads;
    h->attrs[2].i = s->head_dim;
    h->attrs[3].i = s->causal;
    h->attrs[4].i = s->window;
    h->attrs[5].f = s->scale;
    h->attrs[6].f = s->dropout;
    h->attrs[7].i = 5;
    h->attrs[8].f = s->softcap;
}

double attention_limit(enum dtype d)
{
    return d == DTYPE_F32 ? 1e-5 : d == DTYPE_F16 ? 1e-3 : 8e-3;
}

static struct tensor random_state(void)
{
    struct tensor t = host_tensor(DTYPE_I64, shape_of(1, (int64_t)2));
    ((int64_t *)t.data)[0] = INT64_C(0x123456789abcdef);
    ((int64_t *)t.data)[1] = 41;
    return t;
}

/* Places in samples whose lengths differ: the first row begins with one of a single token. */
static struct tensor positions_of(const struct attention_case *s, int sample)
{
    struct tensor t = host_tensor(DTYPE_I32, shape_of(2, s->batch, s->tokens));
    int64_t left = 1, n_samples = 0;
    for (int64_t i = 0, place = 0; i < s->batch * s->tokens; i++, left--, place++) {
        if (i % s->tokens == 0 || left == 0) {
            left = i == 0 ? 1 : 1 + (n_samples * 7 + 3) % (2 * sample);
            n_samples++;
            place = 0;
        }
        ((int32_t *)t.data)[i] = (int32_t)place;
    }
    return t;
}

static void open_forward(struct host_call *h, const struct attention_case *s, enum dtype dtype,
                         int sample)
{
    int64_t width = (s->heads + 2 * s->kv_heads) * s->head_dim;
    attention_attrs(h, s);
    h->in[0] = host_random(dtype, shape_of(3, s->batch, s->tokens, width), 7);
    h->out[0] = host_tensor(dtype, shape_of(3, s->batch, s->tokens, s->heads * s->head_dim));
    h->out[1] = host_tensor(DTYPE_F32, shape_of(3, s->batch, s->heads, s->tokens));
    h->in[1] = random_state();
    if (sample > 0)
        h->in[2] = positions_of(s, sample);
    host_call_bind(h, OP_attention, sample > 0 ? 3 : 2, 2);
}

static void run_wide(const struct op_call *c, struct tensor *wide)
{
    struct op_call reference = *c;
    host_widen(wide, c->out, c->n_out);
    reference.out = wide;
    host_run_reference(&reference);
}

void attention_calls_open(struct attention_calls *t, const struct attention_case *s,
                          enum dtype dtype)
{
    attention_calls_open_packed(t, s, dtype, 0);
}

void attention_calls_open_packed(struct attention_calls *t, const struct attention_case *s,
                                 enum dtype dtype, int sample)
{
    struct host_call *f = &t->forward, *b = &t->backward;
    *t = (struct attention_calls){0};
    (void)snprintf(t->label, sizeof t->label,
                   "B%lld T%lld H%lld KV%lld D%lld window %lld%s dropout %g cap %g samples %d %s",
                   (long long)s->batch, (long long)s->tokens, (long long)s->heads,
                   (long long)s->kv_heads, (long long)s->head_dim, (long long)s->window,
                   s->causal ? "" : " full", s->dropout, s->softcap, sample, dtype_name(dtype));
    open_forward(f, s, dtype, sample);
    run_wide(&f->call, t->want);

    attention_attrs(b, s);
    b->in[0] = host_random(dtype, f->out[0].shape, 8);
    b->in[1] = f->in[0];
    b->in[2] = f->out[0];
    b->in[3] = f->out[1];
    host_narrow(&b->in[2], &t->want[0]);
    host_narrow(&b->in[3], &t->want[1]);
    b->out[0] = host_tensor(dtype, f->in[0].shape);
    b->in[4] = f->in[1];
    b->in[5] = f->in[2];
    host_call_bind(b, OP_attention_grad, sample > 0 ? 6 : 5, 1);
    run_wide(&b->call, &t->want_grad);
}

void attention_calls_close(struct attention_calls *t)
{
    mem_free(t->backward.in[0].data); /* the others are the forward call's */
    mem_free(t->backward.out[0].data);
    mem_free(t->want[0].data);
    mem_free(t->want[1].data);
    mem_free(t->want_grad.data);
    host_call_release(&t->forward);
}
