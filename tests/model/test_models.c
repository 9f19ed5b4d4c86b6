/* Every architecture against an independent implementation: logits, loss, the gradient of every
 * parameter, decoding with a cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "base/alloc.h"
#include "support/golden.h"

static struct model_request request(enum model_purpose purpose, enum dtype dtype)
{
    return (struct model_request){
        .purpose = purpose, .batch = GOLDEN_BATCH, .seq_len = GOLDEN_LENGTH, .dtype = dtype};
}

static void expect_close(const char *model, const char *what, double error, double tolerance)
{
    if (!(error <= tolerance))
        fail_msg("%s: %s differs by %.3g (allowed %.3g)", model, what, error, tolerance);
}

static void check_logits(const char *name, const char *config_file, enum dtype dtype,
                         double tolerance)
{
    struct golden g;
    struct model_request r = request(MODEL_SCORE, dtype);
    golden_open(&g, name, config_file, &r);
    golden_start(&g);
    golden_fill(&g, golden_input(&g, "tokens"), "tokens");
    expect_ok(eval_run(g.eval));
    double *due, *got = golden_value(&g, g.built.logits);
    int64_t n = golden_get(&g, "logits", &due);
    assert_int_equal(n, GOLDEN_BATCH * GOLDEN_LENGTH * GOLDEN_VOCAB);
    expect_close(name, "logits", relative_error(got, due, n), tolerance);
    mem_free(due);
    mem_free(got);
    golden_close(&g);
}

static void logits_equal_those_of_transformers(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        check_logits(golden_names[i], "config.json", DTYPE_F32, 1e-5);
        check_logits(golden_names[i], "config_v4.json", DTYPE_F32, 1e-5);
    }
}

static void logits_in_double_are_closer_still(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++)
        check_logits(golden_names[i], "config.json", DTYPE_F64, 5e-7);
}

/* Compares the gradient of one parameter with the golden tensors it is stacked from. */
static void check_gradient(const struct golden *g, const char *model, const struct model_param *p,
                           value_id grad, const char *prefix, double tolerance)
{
    assert_int_not_equal(grad, VALUE_NONE);
    assert_true(shape_equal(&graph_value(g->graph, grad)->shape, &p->shape));
    double *all = golden_value(g, grad), *at = all;
    int64_t n_inner = param_row_elems(p);
    for (int k = 0; k < p->n_pieces; k++) {
        char name[256];
        double *due;
        snprintf(name, sizeof(name), "%s.%s", prefix, p->pieces[k].name);
        int64_t rows = p->pieces[k].rows, n = rows * n_inner;
        if (st_reader_find(g->reader, name)) {
            assert_int_equal(golden_get(g, name, &due), n);
            double *ours = mem_alloc(sizeof(double) * (size_t)n);
            assert_non_null(ours);
            for (int64_t i = 0; i < n; i++)
                ours[p->transposed ? (i % n_inner) * rows + i / n_inner : i] = at[i];
            expect_close(model, name, relative_error(ours, due, n), tolerance);
            mem_free(ours);
            mem_free(due);
        } else {
            assert_string_not_equal(prefix, "grad"); /* these are complete */
        }
        at += n;
    }
    mem_free(all);
}

static double count_targets(const struct golden *g)
{
    struct tensor t = eval_tensor(g->eval, golden_input(g, "targets"));
    int n = 0;
    for (int64_t i = 0; i < shape_elems(&t.shape); i++)
        n += ((const int32_t *)t.data)[i] >= 0;
    return n;
}

/* The losses of routing, which come after the first, by their names. */
static void check_routing_losses(const struct golden *g, const char *model, double count,
                                 double tolerance)
{
    static const char *const names[] = {"balance_loss", "router_z_loss"};
    int n_due = 1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        n_due += st_reader_find(g->reader, names[i]) != NULL;
    bool has_experts = strcmp(g->built.sums[g->built.n_sums - 1].name, "expert_load") == 0;
    assert_int_equal(g->built.n_losses, n_due + has_experts); /* which has no weight */
    for (int i = 1; i < n_due; i++) {
        const struct graph_output *sum = &g->built.sums[g->built.losses[i].sum];
        double *due, *got = golden_value(g, sum->value);
        golden_get(g, sum->name, &due);
        got[0] /= count;
        expect_close(model, sum->name, relative_error(got, due, 1), tolerance);
        mem_free(got);
        mem_free(due);
    }
}

