/* Random graphs under random plans, some of them with homes on disk: the check accepts them, memory
 * is what was predicted, and the bits are those of the program that keeps everything. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run/executor.h"
#include "support/golden.h"
#include "support/random_graph.h"
#include "support/scratch.h"

/* Under sanitizers fewer: they take ten times as long. */
enum {
    N_GRAPHS = SNUG_ASAN ? 200 : 1000,
    PLANS_PER_GRAPH = 3,
    N_STEPS = 3,
    MAX_RESULTS = 4,
    DISK_EVERY = 20
}; /* files take longer than memory */

static struct device device;
static struct scratch scratch;
static uint64_t current_seed; /* printed at the end: where a failure happened */

struct run {
    float outputs[N_STEPS][MAX_RESULTS];
    uint64_t digest;
};

static int open_device(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return device_open_cpu(&device, 2) == OK && device_use_disk(&device, scratch.folder) == OK ? 0
                                                                                               : -1;
}

static int close_device(void **state)
{
    (void)state;
    print_message("last seed %llu\n", (unsigned long long)current_seed);
    device_close(&device);
    scratch_release(&scratch);
    return 0;
}

/* ---- running --------------------------------------------------------------------------------- */

struct engine {
    const struct graph *g;
    const struct program *p;
    const struct storage *storage;
    struct executor *x;
    int handle;
};

static void fill_floats(float *to, int64_t n, uint64_t key, uint64_t stream)
{
    struct rng rng = {.key = key, .stream = stream};
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(rng_double(&rng) - 0.5);
}

static void fill_storage(struct engine *e)
{
    for (size_t i = 0; i < e->storage->entries.n; i++) {
        const struct storage_entry *s = &e->storage->entries.items[i];
        char *to = calloc(1, (size_t)s->n_bytes + 1);
        uint64_t key = 0; /* by name: the order of entries is not ours */
        for (const char *c = s->name; *c; c++)
            key = key * 31 + (unsigned char)*c;
        if (s->kind == MEMORY_WEIGHTS)
            fill_floats((float *)to, s->n_bytes / 4, key, 3);
        expect_ok(executor_write_storage(e->x, s, to));
        free(to);
    }
}

static void *input(struct engine *e, const char *name)
{
    return executor_input(e->x, e->handle, name);
}

static void set_float(struct engine *e, const char *name, float value)
{
    float *to = input(e, name);
    if (to)
        *to = value;
}

static void fill_inputs(struct engine *e, uint64_t moment)
{
    const struct port *x = program_input(e->p, "x");
    if (x)
        fill_floats(input(e, "x"), x->n_bytes / 4, 17, moment);
    int64_t *random = input(e, "rng");
    if (random) {
        random[0] = 3;
        random[1] = (int64_t)moment;
    }
}

static void set_number(struct engine *e, int number)
{
    int32_t *x = input(e, "step");
    if (x)
        *x = number;
}

static void step(struct engine *e, int64_t n_micro, int i)
{
    bool deferred = program_section(e->p, "finish") != NULL;
    set_number(e, deferred && i > 0 ? i : i + 1); /* updates of the step before */
    set_float(e, "lr", 0.01f);
    set_float(e, "loss_seed", 1.0f);
    set_float(e, "count_in", 1.0f);
    fill_inputs(e, (uint64_t)i * 10);
    if (n_micro == 1) {
        expect_ok(executor_run(e->x, e->handle, deferred && i == 0 ? "first" : "step"));
        return;
    }
    expect_ok(executor_run(e->x, e->handle, "begin"));
    for (int64_t k = 0; k < n_micro; k++) {
        fill_inputs(e, (uint64_t)i * 10 + (uint64_t)k);
        expect_ok(executor_run(e->x, e->handle, k + 1 < n_micro ? "micro" : "last"));
    }
}

static uint64_t digest(const struct engine *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->storage->entries.n; i++) {
        const struct storage_entry *s = &e->storage->entries.items[i];
        unsigned char *p = calloc(1, (size_t)s->n_bytes + 1);
        expect_ok(executor_read_storage(e->x, s, p));
        uint64_t h = 1469598103934665603u;
        for (const char *c = s->name; *c; c++)
            h = (h ^ (unsigned char)*c) * 1099511628211u;
        for (int64_t k = 0; k < s->n_bytes; k++)
            h = (h ^ p[k]) * 1099511628211u;
        free(p);
        sum += h;
    }
    return sum;
}

static bool overlaps(const struct buffer *a, const struct buffer *b)
{
    return a->tier == b->tier && a->first <= b->last && b->first <= a->last &&
           a->offset < b->offset + b->n_bytes && b->offset < a->offset + a->n_bytes;
}

/* Independent of program_check: every pair. */
static void expect_disjoint(const struct program *p)
{
    for (size_t i = 0; i < p->buffers.n; i++) {
        for (size_t k = i + 1; k < p->buffers.n; k++) {
            const struct buffer *a = &p->buffers.items[i], *b = &p->buffers.items[k];
            if (a->merged_into < 0 && b->merged_into < 0 && overlaps(a, b))
                fail_msg("'%s' and '%s' overlap", a->name, b->name);
        }
    }
}

static int64_t count_slices(const struct program *p)
{
    int64_t n = 0;
    for (size_t i = 0; i < p->instrs.n; i++)
        n += p->instrs.items[i].slice.n > 0;
    return n;
}

