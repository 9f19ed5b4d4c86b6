#include "device/calibrate.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/str.h"
#include "device/disk/disk.h"

enum { ROUNDS = 3, COPY_BYTES = 64 << 20, DISK_BYTES = 1 << 30, WIDTH = 1024 };
#define LONGEST_S 0.1 /* of one call */
#define FAR_APART 0.1 /* rounds of a rate that is worth keeping */

/* ---- rounds ---------------------------------------------------------------------------------- */

struct rounds {
    double best, worst; /* seconds */
    bool disturbed;
};

static void add_round(struct rounds *r, double seconds, bool disturbed)
{
    r->best = r->best > 0 ? MIN(r->best, seconds) : seconds;
    r->worst = MAX(r->worst, seconds);
    r->disturbed = r->disturbed || disturbed;
}

static struct calibration *add_row(struct calibrations *out, double work, bool is_flops,
                                   const struct rounds *r)
{
    struct calibration *c = &out->rows[out->n];
    if (out->n == CALIBRATIONS_MOST || !(r->best > 0))
        return NULL;
    out->n++;
    *c = (struct calibration){.is_flops = is_flops,
                              .rate = work / r->best,
                              .spread = r->worst / r->best - 1.0,
                              .when = (int64_t)time(NULL)};
    c->disturbed = r->disturbed || c->spread > FAR_APART;
    return c;
}

/* ---- products and memory --------------------------------------------------------------------- */

/* A call over memory of its own. */
struct work {
    struct op_call call;
    struct tensor in[2], out[1];
    struct attr attrs[2];
    int64_t n_bytes;
};

static void make_work(struct work *w, enum op_id op, enum dtype dtype, int64_t n_rows)
{
    bool product = op == OP_linear;
    struct tensor x = {dtype, shape_of(2, n_rows, (int64_t)WIDTH), NULL}, weight = x;
    if (product)
        weight.shape = shape_of(2, (int64_t)WIDTH, (int64_t)WIDTH);
    *w = (struct work){.in = {x, weight}, .out = {x}};
    w->call = (struct op_call){
        .op = op, .n_in = 2, .n_out = 1, .in = w->in, .out = w->out, .attrs = w->attrs};
    w->n_bytes =
        align_up(tensor_bytes(&x), ARENA_ALIGN) * 2 + align_up(tensor_bytes(&weight), ARENA_ALIGN);
}

static enum status place_work(struct work *w, struct device *d, char *at)
{
    struct tensor *all[3] = {&w->in[0], &w->in[1], &w->out[0]};
    for (int i = 0; i < 3; i++) {
        all[i]->data = at;
        at += align_up(tensor_bytes(all[i]), ARENA_ALIGN);
        TRY(d->ops->fill(d, all[i], (struct index_rule){0}));
    }
    return OK;
}

static enum status time_work(struct device *d, struct work *w, struct rounds *r)
{
    const struct kernel *k = kernel_pick(d->ops->kernels(w->call.op), &w->call, &d->env, NULL);
    int64_t n_workspace = k && k->workspace ? k->workspace(&w->call, &d->env) : 0;
    int64_t n_bytes = w->n_bytes + align_up(n_workspace, ARENA_ALIGN);
    void *memory;
    enum status status;
    if (!k)
        return FAIL(ERR_INTERNAL, "%s has no kernel on %s", op_get(w->call.op)->name,
                    d->description);
    TRY(d->ops->memory_alloc(d, TIER_DEVICE, n_bytes, &memory));
    TRY_GOTO(place_work(w, d, memory), out);
    struct kernel_ctx x = {.env = d->env, .workspace = (char *)memory + w->n_bytes};
    struct timed_calls calls = {.kernel = k, .contexts = &x, .calls = &w->call, .n = 1};
    for (int i = 0; i < ROUNDS; i++) {
        struct call_time found;
        TRY_GOTO(d->ops->time_calls(d, &calls, &found), out);
        add_round(r, found.seconds, found.disturbed);
    }
out:
    d->ops->memory_free(d, TIER_DEVICE, memory, n_bytes);
    return status;
}

static enum status calibrate_products(struct device *d, enum dtype dtype, struct calibrations *out)
{
    static const int64_t rows[] = {256, 1024, 4096, 16384};
    const struct calibration *before = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct work w;
        struct rounds r = {0};
        make_work(&w, OP_linear, dtype, rows[i]);
        double flops = 2.0 * (double)rows[i] * WIDTH * WIDTH;
        bool too_long = before && flops / before->rate > LONGEST_S;
        if (!too_long)
            TRY(time_work(d, &w, &r));
        struct calibration *c =
            too_long ? add_row(out, before->rate, true, &(struct rounds){.best = 1, .worst = 1})
                     : add_row(out, flops, true, &r);
        if (!c)
            continue;
        c->is_guessed = too_long;
        c->disturbed = c->disturbed || (too_long && before->disturbed);
        (void)snprintf(c->name, sizeof(c->name), "product %lld x %d x %d, %s", (long long)rows[i],
                       WIDTH, WIDTH, dtype_name(dtype));
        before = c;
    }
    return OK;
}

