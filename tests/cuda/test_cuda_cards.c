/* A plan for the GPU that is here, made twice: on the GPU itself, with its libraries asked, and on
 * the card of the same name in the table. Kernels and workspaces are the same call by call, arenas
 * are equal to the byte; how far the estimated time is from the predicted one is printed.
 * Skipped without a GPU, or with one that the table does not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/gpu.h"

#ifdef SNUG_HAVE_CUDA

#include "config/config.h"
#include "device/card/card.h"
#include "engine/engine.h"
#include "support/law.h"
#include "train/session.h"

static const struct card *here; /* the card of the GPU that is here */

/* The last card whose name ends the GPU's: "NVIDIA H200" is "H200", also on 8 of 9. */
static const struct card *card_of(const struct device *d)
{
    const struct card *found = NULL;
    for (int i = 0; i < card_count(); i++) {
        const struct card *c = card_at(i);
        bool named = strstr(d->description, c->title) != NULL;
        if (named && c->n_multiprocessors == d->env.gpu->n_multiprocessors)
            found = c;
    }
    return found;
}

/* ---- kernels, call by call ------------------------------------------------------------------- */

static struct device gpu, card;

static int64_t workspace_of(const struct kernel *k, const struct op_call *c, const struct device *d)
{
    return k->workspace ? k->workspace(c, &d->env) : 0;
}

static void compare_call(struct law_case *c)
{
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUTPUTS];
    struct op_call call;
    node_call(c->g, graph_node(c->g, 0), in, out, &call);
    const struct kernel *a = kernel_pick(gpu.ops->kernels(c->op), &call, &gpu.env, NULL);
    const struct kernel *b = kernel_pick(card.ops->kernels(c->op), &call, &card.env, NULL);
    if (a != b)
        law_failed(c, "the GPU takes %s, the card %s", a ? a->name : "nothing",
                   b ? b->name : "nothing");
    else if (a && workspace_of(a, &call, &gpu) != workspace_of(b, &call, &card))
        law_failed(c, "%s wants %lld bytes on the GPU and %lld on the card", a->name,
                   (long long)workspace_of(a, &call, &gpu),
                   (long long)workspace_of(b, &call, &card));
}

static void kernels_and_workspaces_of_every_sample_are_those_of_the_gpu(void **state)
{
    (void)state;
    struct law_report r = {0};
    law_for_each_case(&r, LAW_ALL, compare_call);
    law_report_finish(&r);
}