static void check_training(const char *name, const struct model_request *r, const char *loss_name,
                           const char *prefix, double tolerance)
{
    struct golden g;
    value_id wanted[64], grads[64];
    struct autodiff_root roots[MODEL_MOST_LOSSES];
    golden_open(&g, name, "config.json", r);
    value_id seed =
        build_value(&g.builder, "seed", ROLE_INPUT, graph_value(g.graph, golden_loss(&g))->dtype,
                    shape_of(1, INT64_C(1)));
    int n_roots = 0;
    for (; n_roots < g.built.n_losses && g.built.losses[n_roots].weight > 0; n_roots++) {
        const struct model_loss *l = &g.built.losses[n_roots];
        value_id own =
            build(&g.builder, OP_scale, IN(seed), ATTRS({.name = "factor", .f = l->weight}));
        roots[n_roots] = (struct autodiff_root){g.built.sums[l->sum].value, own};
    }
    for (int i = 0; i < g.built.n_params; i++)
        wanted[i] = g.built.params[i].value;
    expect_ok(
        autodiff_roots(g.graph, roots, (size_t)n_roots, wanted, (size_t)g.built.n_params, grads));
    expect_ok(graph_check(g.graph));
    golden_start(&g);
    golden_fill(&g, golden_input(&g, "tokens"), "tokens");
    golden_fill(&g, golden_input(&g, "targets"), "targets");
    double count = count_targets(&g);
    struct tensor s = eval_tensor(g.eval, seed);
    if (s.dtype == DTYPE_F64)
        *(double *)s.data = 1 / count;
    else
        *(float *)s.data = (float)(1 / count);
    expect_ok(eval_run(g.eval));

    double *loss = golden_value(&g, golden_loss(&g)), *n = golden_value(&g, golden_count(&g)), *due;
    assert_true(n[0] == count);
    loss[0] /= count;
    golden_get(&g, loss_name, &due);
    expect_close(name, loss_name, relative_error(loss, due, 1), tolerance);
    check_routing_losses(&g, name, count, tolerance);
    for (int i = 0; i < g.built.n_params; i++)
        check_gradient(&g, name, &g.built.params[i], grads[i], prefix, tolerance);
    mem_free(loss);
    mem_free(n);
    mem_free(due);
    golden_close(&g);
}

static void loss_and_every_gradient_equal_those_of_transformers(void **state)
{
    (void)state;
    struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
    for (int i = 0; golden_names[i]; i++)
        check_training(golden_names[i], &r, "loss", "grad", 1e-5);
}

static void gradients_in_double_are_closer_still(void **state)
{
    (void)state;
    struct model_request r = request(MODEL_TRAIN, DTYPE_F64);
    for (int i = 0; golden_names[i]; i++)
        check_training(golden_names[i], &r, "loss", "grad", 2e-6);
}

static void label_smoothing_and_z_loss_equal_those_of_torch(void **state)
{
    (void)state;
    struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
    r.label_smoothing = 0.1;
    r.z_loss = 0.001;
    r.loss_chunks = 5;
    for (int i = 0; golden_names[i]; i++)
        check_training(golden_names[i], &r, "smooth_loss", "smooth_grad", 1e-5);
}

static void queries_keys_and_values_are_clipped(void **state)
{
    struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
    (void)state;
    check_logits("olmoe_clip", "config.json", DTYPE_F64, 5e-7);
    check_training("olmoe_clip", &r, "loss", "grad", 1e-5);
}

/* Weights and activations are rounded: in double as PyTorch does, and in f32 the same way where no
 * number is next to the middle between two, as in the golden batch. */
static void a_bitnet_is_what_transformers_computes(void **state)
{
    struct model_request plain = request(MODEL_TRAIN, DTYPE_F32),
                         wide = request(MODEL_TRAIN, DTYPE_F64);
    (void)state;
    check_logits("bitnet", "config.json", DTYPE_F64, 5e-7);
    check_training("bitnet", &wide, "loss", "grad", 2e-6);
    check_logits("bitnet", "config_v4.json", DTYPE_F32, 1e-5);
    check_training("bitnet", &plain, "loss", "grad", 1e-5);
}

/* One call of a decoding graph: `n` tokens of every sequence from `first` on. */
static void decode(struct golden *g, const int32_t *tokens, int first, int n)
{
    int32_t *in = eval_tensor(g->eval, golden_input(g, "tokens")).data;
    int32_t *positions = eval_tensor(g->eval, g->built.positions).data;
    *(int32_t *)eval_tensor(g->eval, g->built.position).data = first;
    for (int t = 0; t < n; t++) {
        positions[t] = first + t;
        for (int b = 0; b < GOLDEN_BATCH; b++)
            in[b * n + t] = tokens[b * GOLDEN_LENGTH + first + t];
    }
    expect_ok(eval_run(g->eval));
}

