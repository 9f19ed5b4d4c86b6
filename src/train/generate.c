#include "train/generate.h"
#include "task/language.h"

#include <string.h>

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "engine/weights_origin.h"
#include "task/language.h"
#include "train/decoder.h"
#include "train/session.h"
#include "train/stop_tokens.h"

struct generator {
    struct generate_options options;
    struct inference x;
    struct tokenizer *tokenizer;
    struct token_list prompt;
    struct decoder decoder;
    int64_t max_new;
    char *weights;
};

/* ---- opening --------------------------------------------------------------------------------- */

enum status generate_check(const struct generate_options *o)
{
    if (o->max_new_tokens < 1)
        return FAIL(ERR_USAGE, "max_new_tokens is %lld; it must be at least 1",
                    (long long)o->max_new_tokens);
    if (!(o->temperature >= 0))
        return FAIL(ERR_USAGE, "temperature is %g; it must not be negative", o->temperature);
    if (o->top_k < 0)
        return FAIL(ERR_USAGE, "top_k is %lld; it must not be negative (0: all tokens)",
                    (long long)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return FAIL(ERR_USAGE, "top_p is %g; it must be above 0 and at most 1", o->top_p);
    return OK;
}

struct sampler generate_sampler(const struct generate_options *o)
{
    return (struct sampler){.temperature = o->temperature,
                            .top_k = o->top_k,
                            .top_p = o->top_p,
                            .rng = {.key = o->seed, .stream = 1}};
}

/* A prompt has at least one token: an empty one begins where documents begin. */
enum status generate_encode(const char *text, const struct tokenizer *tokenizer,
                            const struct model *model, struct token_list *out)
{
    TRY(tokenizer_encode(tokenizer, text, strlen(text), ENCODE_TEMPLATE, out));
    if (out->n == 0) {
        int64_t first = tokenizer_bos(tokenizer);
        first = first < 0 ? tokenizer_eos(tokenizer) : first;
        first = first < 0 ? model->language.bos_token : first;
        if (first < 0 || first >= model->language.vocab_size)
            return FAIL(ERR_USAGE, "the prompt is empty and the model has no token to begin with; "
                                   "give a prompt");
        TRY(vec_push(out, (int32_t)first));
    }
    for (size_t i = 0; i < out->n; i++) {
        if (out->items[i] >= model->language.vocab_size)
            return FAIL(ERR_DATA,
                        "token %d of the prompt is outside the model's vocabulary of %lld: the "
                        "tokenizer belongs to another model",
                        (int)out->items[i], (long long)model->language.vocab_size);
    }
    return OK;
}

static enum status choose_length(struct generator *g, const struct model *model)
{
    int64_t n = (int64_t)g->prompt.n;
    if (n >= model->language.context)
        return FAIL(ERR_USAGE, "the prompt has %lld tokens; the model has positions for %lld",
                    (long long)n, (long long)model->language.context);
    g->max_new = MIN(g->options.max_new_tokens, model->language.context - n);
    if (g->max_new < g->options.max_new_tokens)
        log_warn("the model has positions for %lld tokens: at most %lld new ones",
                 (long long)model->language.context, (long long)g->max_new);
    return OK;
}

/* Everything that sizes the programs. */
static enum status prepare_prompt(struct generator *g, const struct config *cfg)
{
    const struct model *model = g->x.engine->model;
    const char *folder = g->x.engine->model_folder;
    if (model->samples.n_fields > 0)
        return FAIL(ERR_USAGE,
                    "this network reads no text and writes none: snug eval tells how well "
                    "it does");
    TRY(language_open_tokenizer(cfg, model, folder, &g->tokenizer));
    g->decoder.tokenizer = g->tokenizer;
    TRY(stop_tokens_read(&g->decoder.stops, g->tokenizer, model, folder));
    str_add(&g->decoder.stop_texts[0], g->options.stop ? g->options.stop : "");
    TRY(str_status(&g->decoder.stop_texts[0]));
    TRY(generate_encode(g->options.prompt, g->tokenizer, model, &g->prompt));
    TRY(choose_length(g, model));
    return vec_reserve(&g->decoder.made, g->max_new);
}

static enum status load_model(struct generator *g, const struct config *cfg)
{
    struct engine *e = g->x.engine;
    /* The last token's successor is never computed: one position less. */
    int64_t n = (int64_t)g->prompt.n;
    struct inference_sizes sizes = {
        .chunk = MIN(n, (int64_t)PREFILL_CHUNK),
        .cache_len = n + g->max_new - 1,
        .scratch_bytes = sampler_scratch_bytes(e->model->language.vocab_size),
    };
    TRY(inference_plan(&g->x, &sizes));
    TRY(weights_origin(cfg, e->model, e->model_folder, g->options.checkpoint, &g->weights));
    if (!g->weights)
        log_warn("the weights are untrained, fresh from the seed: train first, or give "
                 "--checkpoint");
    return inference_load(&g->x, g->weights);
}

enum status generator_open(struct generator **out, const struct config *cfg,
                           const struct generate_options *o)
{
    const struct engine_options engine = {.hub_folder = o->hub_folder,
                                          .cache_folder = o->cache_folder,
                                          .n_threads = o->n_threads,
                                          .untimed = true};
    struct generator *g;
    enum status status;
    *out = NULL;
    TRY(generate_check(o));
    TRY(mem_try_array(&g, 1, sizeof(*g)));
    g->options = *o;
    g->decoder.x = &g->x;
    g->decoder.sampler = generate_sampler(o);
    TRY_GOTO(inference_open(&g->x, cfg, &engine), out);
    TRY_GOTO(prepare_prompt(g, cfg), out);
    TRY_GOTO(load_model(g, cfg), out);
    *out = g;
out:
    if (status != OK)
        generator_close(g);
    return status;
}

void generator_close(struct generator *g)
{
    if (!g)
        return;
    inference_close(&g->x);
    tokenizer_free(g->tokenizer);
    token_list_release(&g->prompt);
    decoder_release(&g->decoder);
    mem_free(g->weights);
    mem_free(g);
}

/* ---- generating ------------------------------------------------------------------------------ */

enum status generator_run(struct generator *g, generate_callback on_text, void *user,
                          const volatile sig_atomic_t *stop, struct generate_result *result)
{
    struct tensor logits;
    const struct decoding how = {.first = (int64_t)g->prompt.n,
                                 .max_new = g->max_new,
                                 .on_text = on_text,
                                 .user = user,
                                 .stop = stop};
    *result = (struct generate_result){.n_prompt_tokens = (int64_t)g->prompt.n,
                                       .tokens = &g->decoder.made,
                                       .arena_predicted = g->x.engine->work.n_bytes[TIER_DEVICE],
                                       .weights = g->weights};
    double start = now_s();
    TRY(inference_extend(&g->x, g->prompt.items, (int64_t)g->prompt.n, 0, &logits));
    double filled = now_s();
    enum status status = decoder_run(&g->decoder, logits, &how, &result->ended);
    result->prefill_s = filled - start;
    result->decode_s = now_s() - filled;
    result->text = str_text(&g->decoder.text);
    result->arena_bytes = executor_high_water(g->x.engine->executor, TIER_DEVICE);
    result->host_bytes = executor_high_water(g->x.engine->executor, TIER_HOST);
    result->resident_bytes = process_peak();
    result->resident_predicted = g->x.engine->forecast.resident_bytes;
    return status;
}
