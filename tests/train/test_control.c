/* Predicted gradients: the draw is fair, the estimate is right on average whatever is predicted and
 * by whatever part of it, plain steps stay what they are to the bit, a run that was stopped goes on
 * as it would have, memory is what was planned. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/widest.h"
#include "support/apart_device.h"
#include "support/golden.h"
#include "support/scratch.h"
#include "support/train_session.h"
#include "train/control_run.h"

enum { MOST_STEPS = 40, MOST_MORE = 20 };

static const char config_text[] =
    "model: {model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 32,"
    " num_hidden_layers: 3, num_attention_heads: 2, num_key_value_heads: 1,"
    " max_position_embeddings: 64}\n"
    "tokenizer: bytes\n"
    "datasets: [{type: synthetic, n_tokens: 9000}]\n"
    "max_seq_length: 24\n"
    "per_device_train_batch_size: 1\n"
    "gradient_accumulation_steps: 4\n"
    "learning_rate: 1e-3\n"
    "lr_scheduler_type: constant\n"
    "max_steps: 16\n"
    "num_threads: 1\n"
    "device: cpu\n"
    "save_strategy: \"no\"\n"
    "report_to: none\n";

#define PREDICTED "predicted_gradients=residual", "control_steps=5", "probe_batches=4"
#define ALWAYS    PREDICTED, "control_threshold=1e30"

/* ---- the draw and the judgement -------------------------------------------------------------- */

static void every_subset_is_as_likely(void **state)
{
    enum { N = 5, M = 2, DRAWS = 6000, SUBSETS = 10 };
    int64_t order[N], again[N], counts[N][N] = {{0}};
    (void)state;
    for (int64_t step = 0; step < DRAWS; step++) {
        bool seen[N] = {false};
        control_draw(7, step, N, M, order);
        control_draw(7, step, N, M, again);
        assert_memory_equal(order, again, sizeof(order));
        assert_true(order[0] < order[1]);
        for (int i = 0; i < N; i++)
            seen[order[i]] = true;
        for (int i = 0; i < N; i++)
            assert_true(seen[i]);
        counts[order[0]][order[1]]++;
    }
    double expected = (double)DRAWS / SUBSETS, spread = sqrt(expected * (1.0 - 1.0 / SUBSETS));
    for (int a = 0; a < N; a++) {
        for (int b = a + 1; b < N; b++)
            assert_true(fabs((double)counts[a][b] - expected) < 5 * spread);
    }
}

/* n = 4, m = 1, a correlation of 0.8: variance 1 + 3 * 0.36. */
static void what_is_measured_decides(void **state)
{
    struct config cfg = {.gradient_accumulation_steps = 4,
                         .true_micro_batches = 1,
                         .control_steps = 10,
                         .control_threshold = 1,
                         .predicted_gradients = CONFIG_PREDICTION_RESIDUAL};
    const struct control_moments x = {.gradient = 4, .predicted = 1, .product = 1.6};
    struct control_state c = control_begin(&cfg);
    (void)state;
    struct control_record r = control_judge(&x, &cfg, 0.5);
    assert_true(fabs(r.correlation - 0.8) < 1e-12 && fabs(r.coefficient - 1.6) < 1e-12);
    assert_true(fabs(r.variance_ratio - 2.08) < 1e-12 && !r.predicts);
    assert_true(control_judge(&x, &cfg, 0.48).predicts);
    assert_true(control_is_due(&c, 0));
    control_take(&c, &cfg, 0, &r);
    assert_true(!c.predicts && c.next == 10);
    control_take(&c, &cfg, 10, &r);
    assert_int_equal(c.next, 30);
    for (int i = 0; i < 6; i++)
        control_take(&c, &cfg, 30, &r);
    assert_int_equal(c.next, 110);
    r.predicts = true;
    control_take(&c, &cfg, 110, &r);
    assert_true(c.predicts && c.next == 120 && !control_is_due(&c, 119));
    r = control_judge(&(struct control_moments){.gradient = 1}, &cfg, 0.2);
    assert_true(r.variance_ratio == 4 && r.coefficient == 0 && r.predicts);
}

