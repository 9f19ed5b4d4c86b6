#include "support/activation_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "device/cpu/support/ref.h"
#include "support/device_call.h"
#include "support/raw_copy.h"

static const int64_t arena_bytes = (int64_t)192 << 20;

struct activation_case {
    bool gelu, approximate,
        accumulates; /* not gelu: a gate, of gelu when approximate, or of silu */
    bool f32_bias;
    int64_t n_rows, width; /* of y */
    enum dtype dtype;
    int shift;     /* elements between the operands of the op that does both and an aligned place */
    bool in_place; /* its dx over x, its y over dy */
};

struct bench {
    struct device *d;
    const struct activation_case *c;
    int i_kernel; /* in the lists of all three ops */
    char *arena;
    int64_t n_taken;
};

/* ---- operands -------------------------------------------------------------------------------- */

static void copy(struct device *d, void *dst, const void *src, int64_t n_bytes)
{
    raw_copy(d, QUEUE_COMPUTE, dst, src, n_bytes);
    assert_int_equal(d->ops->sync(d), OK);
}

/* Like `host` on the device, `shift` elements behind an aligned place. */
static struct tensor placed(struct bench *b, const struct tensor *host, int shift)
{
    struct tensor t = *host;
    t.data = b->arena + b->n_taken + shift * dtype_size(t.dtype);
    b->n_taken += align_up(tensor_bytes(&t) + 64, ARENA_ALIGN);
    assert_true(b->n_taken <= arena_bytes);
    copy(b->d, t.data, host->data, tensor_bytes(&t));
    return t;
}

static struct tensor fresh(struct bench *b, enum dtype dtype, struct shape shape, int shift)
{
    struct tensor host = host_tensor(dtype, shape);
    memset(host.data, 0xff, (size_t)tensor_bytes(&host));
    struct tensor t = placed(b, &host, shift);
    mem_free(host.data);
    return t;
}

/* Mostly ordinary numbers, some far out, where exponentials vanish. */
static struct tensor numbers(enum dtype dtype, struct shape shape, uint64_t seed)
{
    struct tensor t = host_random(dtype, shape, seed);
    for (int64_t i = 0; i < shape_elems(&t.shape); i += 7)
        ref_set(&t, i, ref_get(&t, i) * (i % 3 == 0 ? 60.0 : 5.0));
    return t;
}

/* An activation, its gradient, and both at once. */
struct activation_ops {
    enum op_id forward, grad, both;
};

