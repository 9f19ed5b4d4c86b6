/* What each parameter is stored as: 16 bits and an f32 master, or f32 alone where its readers take
 * that at no cost; what that means for memory, gradients, the forward pass and evaluation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/half.h"
#include "io/weights.h"
#include "model/init.h"
#include "support/golden.h"
#include "support/golden_training.h"
#include "support/training.h"
#include "train/session.h"

static void init(struct training *t, const char *golden, const struct precision *p)
{
    training_init(t, &(struct training_options){
                         .golden = golden, .batch = 1, .seq_len = 8, .precision = p, .seed = 3});
}

/* Weights of norms, what makes a router's logits, and the one bias that goes into a GELU. */
static bool is_wide(const char *golden, const char *param)
{
    return strstr(param, "norm") || strstr(param, "router.") || strstr(param, "shared.gate.") ||
           (strcmp(golden, "gpt2") == 0 && strstr(param, "up.bias"));
}

static const struct storage_entry *master_of(const struct training *t, const char *param)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "master.%s", param);
    return storage_find(&t->engine.work.storage, name);
}

/* ---- formats and bytes ----------------------------------------------------------------------- */

static void norm_weights_and_gelu_biases_are_their_own_masters(void **state)
{
    struct precision roles[] = {precision_bf16(), precision_f16(), precision_bf16()};
    (void)state;
    roles[2].states = FORMAT_BF16;
    for (size_t r = 0; r < ARRAY_LEN(roles); r++) {
        for (const char *const *name = golden_trained; *name; name++) {
            struct training t;
            int64_t n_bytes = 0, n_wide = 0;
            init(&t, *name, &roles[r]);
            training_emit(&t);
            for (int i = 0; i < t.stage->io.n_params; i++) {
                const struct model_param *p = &t.stage->io.params[i];
                bool wide = is_wide(*name, p->name);
                const struct storage_entry *e = storage_find(&t.engine.work.storage, p->name);
                const struct storage_entry *master = master_of(&t, p->name);
                assert_int_equal(graph_value(t.stage->graph, p->value)->dtype,
                                 wide ? DTYPE_F32 : roles[r].weights);
                assert_int_equal(!master, wide);
                n_bytes += e->n_bytes + (master ? master->n_bytes : 0);
                n_bytes -= 6 * shape_elems(&p->shape);
                n_wide += wide ? shape_elems(&p->shape) : 0;
            }
            assert_true(n_wide > 0);
            assert_int_equal(n_bytes, -2 * n_wide);
            training_release(&t);
        }
    }
}

static void without_masters_every_parameter_has_16_bits(void **state)
{
    static const struct precision pure = {
        .weights = DTYPE_BF16, .gradients = DTYPE_F32, .states = FORMAT_F32};
    struct training t;
    (void)state;
    init(&t, "gpt2", &pure);
    for (int i = 0; i < t.stage->io.n_params; i++)
        assert_int_equal(graph_value(t.stage->graph, t.stage->io.params[i].value)->dtype,
                         DTYPE_BF16);
    training_emit(&t);
    training_release(&t);
}

static void every_gradient_has_the_dtype_that_was_asked_for(void **state)
{
    (void)state;
    for (int narrow = 0; narrow <= 1; narrow++) {
        struct precision p = precision_bf16();
        p.gradients = narrow ? DTYPE_BF16 : DTYPE_F32;
        for (const char *const *name = golden_trained; *name; name++) {
            struct training t;
            int n_updates = 0;
            init(&t, *name, &p);
            for (size_t k = 0; k < t.stage->graph->nodes.n; k++) {
                const struct node *n = graph_node(t.stage->graph, (node_id)k);
                if (n->op != OP_adamw && n->op != OP_adamw_master)
                    continue;
                if (graph_value(t.stage->graph, n->in[1])->dtype != p.gradients)
                    fail_msg("%s: the gradient of %s is %s", *name,
                             graph_value(t.stage->graph, n->in[0])->name,
                             dtype_name(graph_value(t.stage->graph, n->in[1])->dtype));
                n_updates++;
            }
            assert_int_equal(n_updates, t.stage->io.n_params);
            training_emit(&t);
            training_release(&t);
        }
    }
}

/* ---- what the forward pass sees -------------------------------------------------------------- */

/* A parameter changed a little, as an update does it: on the master where there is one, which the
 * parameter then is the rounding of. */
static void nudge(struct training *t, const char *param, float factor)
{
    void *weight =
        executor_storage_pointer(t->engine.executor, storage_find(&t->engine.work.storage, param));
    const struct storage_entry *master = master_of(t, param);
    float *x = master ? executor_storage_pointer(t->engine.executor, master) : weight;
    int64_t n = storage_find(&t->engine.work.storage, param)->n_bytes / (master ? 2 : 4);
    for (int64_t i = 0; i < n; i++) {
        x[i] *= factor;
        if (master)
            ((uint16_t *)weight)[i] = bf16_from_f32(x[i]);
    }
}

static float loss_with(const char *golden, const char *param, float factor)
{
    struct training t;
    training_init(
        &t, &(struct training_options){.golden = golden, .batch = 2, .seq_len = 16, .bf16 = true});
    training_emit(&t);
    training_start(&t);
    nudge(&t, param, factor);
    training_step(&t, 0);
    float loss = training_output(&t, "loss");
    training_release(&t);
    return loss;
}

