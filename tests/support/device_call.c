#include "support/device_call.h"
#include "support/raw_copy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/support/ref.h"

/* ---- host ------------------------------------------------------------------------------------ */

void host_call_bind(struct host_call *h, enum op_id op, int n_in, int n_out)
{
    h->call = (struct op_call){
        .op = op, .n_in = n_in, .n_out = n_out, .in = h->in, .out = h->out, .attrs = h->attrs};
}

void host_call_release(struct host_call *h)
{
    for (int i = 0; i < CALL_MAX_TENSORS; i++) {
        mem_free(h->in[i].data);
        mem_free(h->out[i].data);
    }
}

struct tensor host_tensor(enum dtype dtype, struct shape shape)
{
    struct tensor t = {dtype, shape, NULL};
    t.data = mem_calloc(1, (size_t)tensor_bytes(&t) + 64);
    assert_non_null(t.data);
    return t;
}

struct tensor host_random(enum dtype dtype, struct shape shape, uint64_t seed)
{
    struct tensor t = host_tensor(dtype, shape);
    for (int64_t i = 0; i < shape_elems(&t.shape); i++) {
        struct philox4 p = philox(seed, 0, (uint64_t)i);
        float x, y;
        rng_normal2(p.v[0], p.v[1], &x, &y);
        ref_set(&t, i, (double)x);
    }
    return t;
}

void host_widen(struct tensor *wide, const struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        wide[i] = host_tensor(DTYPE_F64, t[i].shape);
}

void host_narrow(struct tensor *t, const struct tensor *wide)
{
    for (int64_t i = 0; i < shape_elems(&t->shape); i++)
        ref_set(t, i, ref_get(wide, i));
}

static const struct kernel *reference_of(enum op_id op)
{
    const struct kernel *k = cpu_kernels(op);
    while (k[1].name)
        k++;
    return k;
}

void host_run_reference(const struct op_call *c)
{
    const struct kernel *k = reference_of(c->op);
    struct kernel_ctx x = {.env = {.n_threads = 1}};
    int64_t n_bytes = k->workspace ? k->workspace(c, &x.env) : 0;
    x.workspace = mem_calloc(1, (size_t)n_bytes + 64);
    assert_non_null(x.workspace);
    assert_int_equal(k->run(&x, c), OK);
    mem_free(x.workspace);
}

/* ---- device ---------------------------------------------------------------------------------- */

void *device_call_alloc(struct device *d, int64_t n_bytes)
{
    void *p = NULL;
    assert_int_equal(d->ops->memory_alloc(d, TIER_DEVICE, n_bytes + ARENA_ALIGN, &p), OK);
    return p;
}

void device_call_free(struct device *d, void *p, int64_t n_bytes)
{
    d->ops->memory_free(d, TIER_DEVICE, p, n_bytes + ARENA_ALIGN);
}

static void copy(struct device *d, void *dst, const void *src, int64_t n_bytes)
{
    if (n_bytes > 0)
        raw_copy(d, QUEUE_COMPUTE, dst, src, n_bytes);
    assert_int_equal(d->ops->sync(d), OK);
}

void device_call_open(struct device_call *g, struct device *d, const struct op_call *c,
                      const struct kernel *k)
{
    *g = (struct device_call){.device = d, .call = *c};
    for (int i = 0; i < c->n_in; i++) {
        g->in[i] = c->in[i];
        g->in[i].data = device_call_alloc(d, tensor_bytes(&c->in[i]));
        copy(d, g->in[i].data, c->in[i].data, tensor_bytes(&c->in[i]));
    }
    for (int i = 0; i < c->n_out; i++) {
        int64_t n_bytes = tensor_bytes(&c->out[i]);
        void *poison = mem_alloc((size_t)n_bytes + 64);
        assert_non_null(poison);
        memset(poison, 0xff, (size_t)n_bytes);
        g->out[i] = c->out[i];
        g->out[i].data = device_call_alloc(d, n_bytes);
        copy(d, g->out[i].data, poison, n_bytes);
        mem_free(poison);
    }
    g->call.in = g->in;
    g->call.out = g->out;
    g->n_workspace = k->workspace ? k->workspace(&g->call, &d->env) : 0;
    g->workspace = device_call_alloc(d, g->n_workspace);
}

