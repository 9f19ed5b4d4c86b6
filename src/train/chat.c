#include "train/chat.h"

#include <string.h>

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/machine.h"
#include "engine/weights_origin.h"
#include "task/language.h"
#include "train/decoder.h"
#include "train/stop_tokens.h"

struct chat {
    struct chat_options options;
    struct inference x;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct decoder decoder;
    VEC(struct chat_message) messages; /* texts are its own */
    size_t n_system;                   /* of them, at the front */
    struct spanned_text prompt;
    struct token_list ids;    /* of the prompt */
    struct token_list cached; /* whose keys and values are in place */
    char *weights;
};

/* ---- opening --------------------------------------------------------------------------------- */

/* What ends an answer: a token where it is one, and as a text. */
static enum status add_stops(struct chat *c, const struct model *model)
{
    struct decoder *d = &c->decoder;
    const char *given = c->options.generate.stop;
    TRY(stop_tokens_read(&d->stops, c->tokenizer, model, c->x.engine->model_folder));
    chat_template_end(c->template, &d->stop_texts[0]);
    TRY(str_status(&d->stop_texts[0]));
    int32_t end = tokenizer_find(c->tokenizer, str_text(&d->stop_texts[0]));
    if (end >= 0)
        TRY(vec_push(&d->stops, end));
    str_add(&d->stop_texts[1], given ? given : "");
    return str_status(&d->stop_texts[1]);
}

static enum status add_message(struct chat *c, enum chat_role role, const char *text,
                               size_t n_bytes)
{
    char *copy = mem_alloc(n_bytes + 1);
    if (!copy)
        return FAIL(ERR_MEMORY, "out of memory for a message");
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    const struct chat_message m = {.role = role, .text = copy, .n = n_bytes};
    enum status status = vec_push(&c->messages, m);
    if (status != OK)
        mem_free(copy);
    return status;
}

static void drop_messages(struct chat *c, size_t n_kept)
{
    while (c->messages.n > n_kept) {
        const void *text = c->messages.items[--c->messages.n].text;
        mem_free((void *)(uintptr_t)text);
    }
}

static enum status open_text(struct chat *c, const struct config *cfg)
{
    const struct model *model = c->x.engine->model;
    const char *folder = c->x.engine->model_folder, *system = c->options.system;
    if (model->samples.n_fields > 0)
        return FAIL(ERR_USAGE, "this network reads no text and writes none");
    TRY(language_open_tokenizer(cfg, model, folder, &c->tokenizer));
    TRY(language_open_template(cfg, language_tokenizer_name(cfg, folder), c->tokenizer,
                               &c->template));
    c->decoder.x = &c->x;
    c->decoder.tokenizer = c->tokenizer;
    c->decoder.sampler = generate_sampler(&c->options.generate);
    if (system)
        TRY(add_message(c, CHAT_SYSTEM, system, strlen(system)));
    c->n_system = c->messages.n;
    return add_stops(c, model);
}

static enum status load_model(struct chat *c, const struct config *cfg)
{
    struct engine *e = c->x.engine;
    int64_t context = e->model->language.context;
    if (c->options.context > 0)
        context = MIN(context, c->options.context);
    const struct inference_sizes sizes = {
        .chunk = MIN(context, (int64_t)PREFILL_CHUNK),
        .cache_len = context,
        .scratch_bytes = sampler_scratch_bytes(e->model->language.vocab_size),
    };
    TRY(inference_plan(&c->x, &sizes));
    TRY(weights_origin(cfg, e->model, e->model_folder, c->options.generate.checkpoint,
                       &c->weights));
    if (!c->weights)
        log_warn("the weights are untrained, fresh from the seed: train first, or give "
                 "--checkpoint");
    return inference_load(&c->x, c->weights);
}

enum status chat_open(struct chat **out, const struct config *cfg, const struct chat_options *o)
{
    const struct engine_options engine = {.hub_folder = o->generate.hub_folder,
                                          .cache_folder = o->generate.cache_folder,
                                          .n_threads = o->generate.n_threads,
                                          .untimed = true};
    struct chat *c;
    enum status status;
    *out = NULL;
    TRY(generate_check(&o->generate));
    TRY(mem_try_array(&c, 1, sizeof(*c)));
    c->options = *o;
    TRY_GOTO(inference_open(&c->x, cfg, &engine), out);
    TRY_GOTO(open_text(c, cfg), out);
    TRY_GOTO(load_model(c, cfg), out);
    *out = c;
out:
    if (status != OK)
        chat_close(c);
    return status;
}