static struct activation_ops ops_of(const struct activation_case *c)
{
    static const struct activation_ops gelu = {OP_gelu_bias, OP_gelu_bias_grad,
                                               OP_gelu_bias_with_grad},
                                       silu_gate = {OP_silu_gate, OP_silu_gate_grad,
                                                    OP_silu_gate_with_grad},
                                       gelu_gate = {OP_gelu_gate, OP_gelu_gate_grad,
                                                    OP_gelu_gate_with_grad};
    return c->gelu ? gelu : c->approximate ? gelu_gate : silu_gate;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* false: the kernel does not take the call. */
static bool run(struct bench *b, enum op_id op, const struct tensor *in, int n_in,
                struct tensor *out, int n_out)
{
    struct attr attrs[2] = {{.i = b->c->approximate}, {.i = out[n_out > 1 ? 1 : 0].dtype}};
    struct op_call call = {
        .op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
    const struct kernel *k = &b->d->ops->kernels(op)[b->i_kernel];
    if (k->declines && k->declines(&call, &b->d->env))
        return false;
    int64_t n_bytes = k->workspace ? k->workspace(&call, &b->d->env) : 0;
    struct kernel_ctx x = {.env = b->d->env,
                           .workspace = b->arena + b->n_taken,
                           .queue =
                               b->d->ops->queue ? b->d->ops->queue(b->d, QUEUE_COMPUTE) : NULL};
    assert_true(b->n_taken + n_bytes <= arena_bytes);
    assert_int_equal(k->run(&x, &call), OK);
    assert_int_equal(b->d->ops->sync(b->d), OK);
    return true;
}

static bool same_bits(struct bench *b, const struct tensor *one, const struct tensor *other,
                      const char *what)
{
    const struct activation_case *c = b->c;
    struct tensor x = host_tensor(one->dtype, one->shape), y = host_tensor(one->dtype, one->shape);
    copy(b->d, x.data, one->data, tensor_bytes(one));
    copy(b->d, y.data, other->data, tensor_bytes(other));
    bool same = memcmp(x.data, y.data, (size_t)tensor_bytes(&x)) == 0;
    for (int64_t i = 0; !same && i < shape_elems(&x.shape); i++) {
        if (ref_get(&x, i) == ref_get(&y, i))
            continue;
        print_error("%s%s %s[%lld,%lld] shift %d%s kernel %d: %s, element %lld is %.9g, not %.9g\n",
                    c->gelu ? "gelu_bias" : "gate", c->approximate ? " approximate" : "",
                    dtype_name(c->dtype), (long long)c->n_rows, (long long)c->width, c->shift,
                    c->in_place ? " in place" : "", b->i_kernel, what, (long long)i, ref_get(&y, i),
                    ref_get(&x, i));
        break;
    }
    mem_free(x.data);
    mem_free(y.data);
    return same;
}

static bool check_gelu(struct bench *b)
{
    const struct activation_case *c = b->c;
    enum dtype wide = dtype_accumulator(c->dtype);
    struct shape all = shape_of(2, c->n_rows, c->width), row = shape_of(1, c->width);
    struct tensor host[4] = {numbers(c->dtype, all, 1), numbers(c->dtype, all, 2),
                             host_random(c->f32_bias ? wide : c->dtype, row, 3),
                             host_random(wide, row, 4)};
    int n_in = c->accumulates ? 4 : 3;
    struct tensor apart[4], both[4], y, grads[2], made[3];
    for (int i = 0; i < 4; i++) {
        apart[i] = placed(b, &host[i], 0);
        both[i] = placed(b, &host[i], c->shift);
        mem_free(host[i].data);
    }
    y = fresh(b, c->dtype, all, 0);
    grads[0] = fresh(b, c->dtype, all, 0);
    grads[1] = c->accumulates ? apart[3] : fresh(b, wide, row, 0);
    made[0] = c->in_place ? both[1] : fresh(b, c->dtype, all, c->shift);
    made[1] = c->accumulates ? both[3] : fresh(b, wide, row, 0);
    made[2] = c->in_place ? both[0] : fresh(b, c->dtype, all, c->shift);
    if (!run(b, OP_gelu_bias, apart + 1, 2, &y, 1))
        return true;
    assert_true(run(b, OP_gelu_bias_grad, apart, n_in, grads, 2));
    assert_true(run(b, OP_gelu_bias_with_grad, both, n_in, made, 3));
    return same_bits(b, &grads[0], &made[0], "dx") && same_bits(b, &grads[1], &made[1], "dbias") &&
           same_bits(b, &y, &made[2], "y");
}

static bool check_gate(struct bench *b)
{
    const struct activation_case *c = b->c;
    struct shape all = shape_of(2, c->n_rows, c->width),
                 pairs = shape_of(2, c->n_rows, 2 * c->width);
    struct tensor host[2] = {numbers(c->dtype, all, 1), numbers(c->dtype, pairs, 2)};
    struct tensor apart[2], both[2], y, dx, made[2];
    for (int i = 0; i < 2; i++) {
        apart[i] = placed(b, &host[i], 0);
        both[i] = placed(b, &host[i], c->shift);
        mem_free(host[i].data);
    }
    y = fresh(b, c->dtype, all, 0);
    dx = fresh(b, c->dtype, pairs, 0);
    made[0] = c->in_place ? both[1] : fresh(b, c->dtype, pairs, c->shift);
    made[1] = c->in_place ? both[0] : fresh(b, c->dtype, all, c->shift);
    struct activation_ops ops = ops_of(c);
    if (!run(b, ops.forward, apart + 1, 1, &y, 1))
        return true;
    assert_true(run(b, ops.grad, apart, 2, &dx, 1));
    assert_true(run(b, ops.both, both, 2, made, 2));
    return same_bits(b, &dx, &made[0], "dx") && same_bits(b, &y, &made[1], "y");
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int check_kernels(struct bench *b)
{
    enum op_id op = ops_of(b->c).both;
    int n_bad = 0;
    for (b->i_kernel = 0; b->d->ops->kernels(op)[b->i_kernel].name; b->i_kernel++) {
        b->n_taken = 0;
        n_bad += b->c->gelu ? !check_gelu(b) : !check_gate(b);
    }
    return n_bad;
}

int activation_calls_check(struct device *d)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {7, 64}, {260, 40}, {5, 1026}, {1001, 72}};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    struct bench b = {.d = d, .arena = device_call_alloc(d, arena_bytes)};
    int n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes) * ARRAY_LEN(dtypes); i++) {
        const int64_t *size = sizes[i / ARRAY_LEN(dtypes)];
        for (int way = 0; way < 64; way++) {
            struct activation_case c = {.n_rows = size[0],
                                        .width = size[1],
                                        .dtype = dtypes[i % ARRAY_LEN(dtypes)],
                                        .shift = way & 1,
                                        .in_place = way & 2,
                                        .gelu = way & 4,
                                        .approximate = way & 8,
                                        .accumulates = way & 16,
                                        .f32_bias = way & 32};
            b.c = &c;
            bool differs =
                c.gelu ? c.dtype != DTYPE_F32 || !c.f32_bias : way < 4 || (way >= 8 && way < 12);
            if (differs) /* from another way */
                n_bad += check_kernels(&b);
        }
    }
    device_call_free(d, b.arena, arena_bytes);
    return n_bad;
}
