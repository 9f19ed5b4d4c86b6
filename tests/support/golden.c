#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "io/weights.h"
#include "io/weights_convert.h"

const char *const golden_names[] = {
    "gpt2",    "llama",     "llama3",    "qwen2", "qwen3",  "mistral", "olmo2", "smollm3", "phi3",
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gemma2", "gemma3",  "moe",   NULL};

/* Sanitizers look at code, of which the families share most. */
static const char *const some_names[] = {"gpt2", "llama3", "qwen2_moe", "gemma2", "moe", NULL};
const char *const *const golden_trained = SNUG_ASAN ? some_names : golden_names;

void expect_ok(enum status s)
{
    if (s != OK)
        fail_msg("%s: %s (%s)", status_name(s), status_message(), status_place());
}

void golden_open(struct golden *g, const char *name, const char *config_file,
                 const struct model_request *request)
{
    char path[600];
    memset(g, 0, sizeof(*g));
    snprintf(g->folder, sizeof(g->folder), "%s/tests/golden/%s", SNUG_SOURCE_DIR, name);
    snprintf(path, sizeof(path), "%s/golden.safetensors", g->folder);
    expect_ok(st_reader_open_file(&g->reader, path));
    snprintf(path, sizeof(path), "%s/%s", g->folder, config_file);
    json_t *config;
    expect_ok(json_read_file(&config, path, ERR_DATA));
    expect_ok(model_new(&g->model, config, &(struct key_origin){.where = path}));
    json_decref(config);
    expect_ok(graph_new(&g->graph, name));
    builder_init(&g->builder, g->graph);
    expect_ok(model_build(g->model, &g->builder, request, &g->built));
    expect_ok(graph_check(g->graph));
}

void golden_start(struct golden *g)
{
    struct eval_options options = {.poison = 0xA5};
    expect_ok(eval_new(&g->eval, g->graph, &options));
    struct weights *w;
    expect_ok(weights_open(&w, g->folder, g->built.params, g->built.n_params));
    for (int i = 0; i < g->built.n_params; i++) {
        struct tensor t = eval_tensor(g->eval, g->built.params[i].value);
        expect_ok(weights_read(w, i, &t, NULL));
    }
    weights_close(w);
    for (int i = 0; g->built.caches && i < g->built.n_blocks; i++) {
        struct tensor t = eval_tensor(g->eval, g->built.caches[i]);
        memset(t.data, 0, (size_t)tensor_bytes(&t));
    }
}

void golden_close(struct golden *g)
{
    eval_free(g->eval);
    graph_free(g->graph);
    model_free(g->model);
    st_reader_close(g->reader);
}

value_id golden_input(const struct golden *g, const char *name)
{
    value_id v = graph_find_value(g->graph, name);
    assert_int_not_equal(v, VALUE_NONE);
    return v;
}

value_id golden_loss(const struct golden *g)
{
    return g->built.sums[g->built.losses[0].sum].value;
}

value_id golden_count(const struct golden *g)
{
    return g->built.sums[g->built.losses[0].count].value;
}

struct golden_facts golden_facts_of(const char *name)
{
    struct golden g;
    struct golden_facts facts = {0};
    struct model_request r = {.purpose = MODEL_EVAL, .batch = 1, .seq_len = 4, .dtype = DTYPE_F32};
    golden_open(&g, name, "config.json", &r);
    facts.is_coupled = g.built.n_losses > 1;
    for (int i = 0; i < g.built.n_params; i++) {
        facts.has_experts |= g.built.params[i].n_experts > 0;
        facts.norms_sums |= strstr(g.built.params[i].name, "_post_norm") != NULL;
    }
    golden_close(&g);
    return facts;
}

int64_t golden_get(const struct golden *g, const char *name, double **out)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(g->reader, name, &t));
    enum dtype dtype;
    assert_true(weights_memory_dtype(t->dtype, &dtype));
    *out = mem_alloc(sizeof(double) * (size_t)t->n_elems);
    assert_non_null(*out);
    weights_to_double(dtype, t->data, t->n_elems, *out);
    return t->n_elems;
}

void golden_fill(const struct golden *g, value_id v, const char *name)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(g->reader, name, &t));
    struct tensor dst = eval_tensor(g->eval, v);
    assert_int_equal(t->n_bytes, tensor_bytes(&dst));
    memcpy(dst.data, t->data, (size_t)t->n_bytes);
}

double *golden_value(const struct golden *g, value_id v)
{
    struct tensor t = eval_tensor(g->eval, v);
    int64_t n = shape_elems(&t.shape);
    double *out = mem_alloc(sizeof(double) * (size_t)n);
    assert_non_null(out);
    weights_to_double(t.dtype, t.data, n, out);
    return out;
}

double relative_error(const double *a, const double *b, int64_t n)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(error) / (sqrt(norm) + 1e-30);
}
