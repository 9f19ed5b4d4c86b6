/* Evaluation and generation with weights at home on the host: they are fetched ahead of their use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "search/search.h"
#include "support/golden.h"
#include "support/paper_device.h"
#include "support/training.h"
#include "task/language.h"

/* Blocks of 13 MiB: a fetch takes longer than what is computed with it. */
static const char model[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 512, "
    "\"intermediate_size\": 1408, \"num_hidden_layers\": 4, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"max_position_embeddings\": 256}";

static struct device paper;
static struct stage_request stages[2];

/* An engine with these purposes alone, on a GPU that is on paper. */
static void open_use(struct training *t, enum stage_purpose first, enum stage_purpose second)
{
    struct engine_request r = {.stages = stages, .n_stages = first == second ? 1 : 2};
    struct settings settings;
    training_init(t, &(struct training_options){
                         .config = model, .batch = 4, .seq_len = 128, .device = &paper});
    settings = t->engine.settings;
    engine_close(&t->engine);
    for (int i = 0; i < r.n_stages; i++) {
        enum stage_purpose purpose = i ? second : first;
        bool cached = purpose == STAGE_PREFILL || purpose == STAGE_DECODE;
        stages[i] = (struct stage_request){.purpose = purpose,
                                           .batch = cached ? 1 : 4,
                                           .seq_len = purpose == STAGE_DECODE ? 1 : 128,
                                           .n_micro = 1,
                                           .cache_len = cached ? 192 : 0};
    }
    engine_init(&t->engine, &settings, language_task(t->model), &t->device);
    expect_ok(engine_build(&t->engine, &r));
}

static struct limits device_limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, LIMIT_OPEN, LIMIT_OPEN}};
}

/* ---- what a program does -----------------------------------------------------------------------
 */

static double seconds_of(const struct training *t)
{
    double sum = 0;
    for (int i = 0; i < t->engine.work.n_stages; i++) {
        const struct stage *s = &t->engine.work.stages[i];
        struct prediction p;
        double seconds;
        expect_ok(predict(&p, s->program, &t->device, NULL));
        expect_ok(predict_step(&p, s->program, &t->device, 1, &seconds));
        prediction_release(&p);
        sum += seconds;
    }
    return sum;
}

static bool reads(const struct program *p, const struct instr *i, int32_t buffer)
{
    const struct operand *o = &p->operands.items[i->first_operand];
    for (int32_t k = 0; k < i->n_operands; k++) {
        if (o[k].buffer == buffer)
            return true;
    }
    return false;
}

/* Fetches of weights that something is computed behind before they are read. */
static int n_ahead(const struct program *p)
{
    int n = 0;
    for (size_t at = 0; at < p->instrs.n; at++) {
        const struct instr *copy = &p->instrs.items[at];
        const struct operand *o = &p->operands.items[copy->first_operand];
        if (copy->kind != INSTR_COPY || o[1].tier != TIER_DEVICE || o[0].n_bytes < 1 << 20)
            continue;
        size_t next = at + 1;
        while (next < p->instrs.n && p->instrs.items[next].kind != INSTR_COMPUTE)
            next++;
        n += next < p->instrs.n && !reads(p, &p->instrs.items[next], o[1].buffer);
    }
    return n;
}

static int n_all_ahead(const struct training *t)
{
    int n = 0;
    for (int i = 0; i < t->engine.work.n_stages; i++)
        n += n_ahead(t->engine.work.stages[i].program);
    return n;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void expect_fetched_ahead(enum stage_purpose first, enum stage_purpose second)
{
    struct training t;
    struct decisions d = {.n = {[EXTENT_WEIGHTS] = EXTENT_WHOLE}};
    struct search_bounds bounds = {0};
    const struct limits limits = device_limit(LIMIT_OPEN);
    bounds.fixed[EXTENT_WEIGHTS] = true;
    open_use(&t, first, second);
    expect_ok(workload_decide(&t.engine.work, &d));
    expect_ok(workload_emit(&t.engine.work));
    double at_need = seconds_of(&t);
    int n_at_need = n_all_ahead(&t);
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, NULL));
    print_message("%d stages: %.3f ms at need, %.3f ms with %lld bytes ahead, %d fetches ahead\n",
                  t.engine.work.n_stages, 1e3 * at_need, 1e3 * seconds_of(&t),
                  (long long)d.ring_bytes, n_all_ahead(&t));
    assert_true(d.ring_bytes > 0);
    assert_int_equal(d.n[EXTENT_WEIGHTS], EXTENT_WHOLE);
    assert_true(n_all_ahead(&t) > n_at_need);
    assert_true(seconds_of(&t) < 0.95 * at_need);
    training_release(&t);
}

static void an_evaluation_fetches_weights_ahead(void **state)
{
    (void)state;
    expect_fetched_ahead(STAGE_EVAL, STAGE_EVAL);
}

static void generation_fetches_weights_ahead(void **state)
{
    (void)state;
    expect_fetched_ahead(STAGE_PREFILL, STAGE_DECODE);
}

/* Weights leave because the budget says so, and the rest of it is the ring's. */
static void a_budget_below_the_weights_is_kept_with_fetches_ahead(void **state)
{
    (void)state;
    struct training t;
    struct decisions d = {0};
    struct forecast f = {0};
    const struct search_bounds bounds = {0};
    open_use(&t, STAGE_EVAL, STAGE_EVAL);
    expect_ok(workload_decide(&t.engine.work, &d));
    expect_ok(workload_emit(&t.engine.work));
    int64_t all = t.engine.work.n_bytes[TIER_DEVICE];
    const struct limits limits = device_limit(2 * all / 3);
    expect_ok(search_plan(&t.engine.work, &limits, &bounds, NULL, &d, NULL));
    forecast_memory(&f, &t.engine.work, &limits);
    assert_true(f.fits && t.engine.work.n_bytes[TIER_DEVICE] <= 2 * all / 3);
    assert_true(d.ring_bytes > 0 && n_all_ahead(&t) > 0);
    training_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluation_fetches_weights_ahead),
        cmocka_unit_test(generation_fetches_weights_ahead),
        cmocka_unit_test(a_budget_below_the_weights_is_kept_with_fetches_ahead),
    };
    expect_ok(device_open_cpu(&paper, 1));
    struct device cpu = paper; /* closed as what it was */
    paper_device_make(&paper);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(&cpu);
    return failed;
}
