#include "train/sample_texts.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "task/language.h"
#include "train/decoder.h"
#include "train/stop_tokens.h"

struct sample_texts {
    const struct config *config; /* borrowed */
    struct tokenizer *tokenizer;
    struct token_list *prompts; /* [n] */
    int n;
    struct inference_sizes sizes;
    struct inference x;
    struct decoder decoder;
};

/* ---- opening --------------------------------------------------------------------------------- */

/* New tokens after a prompt: as many as are asked for and the model has positions for. */
static int64_t most_new(const struct sample_texts *t, const struct model *model, int i)
{
    return MIN(t->config->sample_max_new_tokens,
               model->language.context - (int64_t)t->prompts[i].n);
}

static enum status add_prompt(struct sample_texts *t, const struct model *model, int i)
{
    const struct config *cfg = t->config;
    const char *text = cfg->sample_prompts.items[i], *where = config_where(cfg, "sample_prompts");
    enum status status = generate_encode(text, t->tokenizer, model, &t->prompts[i]);
    if (status != OK)
        return status_prefix(status, "%s", where);
    int64_t n = (int64_t)t->prompts[i].n, n_new = most_new(t, model, i);
    if (n_new < 1)
        return FAIL(ERR_CONFIG,
                    "%s: prompt %d of sample_prompts has %lld tokens, and the model has positions "
                    "for %lld: shorten it",
                    where, i + 1, (long long)n, (long long)model->language.context);
    /* The last token's successor is never computed: one position less. */
    t->sizes.cache_len = MAX(t->sizes.cache_len, n + n_new - 1);
    return OK;
}

static enum status open_prompts(struct sample_texts *t, const struct engine *e)
{
    const struct model *model = e->model;
    const struct config *cfg = e->config;
    if (!model || model->samples.n_fields > 0)
        return FAIL(ERR_CONFIG, "%s: sample_prompts: this network reads no text and writes none",
                    config_where(cfg, "sample_prompts"));
    TRY(language_open_tokenizer(cfg, model, e->model_folder, &t->tokenizer));
    TRY(stop_tokens_read(&t->decoder.stops, t->tokenizer, model, e->model_folder));
    t->decoder.tokenizer = t->tokenizer;
    t->decoder.x = &t->x;
    t->sizes = (struct inference_sizes){
        .chunk = 1, .scratch_bytes = sampler_scratch_bytes(model->language.vocab_size)};
    TRY(mem_try_array(&t->prompts, cfg->sample_prompts.n, sizeof(*t->prompts)));
    t->n = (int)cfg->sample_prompts.n;
    for (int i = 0; i < t->n; i++)
        TRY(add_prompt(t, model, i));
    return vec_reserve(&t->decoder.made, cfg->sample_max_new_tokens);
}

enum status sample_texts_open(struct sample_texts **out, const struct engine *e)
{
    struct sample_texts *t;
    *out = NULL;
    TRY(mem_try_array(&t, 1, sizeof(*t)));
    t->config = e->config;
    enum status status = open_prompts(t, e);
    if (status == OK)
        *out = t;
    else
        sample_texts_free(t);
    return status;
}

void sample_texts_free(struct sample_texts *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n; i++)
        token_list_release(&t->prompts[i]);
    mem_free(t->prompts);
    tokenizer_free(t->tokenizer);
    decoder_release(&t->decoder);
    mem_free(t);
}

/* ---- beside training ------------------------------------------------------------------------- */

struct stage_request sample_texts_stage(const struct sample_texts *t)
{
    return (struct stage_request){.purpose = STAGE_DECODE,
                                  .batch = 1,
                                  .seq_len = 1,
                                  .n_micro = 1,
                                  .cache_len = t->sizes.cache_len,
                                  .beside_training = true};
}

struct reserve sample_texts_scratch(const struct sample_texts *t)
{
    return (struct reserve){.name = INFERENCE_SCRATCH, .n_bytes = t->sizes.scratch_bytes};
}

void sample_texts_join(struct sample_texts *t, struct engine *e)
{
    inference_join(&t->x, e, &t->sizes);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Each text has draws of its own, so that a resumed run writes those that the other would have. */
static struct sampler sampler_for(const struct sample_texts *t, int i, int64_t step)
{
    const struct generate_options o = {.temperature = t->config->sample_temperature,
                                       .top_p = 1,
                                       .seed = (uint64_t)t->config->seed};
    struct sampler s = generate_sampler(&o);
    s.rng.stream += (uint64_t)step * (uint64_t)t->n + (uint64_t)i;
    return s;
}

enum status sample_texts_write(struct sample_texts *t, int i, int64_t step,
                               const volatile sig_atomic_t *stop, struct sample_record *out)
{
    const struct token_list *prompt = &t->prompts[i];
    const struct decoding how = {
        .first = (int64_t)prompt->n, .max_new = most_new(t, t->x.engine->model, i), .stop = stop};
    struct tensor logits;
    double began = now_s();
    *out = (struct sample_record){.step = step,
                                  .i_prompt = i,
                                  .n_prompts = t->n,
                                  .prompt = t->config->sample_prompts.items[i]};
    t->decoder.sampler = sampler_for(t, i, step);
    TRY(inference_extend(&t->x, prompt->items, (int64_t)prompt->n, 0, &logits));
    enum status status = decoder_run(&t->decoder, logits, &how, &out->ended);
    if (status == ERR_INTERRUPTED || status == ERR_TERMINATED)
        status = OK; /* the run stops by itself, and saves first */
    out->text = str_text(&t->decoder.text);
    out->n_tokens = (int64_t)t->decoder.made.n;
    out->seconds = now_s() - began;
    return status;
}