/* ---- one step -------------------------------------------------------------------------------- */

struct opened {
    struct scratch scratch;
    struct config *config;
    struct session session;
};

static void open_run(struct opened *o, const char *const *more)
{
    char path[SCRATCH_PATH];
    size_t n = 0;
    scratch_init(&o->scratch);
    scratch_write_text(&o->scratch, "tiny.yaml", config_text);
    scratch_write_text(&o->scratch, "records.jsonl",
                       "{\"prompt\": \"a\", \"completion\": \"bcd efg hij klm\"}\n"
                       "{\"prompt\": \"nop\", \"completion\": \"q\"}\n"
                       "{\"prompt\": \"rs\", \"completion\": \"tuv wxyz\"}\n"
                       "{\"prompt\": \"the\", \"completion\": \" quick brown fox\"}\n");
    while (more[n])
        n++;
    expect_ok(config_load(&o->config, scratch_path(&o->scratch, "tiny.yaml", path), more, n));
    if (o->config->packing == CONFIG_TRISTATE_FALSE) { /* of records, each another length */
        config_free(o->config);
        const char *with[MOST_MORE];
        char data[SCRATCH_PATH + 32];
        (void)snprintf(data, sizeof(data), "datasets=%s/records.jsonl", o->scratch.folder);
        memcpy(with, more, n * sizeof(*more));
        with[n++] = data;
        expect_ok(config_load(&o->config, path, with, n));
    }
    expect_ok(config_resolve(o->config, 1));
    expect_ok(session_open(&o->session, o->config, &(struct session_options){.train = true}));
    expect_ok(session_data(&o->session));
    expect_ok(session_start(&o->session));
}

static void close_run(struct opened *o)
{
    session_close(&o->session);
    config_free(o->config);
    scratch_release(&o->scratch);
}

static int64_t count_trained(const struct session *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->engine.n_params; i++)
        n += s->engine.params[i].frozen ? 0 : shape_elems(&s->engine.params[i].shape);
    return n;
}

static void read_weights(struct session *s, float *to)
{
    for (int i = 0; i < s->engine.n_params; i++) {
        int64_t n = s->engine.params[i].frozen ? 0 : shape_elems(&s->engine.params[i].shape);
        if (n == 0)
            continue;
        expect_ok(widest_read(&s->engine, i, 0, n, to));
        to += n;
    }
}

/* The weights after one step from the first ones; order NULL: a plain step. */
static float *weights_after(const char *const *more, const int64_t *order, double coefficient,
                            int64_t *n, double *loss)
{
    struct opened o;
    struct train_state state;
    float *weights;
    open_run(&o, more);
    struct session *s = &o.session;
    struct stepper x = {.s = s};
    expect_ok(train_state_init(&state, o.config));
    expect_ok(session_start_loader(s, false));
    state.control.coefficient = coefficient;
    expect_ok(order ? control_step_drawn(&x, &state, 1.0, order) : step_run(&x, &state, 1.0));
    *loss = x.has_sums ? losses_total(&s->predict->io, x.sums) : (double)NAN;
    *n = count_trained(s);
    expect_ok(mem_try_array(&weights, (size_t)*n, sizeof(*weights)));
    read_weights(s, weights);
    assert_int_equal(state.n_micro_steps, 4);
    loader_stop(s->loader);
    train_state_release(&state);
    close_run(&o);
    return weights;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* Over all draws of 2 of 4 micro-batches plain SGD gets, on average, to where a plain step gets to;
 * each draw alone is far from it. Records have different numbers of labels. */
static void expect_unbiased(double coefficient, const char *const *more)
{
    enum { SUBSETS = 6 };
    static const int64_t orders[SUBSETS][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2},
                                               {1, 2, 0, 3}, {1, 3, 0, 2}, {2, 3, 0, 1}};
    int64_t n;
    double loss, first = 0;
    float *plain = weights_after(more, NULL, 0, &n, &loss), *mean;
    double nearest = HUGE_VAL;
    expect_ok(mem_try_array(&mean, (size_t)n, sizeof(*mean)));
    for (int i = 0; i < SUBSETS; i++) {
        float *drawn = weights_after(more, orders[i], coefficient, &n, &loss);
        nearest = fmin(nearest, distance(drawn, plain, n));
        first = i == 0 ? loss : first;
        assert_true(fabs(loss - first) < 1e-6); /* it is of all micro-batches, whatever is drawn */
        for (int64_t k = 0; k < n; k++)
            mean[k] += drawn[k] / SUBSETS;
        mem_free(drawn);
    }
    double off = distance(mean, plain, n);
    print_message("c %g: mean off by %.3g, the nearest draw by %.3g\n", coefficient, off, nearest);
    assert_true(nearest > 0.01 && off < 1e-4 * nearest);
    mem_free(plain);
    mem_free(mean);
}

