/* generate.c: generation for users of the library. */
#include "train/generate.h"

#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "train/chat.h"

struct snug_generator {
    struct generator *generator;
};

static struct generate_options options_of(const struct snug_config *config,
                                          const struct snug_settings *settings,
                                          const char *checkpoint,
                                          const struct snug_generate_request *request)
{
    return (struct generate_options){
        .hub_folder = settings_or_none(settings).hub_folder,
        .cache_folder = settings_or_none(settings).cache_folder,
        .n_threads = settings_or_none(settings).num_threads,
        .checkpoint = checkpoint_spec(config, checkpoint),
        .prompt = request->prompt ? request->prompt : "",
        .stop = request->stop,
        .max_new_tokens = request->max_new_tokens,
        .temperature = request->temperature,
        .top_k = request->top_k,
        .top_p = request->top_p,
        .seed = request->seed,
    };
}

enum snug_status snug_generator_open(struct snug_generator **out, const struct snug_config *config,
                                     const struct snug_settings *settings, const char *checkpoint,
                                     const struct snug_generate_request *request)
{
    struct snug_generator *g;
    struct generate_options o = options_of(config, settings, checkpoint, request);
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

static struct snug_generation generation_of(const struct generate_result *r)
{
    return (struct snug_generation){
        .n_prompt_tokens = r->n_prompt_tokens,
        .n_new_tokens = (int64_t)r->tokens->n,
        .tokens = r->tokens->items,
        .text = r->text ? r->text : "",
        .ended = r->ended,
        .prefill_s = r->prefill_s,
        .decode_s = r->decode_s,
        .arena_bytes = r->arena_bytes,
        .arena_predicted = r->arena_predicted,
        .host_bytes = r->host_bytes,
        .resident_bytes = r->resident_bytes,
        .resident_predicted = r->resident_predicted,
        .weights = r->weights,
    };
}

enum snug_status snug_generate(struct snug_generator *g, snug_text_callback on_text, void *user,
                               const volatile sig_atomic_t *stop, struct snug_generation *out)
{
    struct generate_result r;
    struct listener l = {on_text, user};
    enum status status = generator_run(g->generator, tell, &l, stop, &r);
    *out = generation_of(&r);
    return public_status(status);
}

/* ---- conversations --------------------------------------------------------------------------- */

struct snug_chat {
    struct chat *chat;
};

enum snug_status snug_chat_open(struct snug_chat **out, const struct snug_config *config,
                                const struct snug_settings *settings, const char *checkpoint,
                                const struct snug_generate_request *request, const char *system,
                                int64_t context)
{
    struct snug_chat *c;
    const struct chat_options o = {.generate = options_of(config, settings, checkpoint, request),
                                   .system = system,
                                   .context = context};
    *out = NULL;
    enum status status = mem_try_array(&c, 1, sizeof(*c));
    if (status != OK)
        return public_status(status);
    status = chat_open(&c->chat, config->config, &o);
    if (status == OK)
        *out = c;
    else
        mem_free(c);
    return public_status(status);
}

void snug_chat_close(struct snug_chat *c)
{
    if (!c)
        return;
    chat_close(c->chat);
    mem_free(c);
}

enum snug_status snug_chat_say(struct snug_chat *c, const char *text, snug_text_callback on_text,
                               void *user, const volatile sig_atomic_t *stop,
                               struct snug_generation *out)
{
    struct generate_result r;
    struct listener l = {on_text, user};
    enum status status = chat_say(c->chat, text, strlen(text), tell, &l, stop, &r);
    *out = generation_of(&r);
    return public_status(status);
}

void snug_chat_reset(struct snug_chat *c)
{
    chat_reset(c->chat);
}