/* Three thousandths are less than half a unit in the last place of a bf16 at 1. */
static void an_update_too_small_for_bf16_shows_in_the_forward_pass(void **state)
{
    static const struct {
        const char *golden, *param;
    } cases[] = {
        {"llama", "norm.weight"},
        {"gpt2", "norm.weight"},
        {"qwen3", "layers.0.q_norm.weight"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        float before = loss_with(cases[i].golden, cases[i].param, 1.0f);
        float after = loss_with(cases[i].golden, cases[i].param, 1.003f);
        print_message("%s %s: %.9g, %.9g\n", cases[i].golden, cases[i].param, (double)before,
                      (double)after);
        assert_true(before < after || before > after);
    }
}

/* ---- where a run starts ---------------------------------------------------------------------- */

static void open_bf16(struct session *s, struct config **cfg, const char *model,
                      const char *compile, bool evaluate)
{
    const char *overrides[] = {model,         "device=cpu", "max_seq_length=16",
                               "max_steps=1", "bf16=true",  "datasets.0.type=synthetic",
                               compile};
    expect_ok(config_load(cfg, NULL, overrides, ARRAY_LEN(overrides)));
    expect_ok(config_resolve(*cfg, 1));
    expect_ok(
        session_open(s, *cfg, &(struct session_options){.train = true, .evaluate = evaluate}));
}

static const void *stored(const struct session *s, const char *prefix, const char *param)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "%s%s", prefix, param);
    const struct storage_entry *e = storage_find(&s->engine.work.storage, name);
    return e ? executor_storage_pointer(s->engine.executor, e) : NULL;
}

/* Parameter i of the session as the file has it, or the seed: in f32. */
static struct tensor origin_of(const struct session *s, int i)
{
    const struct model_param *p = &s->engine.params[i];
    struct tensor t = {.dtype = DTYPE_F32, .shape = p->shape};
    t.data = mem_calloc((size_t)shape_elems(&t.shape), sizeof(float));
    assert_non_null(t.data);
    if (s->engine.model_folder) {
        struct weights *w;
        expect_ok(weights_open(&w, s->engine.model_folder, s->engine.params, s->engine.n_params));
        expect_ok(weights_read(w, i, &t, NULL));
        weights_close(w);
    } else {
        expect_ok(init_param(p, (uint64_t)s->config->seed, DTYPE_F32, 0, shape_elems(&t.shape),
                             t.data, NULL));
    }
    return t;
}

static void masters_start_from_what_was_never_rounded(void **state)
{
    static const char *const models[] = {
        "model_name_or_path=tests/golden/gpt2",
        "model={model_type: gpt2, n_embd: 64, n_head: 2, n_layer: 1, n_positions: 16, "
        "vocab_size: 50}"};
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct session s;
        struct config *cfg;
        open_bf16(&s, &cfg, models[m], "compile=auto", false);
        expect_ok(session_data(&s));
        expect_ok(session_start(&s));
        int64_t n_rounded = 0;
        for (int i = 0; i < s.engine.n_params; i++) {
            struct tensor origin = origin_of(&s, i);
            const float *x = origin.data, *master = stored(&s, "master.", s.engine.params[i].name);
            const void *weight = stored(&s, "", s.engine.params[i].name);
            assert_memory_equal(master ? master : weight, x, (size_t)tensor_bytes(&origin));
            for (int64_t k = 0; master && k < shape_elems(&origin.shape); k++) {
                uint16_t h = ((const uint16_t *)weight)[k];
                assert_int_equal(h, bf16_from_f32(x[k]));
                n_rounded += bf16_to_f32(h) < x[k] || bf16_to_f32(h) > x[k];
            }
            mem_free(origin.data);
        }
        assert_true(n_rounded > 0);
        session_close(&s);
        config_free(cfg);
    }
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Its program addresses the same storage: other dtypes would be refused. */
static void evaluation_reads_the_parameters_as_training_stores_them(void **state)
{
    static const char *const fused[] = {"compile=auto", "compile=none"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (const char *const *name = golden_trained; *name; name++) {
            char model[256];
            struct session s;
            struct config *cfg;
            (void)snprintf(model, sizeof(model), "model_name_or_path=tests/golden/%s", *name);
            open_bf16(&s, &cfg, model, fused[i], true);
            for (int k = 0; k < s.engine.n_params; k++) {
                const struct model_param *trained = &s.train->io.params[k];
                const struct model_param *read = &s.eval->io.params[k];
                assert_int_equal(graph_value(s.train->graph, trained->value)->dtype,
                                 graph_value(s.eval->graph, read->value)->dtype);
            }
            session_close(&s);
            config_free(cfg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_weights_and_gelu_biases_are_their_own_masters),
        cmocka_unit_test(without_masters_every_parameter_has_16_bits),
        cmocka_unit_test(every_gradient_has_the_dtype_that_was_asked_for),
        cmocka_unit_test(an_update_too_small_for_bf16_shows_in_the_forward_pass),
        cmocka_unit_test(masters_start_from_what_was_never_rounded),
        cmocka_unit_test(evaluation_reads_the_parameters_as_training_stores_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