#define UNBIASED(c, ...) expect_unbiased(c, (const char *const[]){__VA_ARGS__, NULL})
#define SGD                                                                           \
    ALWAYS, "optim=sgd", "weight_decay=0", "max_grad_norm=0", "true_micro_batches=2", \
        "shuffle=false"

static void the_mean_over_draws_is_the_gradient(void **state)
{
    (void)state;
    UNBIASED(1.0, SGD);
    UNBIASED(-0.6, SGD, "exact_blocks=1");
    UNBIASED(0.7, SGD, "packing=false");
}

/* Where the prediction is all of it (every block exact but the first, which is frozen with all that
 * lies below) each draw is the gradient itself. */
static void a_perfect_prediction_has_no_variance(void **state)
{
    static const int64_t order[4] = {3, 0, 1, 2};
    static const char *const more[] = {SGD, "true_micro_batches=1", "exact_blocks=2",
                                       "freeze=model.embed_tokens,0", NULL};
    int64_t n;
    double loss;
    (void)state;
    float *plain = weights_after(more, NULL, 0, &n, &loss);
    float *drawn = weights_after(more, order, 1.0, &n, &loss);
    float *without = weights_after(more, order, 0.0, &n, &loss);
    assert_true(distance(without, plain, n) > 0.01);
    assert_true(distance(drawn, plain, n) < 1e-4 * distance(without, plain, n));
    mem_free(plain);
    mem_free(drawn);
    mem_free(without);
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct seen {
    double losses[MOST_STEPS]; /* by step */
    bool predicted[MOST_STEPS];
    int n_measured;
    struct control_record last;
    struct control_totals totals;
    struct scratch *scratch;
    int64_t ask_after; /* another budget, after this step */
    int n_changed;
};

static enum status on_step(void *user, const struct step_record *r)
{
    struct seen *s = user;
    assert_in_range(r->step, 1, MOST_STEPS - 1);
    s->losses[r->step] = r->loss;
    s->predicted[r->step] = r->predicted;
    assert_int_equal(r->arena_bytes, r->arena_predicted);
    if (r->step == s->ask_after)
        scratch_write_text(s->scratch, "out/BUDGET", "id-1\ndevice_memory=auto\n");
    return OK;
}

static enum status on_control(void *user, const struct control_record *r)
{
    struct seen *s = user;
    s->n_measured++;
    s->last = *r;
    return OK;
}

static enum status on_budget(void *user, const struct budget_record *r)
{
    ((struct seen *)user)->n_changed += r->changed;
    return OK;
}

static void run_in(struct seen *seen, const char *const *more)
{
    char path[SCRATCH_PATH], out[SCRATCH_PATH + 16];
    const char *overrides[MOST_MORE + 1] = {out};
    struct train_observer observer = {
        .user = seen, .on_step = on_step, .on_control = on_control, .on_budget = on_budget};
    struct train_result result;
    struct config *cfg;
    struct session s;
    size_t n = 1;
    (void)snprintf(out, sizeof(out), "output_dir=%s/out", seen->scratch->folder);
    for (; more[n - 1]; n++)
        overrides[n] = more[n - 1];
    scratch_write_text(seen->scratch, "tiny.yaml", config_text);
    expect_ok(config_load(&cfg, scratch_path(seen->scratch, "tiny.yaml", path), overrides, n));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true}));
    expect_ok(session_data(&s));
    expect_ok(session_start(&s));
    expect_ok(train_session(&s, &(struct train_options){.observers = &observer, .n_observers = 1},
                            &result));
    seen->totals = result.control;
    assert_true(result.host_bytes <= s.engine.forecast.host_bytes);
    train_result_release(&result);
    session_close(&s);
    config_free(cfg);
}

