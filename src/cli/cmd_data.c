/* cmd_data.c: what training would see of the data. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"samples", 'n', OPTION_INT, offsetof(struct args, n_samples), "N",
     "show the first N samples; default 3"},
};

/* How what is learnt stands out: in green, or between marks. */
struct marks {
    const char *on, *off, *meaning;
};

static struct marks choose_marks(void)
{
    bool colours = isatty(STDOUT_FILENO) && log_use_colour();
    return colours ? (struct marks){"\x1b[32m", "\x1b[0m", "what is learnt is green"}
                   : (struct marks){"[[", "]]", "what is learnt stands between [[ and ]]"};
}

/* Control characters other than line breaks and tabs stay out of the terminal. */
static void print_plain(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
        (void)putchar(is_control ? '?' : c);
    }
}

static enum snug_status on_piece(void *user, const struct snug_data_piece *piece)
{
    const struct marks *m = user;
    (void)fputs(piece->is_learnt ? m->on : "", stdout);
    print_plain(piece->text, piece->n_bytes);
    (void)fputs(piece->is_learnt ? m->off : "", stdout);
    return SNUG_OK;
}

static enum snug_status show_samples(const struct snug_data *d, int64_t n)
{
    struct snug_data_summary m;
    struct marks marks = choose_marks();
    snug_data_summarise(d, &m);
    for (int64_t i = 0; i < n && i < m.n_samples; i++) {
        (void)printf("--- sample %lld%s%s\n", (long long)i, i ? "" : ": ", i ? "" : marks.meaning);
        enum snug_status status = snug_data_sample(d, i, on_piece, &marks);
        if (status != SNUG_OK)
            return status;
        (void)printf("\n");
    }
    return SNUG_OK;
}

static void show_histogram(const struct snug_data_summary *m)
{
    enum { WIDEST = 40 };
    int64_t most = 1;
    for (int i = 0; i < SNUG_DATA_BINS; i++)
        most = m->bins[i] > most ? m->bins[i] : most;
    for (int i = 0; i < SNUG_DATA_BINS; i++) {
        int n = (int)((double)m->bins[i] / (double)most * WIDEST + (m->bins[i] > 0 ? 0.999 : 0));
        if (m->bins[i] > 0)
            show_line(2, "%7lld tokens  %-*.*s %lld", (long long)((i + 1) * m->bin_tokens), WIDEST,
                      n, "########################################", (long long)m->bins[i]);
    }
}

static void show_counts(const struct snug_data_summary *m)
{
    if (m->n_read == 0)
        return;
    show_line(0,
              "%lld records read; %lld cut to max_seq_length, %lld left out as longer, %lld left "
              "out with nothing to learn",
              (long long)m->n_read, (long long)m->n_truncated, (long long)m->n_dropped,
              (long long)m->n_unlabelled);
}

static void show_summary_of(const struct snug_data_summary *m)
{
    char samples[BYTES_TEXT], tokens[BYTES_TEXT];
    double share = m->n_looked_at ? 100.0 * (double)m->n_labels / (double)m->n_looked_at : 0;
    show_line(0, "%s %s of %lld to %lld tokens, %s in all, %.1f%% of them learnt",
              format_count(samples, m->n_samples), m->noun, (long long)m->shortest,
              (long long)m->longest, format_count(tokens, m->n_tokens), share);
    if (m->n_rows > 0)
        show_line(0, "packed into %s rows of %lld tokens, %.1f%% of them filled",
                  format_count(samples, m->n_rows), (long long)m->row_tokens,
                  100.0 * (double)m->n_tokens / ((double)m->n_rows * (double)m->row_tokens));
    if (m->templates)
        show_line(0, "chat template: %s", m->templates);
    show_counts(m);
    show_histogram(m);
}

static enum snug_status show(struct cli *cli, const struct snug_data *d)
{
    struct snug_data_summary m;
    char *json = NULL;
    enum snug_status status = SNUG_OK;
    snug_data_summarise(d, &m);
    if (!cli->args.json)
        status = show_samples(d, cli->args.n_samples);
    show_summary_of(&m);
    if (status == SNUG_OK && cli->args.json)
        status = snug_data_json(d, cli->args.n_samples, &json);
    return status == SNUG_OK ? print_json(cli, json) : status;
}

static enum snug_status run(struct cli *cli)
{
    struct snug_config *config;
    struct snug_data *d;
    if (cli->args.n_samples < 0)
        return usage_error("--samples is %lld; it must not be negative",
                           (long long)cli->args.n_samples);
    enum snug_status status = load_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = snug_data_open(&d, config, &cli->settings);
    if (status == SNUG_OK)
        status = show(cli, d);
    snug_data_close(d);
    snug_config_free(config);
    return status;
}

const struct command cmd_data = {
    .name = "data",
    .usage = "data CONFIG [--samples N] [key=value ...] [--json]",
    .summary = "show the data as training sees it: samples, what is learnt of them, lengths",
    .text = "Reads and tokenises `datasets` as training would, prints the first samples with what\n"
            "is learnt of them (in colour on a terminal), how long samples are, and how many\n"
            "records were cut or left out.",
    .examples = "  snug data finetune.yaml -n 5\n"
                "  snug data finetune.yaml chat_template=chatml --json",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