void chat_close(struct chat *c)
{
    if (!c)
        return;
    inference_close(&c->x);
    drop_messages(c, 0);
    vec_release(&c->messages);
    chat_template_free(c->template);
    tokenizer_free(c->tokenizer);
    decoder_release(&c->decoder);
    spanned_text_release(&c->prompt);
    token_list_release(&c->ids);
    token_list_release(&c->cached);
    mem_free(c->weights);
    mem_free(c);
}

void chat_reset(struct chat *c)
{
    drop_messages(c, c->n_system);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static enum status encode_prompt(struct chat *c)
{
    const struct model *model = c->x.engine->model;
    spanned_text_clear(&c->prompt);
    c->ids.n = 0;
    TRY(chat_render(c->template, c->messages.items, c->messages.n, 1, &c->prompt));
    TRY(tokenizer_encode(c->tokenizer, str_text(&c->prompt.text), c->prompt.text.n, 0, &c->ids));
    for (size_t i = 0; i < c->ids.n; i++) {
        if (c->ids.items[i] >= model->language.vocab_size)
            return FAIL(ERR_DATA,
                        "token %d of the conversation is outside the model's vocabulary of %lld: "
                        "the tokenizer belongs to another model",
                        (int)c->ids.items[i], (long long)model->language.vocab_size);
    }
    if ((int64_t)c->ids.n >= c->x.sizes.cache_len)
        return FAIL(ERR_USAGE,
                    "the conversation has %zu tokens and there is room for %lld: begin anew "
                    "(/reset), or give it more with --context",
                    c->ids.n, (long long)c->x.sizes.cache_len);
    return OK;
}

/* The prompt through the model, but for what is in the cache already. */
static enum status prefill(struct chat *c, struct tensor *logits)
{
    size_t same = 0, n = c->ids.n;
    while (same < c->cached.n && same + 1 < n && c->cached.items[same] == c->ids.items[same])
        same++; /* the last one has to go through, for its logits */
    c->cached.n = same;
    TRY(inference_extend(&c->x, c->ids.items + same, (int64_t)(n - same), (int64_t)same, logits));
    for (size_t i = same; i < n; i++)
        TRY(vec_push(&c->cached, c->ids.items[i]));
    return OK;
}

/* The last token that was drawn did not go through the model. */
static enum status note_cached(struct chat *c)
{
    for (size_t i = 0; i + 1 < c->decoder.made.n; i++)
        TRY(vec_push(&c->cached, c->decoder.made.items[i]));
    return OK;
}

static enum status answer(struct chat *c, struct decoding *how, struct generate_result *result)
{
    struct tensor logits;
    double start = now_s();
    TRY(encode_prompt(c));
    how->first = (int64_t)c->ids.n;
    how->max_new = MIN(c->options.generate.max_new_tokens, c->x.sizes.cache_len - how->first);
    result->n_prompt_tokens = how->first;
    TRY(prefill(c, &logits));
    double filled = now_s();
    result->prefill_s = filled - start;
    enum status status = decoder_run(&c->decoder, logits, how, &result->ended);
    result->decode_s = now_s() - filled;
    TRY(status);
    TRY(note_cached(c));
    return add_message(c, CHAT_ASSISTANT, str_text(&c->decoder.text), c->decoder.text.n);
}

enum status chat_say(struct chat *c, const char *text, size_t n_bytes, generate_callback on_text,
                     void *user, const volatile sig_atomic_t *stop, struct generate_result *result)
{
    struct decoding how = {.on_text = on_text, .user = user, .stop = stop};
    size_t n_before = c->messages.n;
    *result = (struct generate_result){.tokens = &c->decoder.made,
                                       .arena_predicted = c->x.engine->work.n_bytes[TIER_DEVICE],
                                       .weights = c->weights};
    TRY(add_message(c, CHAT_USER, text, n_bytes));
    enum status status = answer(c, &how, result);
    if (status != OK)
        drop_messages(c, n_before);
    result->text = str_text(&c->decoder.text);
    result->arena_bytes = executor_high_water(c->x.engine->executor, TIER_DEVICE);
    result->host_bytes = executor_high_water(c->x.engine->executor, TIER_HOST);
    result->resident_bytes = process_peak();
    result->resident_predicted = c->x.engine->forecast.resident_bytes;
    return status;
}