static void run(struct seen *seen, const char *const *more)
{
    struct scratch scratch;
    int64_t ask_after = seen->ask_after;
    scratch_init(&scratch);
    *seen = (struct seen){.scratch = &scratch, .ask_after = ask_after};
    run_in(seen, more);
    scratch_release(&scratch);
}

#define RUN(seen, ...) run(seen, (const char *const[]){__VA_ARGS__, NULL})

static void expect_same_losses(const struct seen *a, const struct seen *b, const char *what)
{
    for (int i = 1; i < MOST_STEPS; i++) {
        if (a->losses[i] != b->losses[i])
            fail_msg("%s: step %d: %.17g and %.17g", what, i, a->losses[i], b->losses[i]);
    }
}

/* Measured and found not worth it: plain training, to the bit. */
static void what_does_not_pay_leaves_every_bit(void **state)
{
    static const char *const cases[][2] = {
        {"bf16=false", "optim=adamw"},
        {"bf16=true", "gradient_dtype=bf16"},
        {"adapter=lora", "lora_dropout=0.1"},
        {"ema_decay=0.9", "optim=muon"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen plain = {0}, s = {0};
        RUN(&plain, cases[i][0], cases[i][1]);
        assert_true(!plain.totals.has_control && plain.n_measured == 0);
        RUN(&s, PREDICTED, "control_threshold=0", cases[i][0], cases[i][1]);
        assert_true(s.totals.has_control && s.totals.n_predicted == 0 && s.n_measured == 3);
        assert_true(s.last.correlation > 0.1 && s.last.correlation < 1.0);
        expect_same_losses(&plain, &s, cases[i][0]);
    }
}

/* The run learns, by fewer true gradients; what it cost and what it was worth is said. */
static void predicted_gradients_train(void **state)
{
    struct seen plain = {0}, s = {0};
    (void)state;
    RUN(&plain, "learning_rate=1e-2");
    RUN(&s, ALWAYS, "learning_rate=1e-2");
    assert_int_equal(s.totals.n_predicted, 16);
    assert_int_equal(s.totals.n_measured, 4);
    assert_true(s.predicted[1] && s.predicted[16] && !plain.predicted[1]);
    assert_true(s.totals.cost_ratio > 0.25 && s.totals.cost_ratio < 1);
    assert_true(s.totals.variance_ratio > 1 && s.totals.variance_ratio < 4);
    /* the first loss is that of all micro-batches, with the same weights */
    assert_true(fabs(s.losses[1] - plain.losses[1]) < 1e-5);
    assert_true(s.losses[16] < s.losses[1] - 0.5 * (plain.losses[1] - plain.losses[16]));
}

/* Stopped between measurements, and right before one. */
static void a_resumed_run_predicts_as_it_would_have(void **state)
{
    struct seen whole = {0};
    struct scratch scratch;
    (void)state;
    RUN(&whole, ALWAYS, "adapter=lora", "lora_dropout=0.1");
    scratch_init(&scratch);
    struct seen parts = {.scratch = &scratch};
#define PART ALWAYS, "adapter=lora", "lora_dropout=0.1", "save_strategy=steps"
    run_in(&parts, (const char *const[]){PART, "max_steps=7", NULL});
    run_in(&parts,
           (const char *const[]){PART, "max_steps=10", "resume_from_checkpoint=last", NULL});
    run_in(&parts,
           (const char *const[]){PART, "max_steps=16", "resume_from_checkpoint=last", NULL});
    expect_same_losses(&whole, &parts, "resumed");
    assert_int_equal(parts.totals.n_predicted, whole.totals.n_predicted);
    assert_int_equal(parts.n_measured, whole.n_measured);
    scratch_release(&scratch);
}

/* Other budgets while it runs, states and weights elsewhere, blocks recomputed: the same bits. */
static void a_plan_does_not_show(void **state)
{
    struct seen kept = {0}, other = {.ask_after = 8};
    (void)state;
    RUN(&kept, ALWAYS, "bf16=true");
    RUN(&other, ALWAYS, "bf16=true");
    assert_int_equal(other.n_changed, 1);
    expect_same_losses(&kept, &other, "budget");
    other.ask_after = 0;
    RUN(&other, ALWAYS, "bf16=true", "gradient_checkpointing=true", "activation_offloading=true");
    expect_same_losses(&kept, &other, "recomputed");
    cpu_opens_apart = true;
    RUN(&other, ALWAYS, "bf16=true", "offload_optimizer=true", "offload_param=true");
    expect_same_losses(&kept, &other, "offloaded");
    cpu_opens_apart = false;
}

/* States of what is predicted, the batches of a step and the probe batches. */
static void memory_is_in_the_plan(void **state)
{
    struct opened plain, o;
    (void)state;
    open_run(&plain, (const char *const[]){"optim=adamw", NULL});
    open_run(&o, (const char *const[]){ALWAYS, NULL});
    const struct storage *storage = &o.session.engine.work.storage;
    int64_t predicted = 0;
    for (size_t i = 0; i < storage->entries.n; i++) {
        const struct storage_entry *e = &storage->entries.items[i];
        if (strncmp(e->name, "predicted.", 10) == 0)
            predicted += align_up(e->n_bytes, tier_align(TIER_DEVICE));
    }
    const struct forecast *a = &plain.session.engine.forecast, *b = &o.session.engine.forecast;
    assert_true(predicted > 0);
    assert_int_equal(b->breakdown[MEMORY_OPTIMIZER] - a->breakdown[MEMORY_OPTIMIZER], predicted);
    assert_true(b->host_bytes - a->host_bytes >= (4 + 4) * 2 * 24 * 4);
    assert_true(b->fits);
    close_run(&plain);
    close_run(&o);
}

static const char network_text[] =
    "model: {input: [10], layers: [{linear: 8}, batch_norm, {linear: 4}], loss: cross_entropy}\n"
    "datasets: [{type: synthetic}]\n"
    "gradient_accumulation_steps: 4\n"
    "device: cpu\n";

static void refuse(const char *part, const char *text, const char *const *more)
{
    struct scratch scratch;
    struct config *cfg;
    struct session s;
    char path[SCRATCH_PATH];
    size_t n = 0;
    scratch_init(&scratch);
    scratch_write_text(&scratch, "tiny.yaml", text);
    while (more[n])
        n++;
    expect_ok(config_load(&cfg, scratch_path(&scratch, "tiny.yaml", path), more, n));
    enum status status = config_resolve(cfg, 1);
    if (status == OK)
        status = session_open(&s, cfg, &(struct session_options){.train = true});
    assert_int_equal(status, ERR_CONFIG);
    if (!strstr(status_message(), part))
        fail_msg("'%s' is not in '%s'", part, status_message());
    config_free(cfg);
    scratch_release(&scratch);
}

#define REFUSED(part, text, ...) \
    refuse(part, text, (const char *const[]){ALWAYS, __VA_ARGS__, NULL})

static void where_it_cannot_be_it_says_so(void **state)
{
    (void)state;
    REFUSED("with fp16", config_text, "fp16=true");
    REFUSED("with group_by_length", config_text, "group_by_length=true");
    REFUSED("with dynamic_batch", config_text, "dynamic_batch=true");
    REFUSED("with micro_batch_group", config_text, "micro_batch_group=2");
    REFUSED("batch norm", network_text, "exact_blocks=0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_subset_is_as_likely),
        cmocka_unit_test(what_is_measured_decides),
        cmocka_unit_test(the_mean_over_draws_is_the_gradient),
        cmocka_unit_test(a_perfect_prediction_has_no_variance),
        cmocka_unit_test(what_does_not_pay_leaves_every_bit),
        cmocka_unit_test(predicted_gradients_train),
        cmocka_unit_test(a_resumed_run_predicts_as_it_would_have),
        cmocka_unit_test(a_plan_does_not_show),
        cmocka_unit_test(memory_is_in_the_plan),
        cmocka_unit_test(where_it_cannot_be_it_says_so),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