static enum status calibrate_memory(struct device *d, struct calibrations *out)
{
    struct work w;
    struct rounds r = {0};
    make_work(&w, OP_add, DTYPE_F32, 8192);
    TRY(time_work(d, &w, &r));
    struct calibration *c = add_row(out, 3.0 * (double)tensor_bytes(&w.in[0]), false, &r);
    if (c)
        (void)snprintf(c->name, sizeof(c->name), "memory, read and written");
    return OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static enum status copy_once(struct device *d, const struct memory *device,
                             const struct memory *host, bool in, bool out, double *seconds)
{
    double start = now_s();
    if (in)
        TRY(device_copy(d, QUEUE_IN, (struct place){device, 0}, (struct place){host, 0},
                        COPY_BYTES));
    if (out)
        TRY(device_copy(d, QUEUE_OUT, (struct place){host, COPY_BYTES},
                        (struct place){device, COPY_BYTES}, COPY_BYTES));
    TRY(d->ops->sync(d));
    *seconds = now_s() - start;
    return OK;
}

/* Where the queues are one, both ways at once is one after the other: not measured. */
static enum status time_copies(struct device *d, const struct memory *device,
                               const struct memory *host, struct calibrations *out)
{
    static const struct {
        const char *name;
        bool in, out;
    } ways[] = {{"link, host to device", true, false},
                {"link, device to host", false, true},
                {"link, each way when both are used", true, true}};
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct rounds r = {0};
        double seconds;
        if (ways[i].in && ways[i].out && !d->ops->queue)
            continue;
        TRY(copy_once(d, device, host, ways[i].in, ways[i].out, &seconds)); /* touches memory */
        for (int k = 0; k < ROUNDS; k++) {
            TRY(copy_once(d, device, host, ways[i].in, ways[i].out, &seconds));
            add_round(&r, seconds, false);
        }
        struct calibration *c = add_row(out, COPY_BYTES, false, &r);
        if (c)
            (void)snprintf(c->name, sizeof(c->name), "%s", ways[i].name);
    }
    return OK;
}

static enum status calibrate_copies(struct device *d, struct calibrations *out)
{
    struct memory device = {.tier = TIER_DEVICE, .n_bytes = 2 * (int64_t)COPY_BYTES};
    struct memory host = {.tier = TIER_HOST, .n_bytes = 2 * (int64_t)COPY_BYTES};
    enum status status;
    TRY(d->ops->memory_alloc(d, TIER_DEVICE, device.n_bytes, &device.base));
    TRY_GOTO(d->ops->memory_alloc(d, TIER_HOST, host.n_bytes, &host.base), out);
    TRY_GOTO(time_copies(d, &device, &host, out), out);
out:
    if (host.base)
        d->ops->memory_free(d, TIER_HOST, host.base, host.n_bytes);
    d->ops->memory_free(d, TIER_DEVICE, device.base, device.n_bytes);
    return status;
}

static enum status calibrate_host(struct calibrations *out)
{
    struct rounds r = {0};
    char *memory;
    TRY(mem_try_array(&memory, 2 * (size_t)COPY_BYTES, 1));
    memset(memory, 1, 2 * (size_t)COPY_BYTES);
    for (int i = 0; i < ROUNDS; i++) {
        double start = now_s();
        memcpy(memory + (i % 2 ? COPY_BYTES : 0), memory + (i % 2 ? 0 : COPY_BYTES), COPY_BYTES);
        add_round(&r, now_s() - start, false);
    }
    mem_free(memory);
    struct calibration *c = add_row(out, COPY_BYTES, false, &r);
    if (c)
        (void)snprintf(c->name, sizeof(c->name), "host copy, one thread");
    return OK;
}

/* ---- the disk -------------------------------------------------------------------------------- */

static void add_disk_row(struct calibrations *out, const char *name, double rate)
{
    const struct rounds once = {1 / MAX(rate, 1e-9), 1 / MAX(rate, 1e-9), false};
    struct calibration *c = rate > 0 ? add_row(out, 1.0, false, &once) : NULL;
    if (c)
        (void)snprintf(c->name, sizeof(c->name), "%s", name);
}

/* As the disk tier uses it. A folder that cannot be written has no rates, which is no error. */
static enum status calibrate_disk(const char *folder, struct calibrations *out)
{
    struct disk *d;
    struct disk_rates r;
    if (file_make_folders(folder) != OK || disk_open(&d, folder) != OK)
        return OK;
    enum status status = disk_measure(d, &r);
    if (status == OK)
        status = disk_measure_long(d, DISK_BYTES, &r);
    disk_close(d);
    if (status != OK)
        return OK;
    add_disk_row(out, "disk, written", r.written);
    add_disk_row(out, "disk, read", r.read);
    add_disk_row(out, "disk, written in turns with reads", r.written_in_turns);
    add_disk_row(out, "disk, read in turns with writes", r.read_in_turns);
    return OK;
}

enum status calibrate(struct device *d, const char *folder, struct calibrations *out)
{
    *out = (struct calibrations){0};
    TRY(calibrate_products(d, DTYPE_F32, out));
    TRY(calibrate_products(d, d->lacks_bf16 ? DTYPE_F16 : DTYPE_BF16, out));
    TRY(calibrate_memory(d, out));
    TRY(calibrate_copies(d, out));
    TRY(calibrate_host(out));
    return folder ? calibrate_disk(folder, out) : OK;
}
