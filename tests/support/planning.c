#include "support/planning.h"

#include <math.h>

#include "support/golden.h"
#include "support/paper_device.h"
#include "train/session.h"

const char paper_llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":8000,\"hidden_size\":1024,"
    "\"intermediate_size\":2752,\"num_hidden_layers\":8,\"num_attention_heads\":16,"
    "\"num_key_value_heads\":16,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5,"
    "\"hidden_act\":\"silu\",\"rope_theta\":10000.0}";
const char paper_gpt2[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":8000,\"n_positions\":1024,\"n_embd\":384,"
    "\"n_layer\":12,\"n_head\":12,\"layer_norm_epsilon\":1e-5}";

void on_paper_open(struct on_paper *x, const char *config, int batch, int n_micro)
{
    expect_ok(device_open_cpu(&x->device, 1));
    paper_device_make(&x->device);
    training_init(&x->t, &(struct training_options){.config = config,
                                                    .batch = batch,
                                                    .seq_len = 1024,
                                                    .n_micro = n_micro,
                                                    .max_grad_norm = 1,
                                                    .bf16 = true,
                                                    .device = &x->device});
    x->w = &x->t.engine.work;
}

void on_paper_close(struct on_paper *x)
{
    training_release(&x->t);
    device_close(&x->device);
}

static const struct search_bounds free_choice = {0};
static const struct decisions configured = {.recompute_cheap = true, .slice_bytes = SLICE_BYTES};

static struct limits limit(int64_t n_bytes)
{
    return (struct limits){.n_bytes = {n_bytes, (int64_t)1 << 40, LIMIT_OPEN}};
}

int64_t planned_needs(const struct workload *w)
{
    const struct limits limits = limit((int64_t)1 << 40);
    struct forecast f = {0};
    forecast_memory(&f, w, &limits);
    return f.budget.needs[TIER_DEVICE];
}

double planned_within(struct workload *w, int64_t n_bytes, const struct search_bounds *bounds)
{
    const struct limits limits = limit(n_bytes);
    struct decisions d = configured;
    double seconds;
    expect_ok(search_plan(w, &limits, bounds, NULL, &d, NULL));
    expect_ok(forecast_seconds(w, NULL, &seconds));
    return planned_needs(w) <= n_bytes ? seconds : HUGE_VAL;
}

double planned_seconds(struct workload *w, int64_t n_bytes)
{
    return planned_within(w, n_bytes, &free_choice);
}

int64_t planned_least(struct workload *w)
{
    const struct limits limits = limit(1);
    struct decisions d = configured;
    expect_ok(search_least(w, &limits, &free_choice, &d));
    return planned_needs(w);
}

struct planned_step plan_for_card(const char *gpu, const char *file, const char *const settings[],
                                  size_t n_settings)
{
    struct config *cfg;
    struct session s;
    expect_ok(config_load(&cfg, file, settings, n_settings));
    expect_ok(config_resolve(cfg, 1));
    expect_ok(session_open(&s, cfg, &(struct session_options){.train = true, .gpu = gpu}));
    const struct forecast *f = &s.engine.forecast;
    struct planned_step p = {f->fits ? f->step_s : HUGE_VAL, f->budget.needs[TIER_DEVICE],
                             f->arena_bytes, f->budget.needs[TIER_HOST]};
    session_close(&s);
    config_free(cfg);
    return p;
}