static void expect_logits_at(const struct golden *g, const char *name, const double *all, int at)
{
    double *got = golden_value(g, g->built.logits);
    for (int b = 0; b < GOLDEN_BATCH; b++) {
        const double *due = all + (b * GOLDEN_LENGTH + at) * GOLDEN_VOCAB;
        expect_close(name, "decoded logits",
                     relative_error(got + b * GOLDEN_VOCAB, due, GOLDEN_VOCAB), 1e-5);
    }
    mem_free(got);
}

static void copy_caches(const struct golden *to, const struct golden *from)
{
    for (int i = 0; i < to->built.n_blocks; i++) {
        struct tensor dst = eval_tensor(to->eval, to->built.caches[i]);
        struct tensor src = eval_tensor(from->eval, from->built.caches[i]);
        assert_int_equal(tensor_bytes(&dst), tensor_bytes(&src));
        memcpy(dst.data, src.data, (size_t)tensor_bytes(&dst));
    }
}

static void decoding_with_a_cache_gives_the_same_logits(void **state)
{
    (void)state;
    enum { PREFILL = 7 };
    for (int i = 0; golden_names[i]; i++) {
        struct golden prefill, next;
        struct model_request r = request(MODEL_DECODE, DTYPE_F32);
        r.cache_len = GOLDEN_LENGTH + 3;
        r.seq_len = PREFILL;
        golden_open(&prefill, golden_names[i], "config.json", &r);
        r.seq_len = 1;
        golden_open(&next, golden_names[i], "config.json", &r);
        golden_start(&prefill);
        golden_start(&next);
        const struct st_tensor *tokens;
        double *logits;
        int32_t ids[GOLDEN_BATCH * GOLDEN_LENGTH];
        expect_ok(st_reader_get(prefill.reader, "tokens", &tokens));
        memcpy(ids, tokens->data, sizeof(ids));
        golden_get(&prefill, "logits", &logits);
        decode(&prefill, ids, 0, PREFILL);
        expect_logits_at(&prefill, golden_names[i], logits, PREFILL - 1);
        copy_caches(&next, &prefill);
        for (int t = PREFILL; t < GOLDEN_LENGTH; t++) {
            decode(&next, ids, t, 1);
            expect_logits_at(&next, golden_names[i], logits, t);
        }
        mem_free(logits);
        golden_close(&prefill);
        golden_close(&next);
    }
}

static void parameters_come_in_one_order_for_every_purpose(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        struct golden first;
        struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
        r.cache_len = GOLDEN_LENGTH;
        golden_open(&first, golden_names[i], "config.json", &r);
        for (int purpose = MODEL_EVAL; purpose <= MODEL_DECODE; purpose++) {
            struct golden other;
            r.purpose = (enum model_purpose)purpose;
            golden_open(&other, golden_names[i], "config.json", &r);
            assert_int_equal(first.built.n_params, other.built.n_params);
            for (int k = 0; k < first.built.n_params; k++) {
                const struct model_param *a = &first.built.params[k], *b = &other.built.params[k];
                assert_string_equal(a->name, b->name);
                assert_true(shape_equal(&a->shape, &b->shape));
                assert_string_equal(graph_value(other.graph, b->value)->name, b->name);
            }
            golden_close(&other);
        }
        golden_close(&first);
    }
}

static void every_node_of_a_layer_is_in_its_block(void **state)
{
    (void)state;
    struct golden g;
    struct model_request r = request(MODEL_TRAIN, DTYPE_F32);
    golden_open(&g, "llama", "config.json", &r);
    int n_in_block[2] = {0}, n_outside = 0;
    for (size_t i = 0; i < g.graph->nodes.n; i++) {
        int block = g.graph->nodes.items[i].block;
        assert_in_range(block + 1, 0, 2);
        if (block == BLOCK_NONE)
            n_outside++;
        else
            n_in_block[block]++;
    }
    assert_int_equal(n_in_block[0],
                     11); /* norm qkv rotary attention out add norm up gate down add */
    assert_int_equal(n_in_block[0], n_in_block[1]);
    assert_int_equal(n_outside, 3); /* embedding, norm, loss */
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_those_of_transformers),
        cmocka_unit_test(logits_in_double_are_closer_still),
        cmocka_unit_test(loss_and_every_gradient_equal_those_of_transformers),
        cmocka_unit_test(gradients_in_double_are_closer_still),
        cmocka_unit_test(queries_keys_and_values_are_clipped),
        cmocka_unit_test(a_bitnet_is_what_transformers_computes),
        cmocka_unit_test(label_smoothing_and_z_loss_equal_those_of_torch),
        cmocka_unit_test(decoding_with_a_cache_gives_the_same_logits),
        cmocka_unit_test(parameters_come_in_one_order_for_every_purpose),
        cmocka_unit_test(every_node_of_a_layer_is_in_its_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
