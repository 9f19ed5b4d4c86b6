/* data.c: the data of a config, for people to look at. */
#include <stdio.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "data/packs.h"
#include "data/source_survey.h"
#include "engine/model_open.h"
#include "task/language.h"
#include "task/language_sources.h"

struct snug_data {
    struct model *model;
    char *folder;
    struct tokenizer *tokenizer;
    struct source_list sources;
    int64_t seq_len;
    bool is_packed;
    struct snug_data_summary summary;
    char family[64];
    int32_t *tokens, *labels; /* of one sample */
};

/* ---- samples --------------------------------------------------------------------------------- */

static int64_t n_samples_of(const struct snug_data *d, const struct source *s)
{
    return d->sources.has_examples ? source_n_examples(s) : source_n_tokens(s) / (d->seq_len + 1);
}

/* Sample i of all sources: its tokens. */
static enum status find(const struct snug_data *d, int64_t i, const struct source **s,
                        int64_t *first, int64_t *n)
{
    size_t k = 0;
    while (k + 1 < d->sources.n && i >= n_samples_of(d, d->sources.items[k]))
        i -= n_samples_of(d, d->sources.items[k++]);
    *s = d->sources.items[k];
    if (i < 0 || i >= n_samples_of(d, *s))
        return FAIL(ERR_USAGE, "there is no sample of that number");
    if (d->sources.has_examples)
        return source_example(*s, i, first, n);
    *first = i * (d->seq_len + 1);
    *n = d->seq_len + 1;
    return OK;
}

static enum status read_sample(const struct snug_data *d, int64_t i, int64_t *n)
{
    const struct source *s;
    int64_t first;
    TRY(find(d, i, &s, &first, n));
    *n = MIN(*n, d->seq_len + 1);
    return source_read(s, first, *n, d->tokens, d->labels);
}

/* ---- the summary ----------------------------------------------------------------------------- */

static enum status count_lengths(struct snug_data *d)
{
    struct snug_data_summary *m = &d->summary;
    m->bin_tokens = (d->seq_len + SNUG_DATA_BINS) / SNUG_DATA_BINS;
    for (int64_t i = 0; i < m->n_samples; i++) {
        const struct source *s;
        int64_t first, n;
        TRY(find(d, i, &s, &first, &n));
        m->shortest = i ? MIN(m->shortest, n) : n;
        m->longest = MAX(m->longest, n);
        bool alike = !d->sources.has_examples; /* all are of one length */
        m->bins[MIN((MAX(n, (int64_t)1) - 1) / m->bin_tokens, (int64_t)SNUG_DATA_BINS - 1)] +=
            alike ? m->n_samples : 1;
        if (alike)
            return OK;
    }
    return OK;
}

/* The rows that training packs them into, were each seen once. */
static enum status count_rows(struct snug_data *d)
{
    struct snug_data_summary *m = &d->summary;
    struct packs packs = {0};
    int32_t *lengths;
    enum status status;
    TRY(mem_try_array(&lengths, (size_t)MAX(m->n_samples, (int64_t)1), sizeof(*lengths)));
    for (int64_t i = 0; i < m->n_samples; i++) {
        const struct source *s;
        int64_t first, n;
        TRY_GOTO(find(d, i, &s, &first, &n), out);
        lengths[i] = (int32_t)MIN(MAX(n, (int64_t)1), d->seq_len);
    }
    TRY_GOTO(packs_make(&packs, lengths, m->n_samples, d->seq_len), out);
    m->n_rows = packs.n;
out:
    packs_release(&packs);
    mem_free(lengths);
    return status;
}

static enum status summarise(struct snug_data *d)
{
    struct snug_data_summary *m = &d->summary;
    m->noun = d->sources.has_examples ? "examples" : "sequences";
    m->templates = d->family[0] ? d->family : NULL;
    for (size_t i = 0; i < d->sources.n; i++) {
        const struct source *s = d->sources.items[i];
        struct example_counts c = source_counts(s);
        struct source_survey survey;
        TRY(source_survey(s, SURVEY_MADE_UP, &survey));
        m->n_samples += n_samples_of(d, s);
        m->n_tokens += source_n_tokens(s);
        m->n_labels += survey.n_labels;
        m->n_looked_at += MIN(survey.n_tokens, (int64_t)SURVEY_MADE_UP);
        m->n_read += c.n_read;
        m->n_truncated += c.n_truncated;
        m->n_dropped += c.n_dropped;
        m->n_unlabelled += c.n_unlabelled;
    }
    m->row_tokens = d->seq_len;
    if (d->is_packed)
        TRY(count_rows(d));
    return count_lengths(d);
}

