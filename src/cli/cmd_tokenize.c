/* cmd_tokenize.c: text into a token file. */
#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"output", 'o', OPTION_TEXT, offsetof(struct args, output), "FILE", "where to write; needed"},
};

static void show(const struct snug_tokenized *t, const char *path)
{
    char tokens[BYTES_TEXT], bytes[BYTES_TEXT];
    log_info("wrote %s: %s tokens, %s", path, format_count(tokens, t->n_tokens),
             format_bytes(bytes, t->n_bytes));
    if (t->n_unlabelled > 0)
        log_warn("%lld tokens were marked as no label (-100): a token file cannot say so, they "
                 "will count",
                 (long long)t->n_unlabelled);
}

static enum snug_status run(struct cli *cli)
{
    const struct args *a = &cli->args;
    struct snug_config *config;
    struct snug_tokenized made;
    char *json = NULL;
    if (!a->output)
        return usage_error("where to? give -o FILE");
    enum snug_status status = load_model_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status =
        snug_tokenize(config, &cli->settings, a->words.items + 1, a->words.n - 1, a->output, &made);
    if (status == SNUG_OK)
        show(&made, a->output);
    if (status == SNUG_OK && a->json)
        status = snug_tokenized_json(&made, a->output, &json);
    if (status == SNUG_OK)
        status = print_json(cli, json);
    snug_config_free(config);
    return status;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .usage = "tokenize CONFIG INPUT ... -o FILE [key=value ...] [--json]",
    .summary = "turn text, JSONL or other token files into one token file",
    .text = "Uses the config's tokenizer. Inputs are files, folders or patterns: plain text (a\n"
            "file is a document), JSONL with a \"text\" or \"input_ids\" field, token files. The\n"
            "result is in llm.c's format (uint16, or uint32 for a large vocabulary) and trains\n"
            "with datasets.0.path=FILE datasets.0.type=tokens.",
    .examples = "  snug tokenize configs/demo.yaml book.txt more/*.txt -o train.bin",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 2,
    .max_words = (size_t)-1,
    .takes_overrides = true,
    .run = run,
};