/* How many of its instructions are slices. */
static int64_t execute(const struct random_graph *r, const struct plan *plan, struct run *out)
{
    struct program *p;
    struct storage storage;
    storage_init(&storage);
    expect_ok(program_emit(&p, "random", r->g, plan, &device, &storage));
    expect_ok(program_place(p, &storage, NULL));
    expect_ok(program_check(p, &storage));
    expect_disjoint(p);

    struct engine e = {.g = r->g, .p = p, .storage = &storage};
    expect_ok(executor_new(&e.x, &device, p->n_bytes));
    expect_ok(executor_load(e.x, p, &storage, &e.handle));
    fill_storage(&e);
    memset(out, 0, sizeof(*out));
    for (int i = 0; i < N_STEPS; i++) {
        step(&e, r->n_micro, i);
        for (size_t k = 0; k < MIN(p->outputs.n, (size_t)MAX_RESULTS); k++)
            out->outputs[i][k] =
                *(const float *)executor_output(e.x, e.handle, p->outputs.items[k].name);
    }
    if (plan->defer_updates) {
        set_number(&e, N_STEPS);
        expect_ok(executor_run(e.x, e.handle, "finish"));
    }
    out->digest = digest(&e);
    for (int t = 0; t < TIER_COUNT; t++)
        assert_int_equal(executor_high_water(e.x, (enum tier)t), p->n_bytes[t]);
    assert_int_equal(executor_disk_bytes(e.x), p->n_bytes[TIER_DISK]);
    int64_t n_slices = count_slices(p);
    executor_free(e.x);
    program_free(p);
    storage_release(&storage);
    return n_slices;
}

/* ---- properties ------------------------------------------------------------------------------ */

struct tally {
    int64_t n_nodes, treated[FORM + 1], n_finite, n_slices, n_deferred, n_on_disk, n_halfway;
};

/* Where the host cannot follow the device's addresses, what is on disk goes by way of the host: the
 * check proves that program too. */
static void check_apart(const struct random_graph *r, const struct plan *plan, struct tally *tally)
{
    struct device_ops ops = *device.ops;
    struct device apart = device;
    struct storage storage;
    struct program *p;
    ops.memory_is_apart = true;
    apart.ops = &ops;
    storage_init(&storage);
    expect_ok(program_emit(&p, "apart", r->g, plan, &apart, &storage));
    expect_ok(program_place(p, &storage, NULL));
    expect_ok(program_check(p, &storage));
    for (size_t i = 0; i < p->buffers.n; i++)
        tally->n_halfway +=
            p->buffers.items[i].tier == TIER_HOST && p->buffers.items[i].kind == MEMORY_STAGING;
    program_free(p);
    storage_release(&storage);
}

static void try_graph(uint64_t seed, struct tally *tally)
{
    struct random_graph r;
    struct plan kept, plan;
    struct run want, got;
    random_graph_init(&r, seed);
    tally->n_nodes += (int64_t)r.g->nodes.n;
    expect_ok(plan_init(&kept, r.g, r.n_micro));
    assert_int_equal(execute(&r, &kept, &want), 0);
    tally->n_finite += isfinite(want.outputs[N_STEPS - 1][0]) && want.outputs[0][2] > 0.0f;
    for (uint64_t k = 0; k < PLANS_PER_GRAPH; k++) {
        expect_ok(plan_init(&plan, r.g, r.n_micro));
        random_plan(&plan, r.g, seed * 100 + k);
        if (seed % DISK_EVERY == 0)
            random_plan_disk(&plan, r.g, seed * 100 + k);
        for (size_t v = 0; v < r.g->values.n; v++)
            tally->n_on_disk += plan.home[v] == TIER_DISK;
        for (size_t v = 0; v < r.g->values.n; v++)
            tally->treated[plan.treat[v]]++;
        plan.defer_updates = k % 2 && plan_may_defer(&plan, r.g);
        tally->n_deferred += plan.defer_updates;
        tally->n_slices += execute(&r, &plan, &got);
        if (seed % DISK_EVERY == 0)
            check_apart(&r, &plan, tally);
        if (memcmp(&want, &got, sizeof(want)) != 0)
            fail_msg("seed %llu, plan %llu: other bits", (unsigned long long)seed,
                     (unsigned long long)k);
        plan_release(&plan);
    }
    plan_release(&kept);
    random_graph_release(&r);
}

static void random_plans_of_random_graphs_give_the_same_bits(void **state)
{
    (void)state;
    struct tally t = {0};
    print_message("seeds 1 to %d\n", N_GRAPHS);
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        current_seed = seed;
        try_graph(seed, &t);
    }
    print_message("%lld nodes; %lld values recomputed, %lld moved, %lld never whole; %lld slices\n",
                  (long long)t.n_nodes, (long long)t.treated[RECOMPUTE], (long long)t.treated[MOVE],
                  (long long)t.treated[FORM], (long long)t.n_slices);
    assert_true(t.n_on_disk > N_GRAPHS / DISK_EVERY && t.n_halfway > N_GRAPHS / DISK_EVERY);
    assert_true(t.n_deferred > N_GRAPHS / 10);
    assert_true(t.n_finite > N_GRAPHS * 9 / 10); /* losses and gradients that mean something */
    assert_true(t.treated[RECOMPUTE] > 1000 && t.treated[MOVE] > 1000 && t.n_slices > 1000);
    assert_true(t.treated[FORM] > N_GRAPHS / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_of_random_graphs_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