void snug_data_summarise(const struct snug_data *d, struct snug_data_summary *out)
{
    *out = d->summary;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Which family a conversation is written as; none where no template is known. */
static void name_family(struct snug_data *d, const struct config *cfg)
{
    struct chat_template *chat = NULL;
    if (language_open_template(cfg, language_tokenizer_name(cfg, d->folder), d->tokenizer, &chat) ==
        OK)
        (void)snprintf(d->family, sizeof(d->family), "%s", chat_template_name(chat));
    chat_template_free(chat);
}

static enum status open_data(struct snug_data *d, const struct config *cfg,
                             const struct snug_settings *settings)
{
    struct device_room room;
    room_of_host(&room);
    TRY(open_model(cfg, settings->hub_folder, &d->model, &d->folder));
    if (d->model->samples.n_fields > 0)
        return FAIL(ERR_USAGE, "the samples of this network are tensors: there is no text to show");
    TRY(language_open_tokenizer(cfg, d->model, d->folder, &d->tokenizer));
    const struct source_list_options o = {
        .config = cfg,
        .datasets = &cfg->datasets,
        .key = "datasets",
        .vocab_size = d->model->language.vocab_size,
        .cache_folder = settings->cache_folder,
        .tokenizer = d->tokenizer,
        .tokenizer_name = language_tokenizer_name(cfg, d->folder),
        .spare_bytes = room_available(&room),
    };
    TRY(source_list_open(&d->sources, &o));
    d->seq_len = cfg->max_seq_length;
    d->is_packed = d->sources.has_examples && cfg->packing == CONFIG_TRISTATE_TRUE;
    TRY(mem_try_array(&d->tokens, 2 * ((size_t)d->seq_len + 1), sizeof(*d->tokens)));
    d->labels = d->tokens + d->seq_len + 1;
    if (d->sources.has_examples)
        name_family(d, cfg);
    return summarise(d);
}

enum snug_status snug_data_open(struct snug_data **out, const struct snug_config *config,
                                const struct snug_settings *settings)
{
    struct snug_data *d;
    const struct snug_settings given = settings_or_none(settings);
    *out = NULL;
    enum status status = mem_try_array(&d, 1, sizeof(*d));
    if (status != OK)
        return public_status(status);
    status = open_data(d, config->config, &given);
    if (status == OK)
        *out = d;
    else
        snug_data_close(d);
    return public_status(status);
}

void snug_data_close(struct snug_data *d)
{
    if (!d)
        return;
    source_list_close(&d->sources);
    tokenizer_free(d->tokenizer);
    model_free(d->model);
    mem_free(d->folder);
    mem_free(d->tokens);
    mem_free(d);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The bytes of tokens as UTF-8: what is none of it, such as a character that is cut between two
 * pieces, becomes U+FFFD. */
static enum status decode(const struct snug_data *d, int64_t from, int64_t to, struct str *out)
{
    struct str bytes = {0};
    enum status status =
        tokenizer_decode(d->tokenizer, d->tokens + from, (size_t)(to - from), 0, &bytes);
    for (size_t at = 0; at < bytes.n && status == OK;) {
        size_t n = utf8_prefix(bytes.text + at, bytes.n - at);
        str_add_n(out, bytes.text + at, n);
        at += n;
        if (at < bytes.n)
            str_add(out, "\xEF\xBF\xBD");
        at++;
    }
    str_release(&bytes);
    return status == OK ? str_status(out) : status;
}

static int64_t piece_end(const struct snug_data *d, int64_t from, int64_t n)
{
    int64_t to = from + 1;
    while (to < n && (d->labels[to] == LABEL_IGNORED) == (d->labels[from] == LABEL_IGNORED))
        to++;
    return to;
}

typedef enum status (*piece_function)(void *user, const struct snug_data_piece *piece);

static enum status for_pieces(const struct snug_data *d, int64_t n, piece_function on_piece,
                              void *user)
{
    struct str text = {0};
    enum status status = OK;
    for (int64_t from = 0; from < n && status == OK;) {
        int64_t to = piece_end(d, from, n);
        str_clear(&text);
        status = decode(d, from, to, &text);
        const struct snug_data_piece piece = {.text = str_text(&text),
                                              .n_bytes = text.n,
                                              .n_tokens = to - from,
                                              .is_learnt = d->labels[from] != LABEL_IGNORED};
        if (status == OK)
            status = on_piece(user, &piece);
        from = to;
    }
    str_release(&text);
    return status;
}

/* The caller's function behind ours. */
struct listener {
    snug_piece_callback on_piece;
    void *user;
};

static enum status tell(void *user, const struct snug_data_piece *piece)
{
    const struct listener *l = user;
    return internal_status(l->on_piece(l->user, piece));
}

enum snug_status snug_data_sample(const struct snug_data *d, int64_t i,
                                  snug_piece_callback on_piece, void *user)
{
    struct listener l = {on_piece, user};
    int64_t n;
    enum status status = read_sample(d, i, &n);
    if (status == OK)
        status = for_pieces(d, n, tell, &l);
    return public_status(status);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static enum status add_piece(void *user, const struct snug_data_piece *piece)
{
    json_t *one = json_pack("{s:b, s:I, s:s%}", "learnt", piece->is_learnt, "tokens",
                            (json_int_t)piece->n_tokens, "text", piece->text, piece->n_bytes);
    return json_array_append_new(user, one) == 0 ? OK : FAIL(ERR_MEMORY, "out of memory for JSON");
}

static enum status add_sample(const struct snug_data *d, int64_t i, json_t *list)
{
    int64_t n;
    TRY(read_sample(d, i, &n));
    json_t *pieces = json_array(), *ids = json_array();
    enum status status = for_pieces(d, n, add_piece, pieces);
    for (int64_t k = 0; k < n && status == OK; k++)
        (void)json_array_append_new(ids, json_integer(d->tokens[k]));
    json_t *sample = json_pack("{s:o, s:o}", "ids", ids, "pieces", pieces);
    if (json_array_append_new(list, sample) != 0 && status == OK)
        status = FAIL(ERR_MEMORY, "out of memory for JSON");
    return status;
}

static json_t *pack_bins(const struct snug_data_summary *m)
{
    json_t *bins = json_array();
    for (int i = 0; i < SNUG_DATA_BINS; i++)
        (void)json_array_append_new(bins, json_integer((json_int_t)m->bins[i]));
    return bins;
}

enum snug_status snug_data_json(const struct snug_data *d, int64_t n_samples, char **text)
{
    const struct snug_data_summary *m = &d->summary;
    json_t *samples = json_array();
    enum status status = OK;
    for (int64_t i = 0; i < MIN(n_samples, m->n_samples) && status == OK; i++)
        status = add_sample(d, i, samples);
    json_t *root =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, "
                  "s:s?, s:o}",
                  "noun", m->noun, "n_samples", (json_int_t)m->n_samples, "n_tokens",
                  (json_int_t)m->n_tokens, "n_labels", (json_int_t)m->n_labels, "n_looked_at",
                  (json_int_t)m->n_looked_at, "n_read", (json_int_t)m->n_read, "n_truncated",
                  (json_int_t)m->n_truncated, "n_dropped", (json_int_t)m->n_dropped, "n_unlabelled",
                  (json_int_t)m->n_unlabelled, "shortest", (json_int_t)m->shortest, "longest",
                  (json_int_t)m->longest, "bin_tokens", (json_int_t)m->bin_tokens, "n_rows",
                  (json_int_t)m->n_rows, "row_tokens", (json_int_t)m->row_tokens, "bins",
                  pack_bins(m), "chat_template", m->templates, "samples", samples);
    struct str s = {0};
    enum status packed = json_text_take(root, JSON_INDENT(2), &s);
    return hand_out(&s, status == OK ? packed : status, text);
}