static void the_table_has_the_sizes_of_the_gpu(void **state)
{
    (void)state;
    const struct gpu_model *a = gpu.env.gpu, *b = card.env.gpu;
    print_message("memory %lld here, %lld in the table; context %lld, %lld; L2 %lld, %lld\n",
                  (long long)a->memory_bytes, (long long)b->memory_bytes,
                  (long long)gpu.ops->context_bytes(&gpu),
                  (long long)card.ops->context_bytes(&card), (long long)a->l2_bytes,
                  (long long)b->l2_bytes);
    print_message("rates: %.0f and %.0f TFLOP/s, %.2f and %.2f TB/s, link %.1f and %.1f GB/s, both "
                  "ways %.1f and %.1f\n",
                  gpu.rates.half_matmul_flops / 1e12, card.rates.half_matmul_flops / 1e12,
                  gpu.rates.memory_bytes / 1e12, card.rates.memory_bytes / 1e12,
                  gpu.rates.links[TIER_HOST][TIER_DEVICE].alone / 1e9,
                  card.rates.links[TIER_HOST][TIER_DEVICE].alone / 1e9,
                  gpu.rates.links[TIER_HOST][TIER_DEVICE].both / 1e9,
                  card.rates.links[TIER_HOST][TIER_DEVICE].both / 1e9);
    assert_int_equal(a->major, b->major);
    assert_int_equal(a->minor, b->minor);
    assert_int_equal(a->n_multiprocessors, b->n_multiprocessors);
    assert_int_equal(a->shared_per_block_optin, b->shared_per_block_optin);
    assert_int_equal(a->shared_per_multiprocessor, b->shared_per_multiprocessor);
    assert_int_equal(a->threads_per_multiprocessor, b->threads_per_multiprocessor);
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct planned {
    struct session session;
    struct config *config;
};

static void plan(struct planned *p, const char *name, const char *const *overrides, int n,
                 const char *on)
{
    const struct session_options o = {.train = true, .gpu = on, .cache_folder = gpu_cache_folder()};
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/configs/%s.yaml", SNUG_SOURCE_DIR, name);
    if (config_load(&p->config, path, overrides, (size_t)n) != OK ||
        session_open(&p->session, p->config, &o) != OK)
        fail_msg("%s: %s", name, status_message());
}

static void unplan(struct planned *p)
{
    session_close(&p->session);
    config_free(p->config);
}

/* Prints the instructions whose kernel or workspace differs, the first few of them. */
static void print_differences(const struct planned *a, const struct planned *b)
{
    const struct program *p = a->session.train->program, *q = b->session.train->program;
    int n_printed = 0;
    if (p->instrs.n != q->instrs.n)
        print_message("  %zu instructions on the GPU, %zu on the card\n", p->instrs.n, q->instrs.n);
    for (size_t k = 0; k < MIN(p->instrs.n, q->instrs.n) && n_printed < 20; k++) {
        const struct instr *x = &p->instrs.items[k], *y = &q->instrs.items[k];
        int64_t x_bytes = 0, y_bytes = 0;
        if (x->kind != INSTR_COMPUTE || y->kind != INSTR_COMPUTE)
            continue;
        if (x->has_workspace)
            x_bytes = p->operands.items[x->first_operand + x->n_operands - 1].n_bytes;
        if (y->has_workspace)
            y_bytes = q->operands.items[y->first_operand + y->n_operands - 1].n_bytes;
        if (x->kernel == y->kernel && x_bytes == y_bytes)
            continue;
        n_printed++;
        print_message("  instruction %zu, %s: %s with %lld bytes on the GPU, %s with %lld on the "
                      "card\n",
                      k, op_get(graph_node(p->graph, x->node)->op)->name, x->kernel->name,
                      (long long)x_bytes, y->kernel->name, (long long)y_bytes);
    }
}

/* A budget makes times decide between plans: then another one may be chosen. */
static bool decide_alike(const struct engine *a, const struct engine *b)
{
    const struct decisions *x = &a->settings.decisions, *y = &b->settings.decisions;
    return memcmp(x->n, y->n, sizeof(x->n)) == 0 && x->ring_bytes == y->ring_bytes;
}

/* Without a budget nothing is left to the clock: it says what is worth keeping, where the config
 * does not. */
#define NO_CHOICE "gradient_checkpointing=false"

static void arenas_of_plans_are_equal_to_the_byte(void **state)
{
    (void)state;
    static const struct {
        const char *config, *settings[4];
        int n;
    } cases[] = {
        {"gpt2-124m", {"device=cuda", "bf16=true", NO_CHOICE, "per_device_train_batch_size=8"}, 4},
        {"gpt2-124m", {"device=cuda", "bf16=false", NO_CHOICE, "per_device_train_batch_size=2"}, 4},
        {"gpt2-350m", {"device=cuda", "bf16=true", "device_memory=6GiB"}, 3},
        {"gpt2-1558m", {"device=cuda", "bf16=true", NO_CHOICE, "gradient_dtype=bf16"}, 4},
        {"llama-1b", {"device=cuda", "bf16=true", "device_memory=12GiB"}, 3},
        {"llama-1b", {"device=cuda", "bf16=true", NO_CHOICE, "per_device_train_batch_size=4"}, 4},
        {"qwen2.5-7b-16gb", {"device=cuda"}, 1},
    };
    int n_different = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct planned a, b;
        plan(&a, cases[i].config, cases[i].settings, cases[i].n, NULL);
        plan(&b, cases[i].config, cases[i].settings, cases[i].n, here->name);
        const struct forecast *x = &a.session.engine.forecast, *y = &b.session.engine.forecast;
        bool equal = x->arena_bytes == y->arena_bytes && x->host_bytes == y->host_bytes;
        print_message("%s %s: arena %lld and %lld, host %lld and %lld: %s; step %.1f ms predicted, "
                      "%.1f ms estimated (%+.0f %%)\n",
                      cases[i].config, cases[i].settings[cases[i].n - 1], (long long)x->arena_bytes,
                      (long long)y->arena_bytes, (long long)x->host_bytes, (long long)y->host_bytes,
                      equal ? "equal" : "DIFFERENT", 1e3 * x->step_s, 1e3 * y->step_s,
                      100.0 * (y->step_s / x->step_s - 1.0));
        bool same_plan = decide_alike(&a.session.engine, &b.session.engine);
        if (!equal && same_plan)
            print_differences(&a, &b);
        if (!same_plan)
            print_message("  the plans are different ones\n");
        n_different += !equal && same_plan;
        unplan(&a);
        unplan(&b);
    }
    assert_int_equal(n_different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_the_sizes_of_the_gpu),
        cmocka_unit_test(kernels_and_workspaces_of_every_sample_are_those_of_the_gpu),
        cmocka_unit_test(arenas_of_plans_are_equal_to_the_byte),
    };
    if (!gpu_open(&gpu))
        return GPU_SKIPPED;
    here = card_of(&gpu);
    if (!here || device_open_card(&card, here->name) != OK) {
        print_message("the table of cards does not have %s\n", gpu.description);
        device_close(&gpu);
        return GPU_SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&card);
    device_close(&gpu);
    return n_failed;
}

#else

int main(void)
{
    print_message("skipped: built without CUDA\n");
    return GPU_SKIPPED;
}

#endif
