/* generate.c: generation for users of the library. */
#include "train/generate.h"
#include "api/api_internal.h"
#include "base/alloc.h"

struct snug_generator {
    struct generator *generator;
};

enum snug_status snug_generator_open(struct snug_generator **out, const struct snug_config *config,
                                     const struct snug_settings *settings, const char *checkpoint,
                                     const struct snug_generate_request *request)
{
    struct snug_generator *g;
    struct generate_options o = {
        .hub_folder = settings_or_none(settings).hub_folder,
        .cache_folder = settings_or_none(settings).cache_folder,
        .n_threads = settings_or_none(settings).num_threads,
        .checkpoint = checkpoint_spec(config, checkpoint),
        .prompt = request->prompt,
        .max_new_tokens = request->max_new_tokens,
        .temperature = request->temperature,
        .top_k = request->top_k,
        .top_p = request->top_p,
        .seed = request->seed,
    };
    *out = NULL;
    enum status status = mem_try_array(&g, 1, sizeof(*g));
    if (status != OK)
        return public_status(status);
    status = generator_open(&g->generator, config->config, &o);
    if (status == OK)
        *out = g;
    else
        mem_free(g);
    return public_status(status);
}

void snug_generator_close(struct snug_generator *g)
{
    if (!g)
        return;
    generator_close(g->generator);
    mem_free(g);
}

/* The caller's callback behind ours. */
struct listener {
    snug_text_callback on_text;
    void *user;
};

static enum status tell(void *user, const char *text, size_t n_bytes)
{
    const struct listener *l = user;
    return l->on_text ? internal_status(l->on_text(l->user, text, n_bytes)) : OK;
}

enum snug_status snug_generate(struct snug_generator *g, snug_text_callback on_text, void *user,
                               const volatile sig_atomic_t *stop, struct snug_generation *out)
{
    struct generate_result r;
    struct listener l = {on_text, user};
    enum status status = generator_run(g->generator, tell, &l, stop, &r);
    *out = (struct snug_generation){
        .n_prompt_tokens = r.n_prompt_tokens,
        .n_new_tokens = (int64_t)r.tokens->n,
        .tokens = r.tokens->items,
        .text = r.text ? r.text : "",
        .ended = r.ended,
        .prefill_s = r.prefill_s,
        .decode_s = r.decode_s,
        .arena_bytes = r.arena_bytes,
        .arena_predicted = r.arena_predicted,
        .host_bytes = r.host_bytes,
        .resident_bytes = r.resident_bytes,
        .resident_predicted = r.resident_predicted,
        .weights = r.weights,
    };
    return public_status(status);
}