enum status device_call_run(struct device_call *g, const struct kernel *k)
{
    struct kernel_ctx x = {.env = g->device->env,
                           .workspace = g->workspace,
                           .queue = g->device->ops->queue(g->device, QUEUE_COMPUTE)};
    return k->run(&x, &g->call);
}

void device_call_close(struct device_call *g)
{
    for (int i = 0; i < g->call.n_in; i++)
        device_call_free(g->device, g->in[i].data, tensor_bytes(&g->in[i]));
    for (int i = 0; i < g->call.n_out; i++)
        device_call_free(g->device, g->out[i].data, tensor_bytes(&g->out[i]));
    device_call_free(g->device, g->workspace, g->n_workspace);
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Largest error over the largest value; infinite where a NaN shows. */
static double error_of(const struct tensor *got, const struct tensor *want)
{
    double worst = 0.0, size = 1e-30;
    for (int64_t i = 0; i < shape_elems(&want->shape); i++) {
        double error = fabs(ref_get(got, i) - ref_get(want, i));
        worst = error <= worst ? worst : isnan(error) ? (double)INFINITY : error;
        size = fmax(size, fabs(ref_get(want, i)));
    }
    return worst / size;
}

/* The outputs after one run; false when it failed. */
static bool run_once(struct device_call *g, device_call_way *f, void *data, struct tensor *got,
                     const char *label)
{
    struct device *d = g->device;
    if (f(data) != OK || d->ops->sync(d) != OK) {
        print_error("%s: %s\n", label, status_message());
        return false;
    }
    for (int i = 0; i < g->call.n_out; i++) {
        got[i] = host_tensor(g->out[i].dtype, g->out[i].shape);
        copy(d, got[i].data, g->out[i].data, tensor_bytes(&got[i]));
    }
    return true;
}

bool device_call_agrees(struct device_call *g, device_call_way *f, void *data,
                        const struct tensor *want, double limit, const char *label)
{
    struct tensor first[CALL_MAX_TENSORS] = {0}, second[CALL_MAX_TENSORS] = {0};
    bool good = run_once(g, f, data, first, label) && run_once(g, f, data, second, label);
    for (int i = 0; i < g->call.n_out && good; i++) {
        double error = error_of(&first[i], &want[i]);
        bool same = memcmp(first[i].data, second[i].data, (size_t)tensor_bytes(&first[i])) == 0;
        if (error > limit || !same)
            print_error("%s: output %d error %.2e (limit %.1e)%s\n", label, i, error, limit,
                        same ? "" : ", and other bits the second time");
        good = error <= limit && same;
    }
    for (int i = 0; i < g->call.n_out; i++) {
        mem_free(first[i].data);
        mem_free(second[i].data);
    }
    return good;
}

struct kernel_call {
    struct device_call *g;
    const struct kernel *k;
};

static enum status run_kernel(void *data)
{
    struct kernel_call *t = data;
    return device_call_run(t->g, t->k);
}

int device_call_check_kernels(struct device *d, const struct kernel *list, const struct op_call *c,
                              const struct tensor *want, double limit, const char *label)
{
    int n_bad = 0;
    for (const struct kernel *k = list; k->name; k++) {
        struct device_call g;
        struct kernel_call t = {&g, k};
        char name[192];
        if (k->declines && k->declines(c, &d->env))
            continue;
        (void)snprintf(name, sizeof name, "%s %s", label, k->name);
        device_call_open(&g, d, c, k);
        n_bad += !device_call_agrees(&g, run_kernel, &t, want, limit, name);
        device_call_close(&g);
    }
    return n_bad;
}
