#include "support/apart_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/cpu/cpu_kernels.h"

static const struct device_ops *cpu; /* of the device that was made into an apart one */

/* ---- memory ---------------------------------------------------------------------------------- */

/* Of the device tier, two while programs change; base NULL: none. */
static struct memory arenas[2];

static void protect(int how)
{
    for (int i = 0; i < 2; i++) {
        if (arenas[i].base)
            assert_int_equal(mprotect(arenas[i].base, (size_t)arenas[i].n_bytes, how), 0);
    }
}

static int fails_in, n_failures; /* of apart_fail_allocations */

void apart_fail_allocations(int nth, int n)
{
    fails_in = nth;
    n_failures = n;
}

static bool is_refused(enum tier t)
{
    if (t != TIER_DEVICE || n_failures == 0 || (fails_in > 1 && fails_in--))
        return false;
    n_failures--;
    return true;
}

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    if (n_bytes > 0 && is_refused(t))
        return FAIL(ERR_FIT, "no device memory: made up");
    TRY(cpu->memory_alloc(d, t, n_bytes, out));
    if (t != TIER_DEVICE || !*out)
        return OK;
    struct memory *m = &arenas[arenas[0].base != NULL];
    assert_null(m->base);
    *m = (struct memory){t, *out, n_bytes};
    protect(PROT_NONE);
    return OK;
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    for (int i = 0; i < 2; i++) {
        if (t == TIER_DEVICE && arenas[i].base == p)
            arenas[i].base = NULL;
    }
    cpu->memory_free(d, t, p, n_bytes);
}

static enum status copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes)
{
    protect(PROT_READ | PROT_WRITE);
    enum status status = cpu->copy(d, q, to, from, n_bytes);
    protect(PROT_NONE);
    return status;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* A kernel is a function without a place for the one it stands for: there is one of these for each
 * place in a list. */
static enum status run_kernel(int i, const struct kernel_ctx *x, const struct op_call *c)
{
    protect(PROT_READ | PROT_WRITE);
    enum status status = cpu_kernels(c->op)[i].run(x, c);
    protect(PROT_NONE);
    return status;
}

#define PLACES(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

#define DEFINE_RUN(i)                                                                      \
    static enum status run_kernel_##i(const struct kernel_ctx *x, const struct op_call *c) \
    {                                                                                      \
        return run_kernel(i, x, c);                                                        \
    }
PLACES(DEFINE_RUN)

#define NAME_RUN(i) run_kernel_##i,
static enum status (*const runs[])(const struct kernel_ctx *,
                                   const struct op_call *) = {PLACES(NAME_RUN)};

static struct kernel lists[OP_COUNT][ARRAY_LEN(runs) + 1];

/* Before anything asks: a thread that plans ahead reads them while the run does. */
static void list_kernels(enum op_id op)
{
    const struct kernel *own = cpu_kernels(op);
    for (size_t i = 0; own && own[i].name; i++) {
        assert_true(i < ARRAY_LEN(runs));
        lists[op][i] = own[i];
        lists[op][i].run = runs[i];
    }
}

static const struct kernel *kernels(enum op_id op)
{
    return cpu_kernels(op) ? lists[op] : NULL;
}

/* As on a GPU: what the process takes of it when it is first opened, and no more from then on. */
static int64_t at_opening;

static int64_t context_bytes(struct device *d)
{
    (void)d;
    return at_opening;
}

int64_t apart_staging_bytes;

void apart_device_make(struct device *d)
{
    static struct device_ops ops;
    cpu = d->ops;
    ops = *cpu;
    ops.memory_is_apart = true;
    ops.memory_alloc = memory_alloc;
    ops.memory_free = memory_free;
    ops.copy = copy;
    ops.context_bytes = context_bytes;
    if (at_opening == 0)
        at_opening = cpu->context_bytes(d);
    for (int op = 0; op < OP_COUNT; op++)
        list_kernels((enum op_id)op);
    ops.kernels = kernels;
    ops.fill = NULL; /* kernels are not timed */
    ops.time_calls = NULL;
    d->ops = &ops;
    d->staging_bytes = apart_staging_bytes;
}
