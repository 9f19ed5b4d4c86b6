#include "train/decoder.h"

#include <string.h>

#include "base/vec.h"

void decoder_release(struct decoder *d)
{
    token_list_release(&d->stops);
    token_list_release(&d->made);
    for (size_t i = 0; i < ARRAY_LEN(d->stop_texts); i++)
        str_release(&d->stop_texts[i]);
    str_release(&d->text);
    str_release(&d->waiting);
}

static bool is_stop(const struct decoder *d, int32_t token)
{
    for (size_t i = 0; i < d->stops.n; i++)
        if (token == d->stops.items[i])
            return true;
    return false;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Bytes at the end of the waiting text that a stop text may begin with. */
static size_t undecided(const struct decoder *d, const struct str *stop)
{
    for (size_t n = MIN(stop->n ? stop->n - 1 : 0, d->waiting.n); n > 0; n--) {
        if (memcmp(d->waiting.text + d->waiting.n - n, stop->text, n) == 0)
            return n;
    }
    return 0;
}

/* How much of the waiting text is sure, and whether a stop text follows it. */
static size_t sure_text(const struct decoder *d, bool *ended)
{
    size_t sure = d->waiting.n, n_open = 0;
    for (size_t i = 0; i < ARRAY_LEN(d->stop_texts); i++) {
        const struct str *stop = &d->stop_texts[i];
        const char *at = stop->n && d->waiting.n
                             ? memmem(d->waiting.text, d->waiting.n, stop->text, stop->n)
                             : NULL;
        if (at && (size_t)(at - d->waiting.text) <= sure) {
            sure = (size_t)(at - d->waiting.text);
            *ended = true;
        }
        n_open = MAX(n_open, undecided(d, stop));
    }
    return *ended ? sure : sure - n_open;
}

static enum status hand_on(struct decoder *d, const struct decoding *how, size_t n)
{
    str_add_n(&d->text, str_text(&d->waiting), n);
    TRY(str_status(&d->waiting));
    TRY(str_status(&d->text));
    if (how->on_text && n > 0)
        TRY(how->on_text(how->user, d->waiting.text, n));
    if (n > 0) {
        memmove(d->waiting.text, d->waiting.text + n, d->waiting.n - n);
        d->waiting.n -= n;
        d->waiting.text[d->waiting.n] = '\0';
    }
    return OK;
}

static enum status add_token(struct decoder *d, int32_t token)
{
    size_t n_bytes = 0;
    /* Ids between the tokenizer's and the model's vocabulary size are padding: no text. */
    const char *bytes = tokenizer_token_bytes(d->tokenizer, token, &n_bytes);
    if (bytes && !tokenizer_is_special(d->tokenizer, token))
        utf8_stream_add(&d->stream, bytes, n_bytes, &d->waiting);
    return vec_push(&d->made, token);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void begin(struct decoder *d)
{
    d->made.n = 0;
    d->stream = (struct utf8_stream){0};
    str_clear(&d->text);
    str_clear(&d->waiting);
}

/* What still waits belongs to the text, unless a stop text begins it. */
static enum status finish(struct decoder *d, const struct decoding *how, bool by_text)
{
    if (by_text)
        str_clear(&d->waiting);
    utf8_stream_finish(&d->stream, &d->waiting);
    return hand_on(d, how, d->waiting.n);
}

static enum status stopped(const struct decoder *d, int signal)
{
    return signal == SIGTERM ? FAIL(ERR_TERMINATED, "terminated after %zu tokens", d->made.n)
                             : FAIL(ERR_INTERRUPTED, "interrupted after %zu tokens", d->made.n);
}

enum status decoder_run(struct decoder *d, struct tensor logits, const struct decoding *how,
                        bool *ended)
{
    int64_t at = how->first;
    bool by_token = false, by_text = false;
    begin(d);
    while ((int64_t)d->made.n < how->max_new && !by_text && !(how->stop && *how->stop)) {
        int32_t token;
        TRY(sampler_draw(&d->sampler, &logits, d->x->scratch, &token));
        by_token = is_stop(d, token);
        if (by_token)
            break;
        TRY(add_token(d, token));
        TRY(hand_on(d, how, sure_text(d, &by_text)));
        if (!by_text && (int64_t)d->made.n < how->max_new)
            TRY(inference_extend(d->x, &token, 1, at++, &logits));
    }
    *ended = by_token || by_text;
    TRY(finish(d, how, by_text));
    if (how->stop && *how->stop && !*ended && (int64_t)d->made.n < how->max_new)
        return stopped(d, *how->stop);
    return OK;
}
