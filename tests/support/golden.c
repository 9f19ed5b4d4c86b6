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
#include "io/peft.h"
#include "io/weights.h"
#include "io/weights_convert.h"

const char *const golden_names[] = {
    "gpt2",    "llama",     "llama3",    "qwen2", "qwen3",  "mistral", "olmo2", "smollm3", "phi3",
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gemma2", "gemma3",  "moe",   NULL};

const struct golden_adapter golden_adapters[] = {{"llama_lora", "llama"},
                                                 {"llama_patterns", "llama"},
                                                 {"qwen2_lora", "qwen2"},
                                                 {"qwen3_rslora", "qwen3"},
                                                 {"mistral_dora", "mistral"},
                                                 {"qwen2_dora", "qwen2"},
                                                 {"qwen2_bias", "qwen2"},
                                                 {"gpt2_lora", "gpt2"},
                                                 {"qwen3_moe_lora", "qwen3_moe"},
                                                 {"qwen2_moe_lora", "qwen2_moe"},
                                                 {"llama_qlora", "llama_nf4"},
                                                 {"qwen3_moe_qlora", "qwen3_moe_nf4"},
                                                 {NULL, NULL}};

enum { MOST_PARAMS = 128 };

/* Sanitizers look at code, of which the families share most. */
static const char *const some_names[] = {"gpt2", "llama3", "qwen2_moe", "gemma2", "moe", NULL};
const char *const *const golden_trained = SNUG_ASAN ? some_names : golden_names;

void expect_ok(enum status s)
{
    if (s != OK)
        fail_msg("%s: %s (%s)", status_name(s), status_message(), status_place());
}

static void open_model_of(struct golden *g, const char *name, const char *config_file)
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
}

static void build_model_of(struct golden *g, const struct model_request *request)
{
    expect_ok(graph_new(&g->graph, "golden"));
    builder_init(&g->builder, g->graph);
    expect_ok(model_build(g->model, &g->builder, request, &g->built));
    expect_ok(graph_check(g->graph));
}

void golden_open(struct golden *g, const char *name, const char *config_file,
                 const struct model_request *request)
{
    open_model_of(g, name, config_file);
    build_model_of(g, request);
}

void golden_open_adapted(struct golden *g, const struct golden_adapter *a,
                         const struct model_request *request)
{
    char path[600];
    struct adapter *adapter;
    open_model_of(g, a->base, "config.json");
    snprintf(g->adapter, sizeof(g->adapter), "%s/tests/golden/adapters/%s", SNUG_SOURCE_DIR,
             a->name);
    snprintf(path, sizeof(path), "%s/golden.safetensors", g->adapter);
    expect_ok(st_reader_open_file(&g->adapter_reader, path));
    expect_ok(pool_try(&g->model->pool, &adapter, sizeof(*adapter)));
    expect_ok(peft_read_config(adapter, &g->model->pool, g->adapter));
    g->model->adapter = adapter;
    build_model_of(g, request);
}

void golden_start(struct golden *g)
{
    struct eval_options options = {.poison = 0xA5};
    struct model_param base[MOST_PARAMS];
    struct tensor all[MOST_PARAMS], to[MOST_PARAMS];
    int n = 0;
    expect_ok(eval_new(&g->eval, g->graph, &options));
    assert_in_range(g->built.n_params, 1, MOST_PARAMS);
    for (int i = 0; i < g->built.n_params; i++) {
        all[i] = eval_tensor(g->eval, g->built.params[i].value);
        if (g->built.params[i].adapter)
            continue;
        base[n] = g->built.params[i];
        to[n++] = all[i];
    }
    expect_ok(weights_load(g->folder, base, n, to, NULL));
    if (g->adapter[0])
        expect_ok(
            peft_load(g->adapter, g->built.params, g->built.n_params, all, &host_stage, NULL));
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
    st_reader_close(g->adapter_reader);
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
    const struct st_tensor *t = g->adapter_reader ? st_reader_find(g->adapter_reader, name) : NULL;
    if (!t)
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
