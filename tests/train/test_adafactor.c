/* Adafactor in whole runs: whatever a parameter holds, each tensor that files have is one to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/weights.h"
#include "io/checkpoint.h"
#include "ops/update_support.h"
#include "support/golden.h"
#include "support/network_run.h"

/* ---- what files have ------------------------------------------------------------------------- */

/* Tensor k of the parameter, as PyTorch has it. */
static struct shape shape_in_files(const struct model_param *p, int k)
{
    struct shape s = param_piece_shape(p, k);
    if (p->channels && !p->flat) {
        memmove(&s.dim[2], &s.dim[1], (size_t)(s.rank - 2) * sizeof(s.dim[0]));
        s.dim[1] = p->channels;
    }
    return s;
}

/* How many numbers transformers keeps of it: exp_avg_sq, or exp_avg_sq_row and exp_avg_sq_col. */
static int64_t moment_elems(struct shape s)
{
    if (s.rank < 2)
        return shape_elems(&s);
    int64_t n_rows = s.dim[s.rank - 2], n_columns = s.dim[s.rank - 1];
    return shape_elems(&s) / (n_rows * n_columns) * (n_rows + n_columns);
}

/* ---- what the graph has ---------------------------------------------------------------------- */

static const struct node *update_of(const struct graph *g, value_id param)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct node *n = graph_node(g, (node_id)i);
        if ((n->op == OP_adafactor || n->op == OP_adafactor_master) && n->in[0] == param)
            return n;
    }
    return NULL;
}

/* Whether it is updated: not what is frozen, or what the loss does not depend on. */
static bool expect_param(const struct graph *g, const struct model_param *p)
{
    const struct node *n = update_of(g, p->value);
    int64_t n_due = 0;
    if (!n)
        return false;
    assert_false(p->frozen);
    struct tensor param = {.shape = p->shape};
    struct op_call c = {.op = n->op, .in = &param, .attrs = n->attrs};
    struct factored_layout l = adafactor_layout(&c);
    if (factored_all_tensors(&l) != p->n_pieces)
        fail_msg("%s is updated as %lld tensors, and holds %d", p->name,
                 (long long)factored_all_tensors(&l), p->n_pieces);
    for (int k = 0; k < p->n_pieces; k++) {
        struct shape s = shape_in_files(p, k);
        assert_int_equal(factored_tensor_elems(&l, k), shape_elems(&s));
        n_due += moment_elems(s);
    }
    int64_t n_have = shape_elems(&graph_value(g, n->in[ADAFACTOR_V])->shape);
    if (n_have != n_due)
        fail_msg("the moment of %s has %lld numbers, not %lld", p->name, (long long)n_have,
                 (long long)n_due);
    return true;
}

/* A network by its text, or a language model by where it is; on made-up data. */
static void expect_model(const char *text, const char *model, const char *extra)
{
    const char *const settings[] = {"optim=adafactor",
                                    "max_steps=2",
                                    "per_device_train_batch_size=2",
                                    extra,
                                    model, /* NULL: a network needs no more */
                                    "max_seq_length=16",
                                    "datasets.0.type=synthetic",
                                    NULL};
    struct network_run x = {0};
    scratch_init(&x.scratch);
    expect_ok(network_load(&x, text, settings));
    const struct stage *s = engine_stage(&x.session.engine, STAGE_TRAIN);
    int n_trained = 0, n_updated = 0;
    for (int i = 0; i < s->io.n_params; i++) {
        n_trained += !s->io.params[i].frozen;
        n_updated += expect_param(s->graph, &s->io.params[i]);
    }
    assert_true(n_updated > 0 && n_updated >= n_trained * 9 / 10);
    network_finish(&x);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Projections together and apart, packed in files, transposed there; experts with and without
 * biases, adapters of both. */
static void tensors_of_language_models_have_moments_of_their_own(void **state)
{
    static const char *const models[] = {"llama",   "qwen2", "phi3",      "gpt2",
                                         "mixtral", "moe",   "qwen2_moe", "olmoe"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char model[64];
        (void)snprintf(model, sizeof(model), "model_name_or_path=tests/golden/%s", models[i]);
        expect_model(NULL, model, "bf16=false");
        expect_model(NULL, model, "bf16=true");
    }
    expect_model(NULL, "model_name_or_path=tests/golden/llama", "adapter=lora");
    expect_model(NULL, "model_name_or_path=tests/golden/mixtral", "adapter=lora");
}

/* Convolutions over one, two and three axes, transposed and of single channels; what follows a
 * flattened image. */
static void tensors_of_networks_have_moments_of_their_own(void **state)
{
    static const char cnn[] = "model:\n"
                              "  input: [8, 8, 2]\n"
                              "  layers:\n"
                              "    - conv: {out: 6, kernel: 3, padding: 1}\n"
                              "    - batch_norm\n"
                              "    - conv: {out: 6, kernel: [3, 2], groups: 6}\n"
                              "    - conv: {out: 4, kernel: 1}\n"
                              "    - flatten\n"
                              "    - linear: 4\n"
                              "  loss: cross_entropy\n";
    (void)state;
    expect_model(cnn, NULL, "bf16=false");
    expect_model("model: {model_type: three_branch, width_divisor: 16}\n", NULL, "bf16=false");
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static struct checkpoint_tensor *find_state(const struct engine_states *states, const char *name)
{
    for (size_t i = 0; i < states->list.n; i++) {
        if (strcmp(states->list.items[i].name, name) == 0)
            return &states->list.items[i];
    }
    fail_msg("there is no state '%s'", name);
    return NULL;
}

/* As versions and models have it whose q, k and v have the moment of their columns together. */
static void a_moment_of_another_layout_is_refused(void **state)
{
    const char *const settings[] = {"optim=adafactor",
                                    "max_steps=2",
                                    "per_device_train_batch_size=2",
                                    "model_name_or_path=tests/golden/llama",
                                    "max_seq_length=16",
                                    "datasets.0.type=synthetic",
                                    NULL};
    struct network_run x;
    struct checkpoint *c;
    struct engine_states states = {0};
    (void)state;
    network_train(&x, NULL, settings);
    expect_ok(checkpoint_open(&c, x.checkpoint, CHECKPOINT_FULL));
    expect_ok(engine_find_states(&x.session.engine, &states));
    const struct engine *e = &x.session.engine;
    const struct checkpoint_tensor *all = states.list.items;
    assert_true(checkpoint_takes_states(c, all, states.list.n));
    expect_ok(checkpoint_read_states(c, all, states.list.n, e->stage));

    struct checkpoint_tensor *v = find_state(&states, "v.layers.0.qkv.weight");
    const struct graph *g = engine_stage(e, STAGE_TRAIN)->graph;
    value_id param = graph_find_value(g, "layers.0.qkv.weight");
    v->tensor.shape = factored_shape(&graph_value(g, param)->shape, NULL);
    assert_false(checkpoint_takes_states(c, all, states.list.n));
    assert_int_equal(checkpoint_read_states(c, all, states.list.n, e->stage), ERR_CHECKPOINT);
    expect_message("'v.layers.0.qkv.weight' is F32 [1, 160], this run needs f32 [1, 96]");
    expect_message("version of Snug that saved it kept other numbers");
    vec_release(&states.list);
    checkpoint_close(c);
    network_finish(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_language_models_have_moments_of_their_own),
        cmocka_unit_test(tensors_of_networks_have_moments_of_their_own),
        cmocka_unit_test(a_moment_of_another_layout_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
