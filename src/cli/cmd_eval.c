/* cmd_eval.c: mean loss over held-out data. */
#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"checkpoint", 'c', OPTION_TEXT, offsetof(struct args, checkpoint), "PATH",
     "weights to evaluate: a folder, `last`, `best`, or `none` for the model as configured; "
     "default: the "
     "newest checkpoint in output_dir if there is one"},
};

static void show(const struct snug_evaluation *e)
{
    char tokens[BYTES_TEXT], time[BYTES_TEXT];
    log_info("weights   %s", e->weights ? e->weights : "untrained, from the seed");
    log_info("data      %s", e->data);
    struct str metrics = {0};
    for (int i = 0; i < e->n_metrics; i++)
        str_addf(&metrics, "   %s %.4f", e->metrics[i].name, e->metrics[i].value);
    log_info("loss      %.6f%s   %s %s, %lld batches, %s", e->loss, str_text(&metrics),
             format_count(tokens, e->n_tokens), e->unit, (long long)e->n_batches,
             format_duration(time, e->seconds));
    str_release(&metrics);
}

static enum snug_status evaluate(struct cli *cli, const struct snug_config *config)
{
    struct snug_run *run;
    struct snug_evaluation e;
    char *json = NULL;
    enum snug_status status = snug_run_open(&run, config, &cli->settings, SNUG_EVALUATE);
    if (status != SNUG_OK)
        return status;
    status = snug_run_evaluate(run, cli->args.checkpoint, &e);
    if (status == SNUG_OK) {
        show(&e);
        if (cli->args.json)
            status = snug_evaluation_json(&e, &json);
    }
    if (status == SNUG_OK)
        status = print_json(cli, json);
    snug_run_close(run);
    return status;
}

static enum snug_status run(struct cli *cli)
{
    struct snug_config *config;
    enum snug_status status = load_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = evaluate(cli, config);
    snug_config_free(config);
    return status;
}

const struct command cmd_eval = {
    .name = "eval",
    .usage = "eval CONFIG|FOLDER [key=value ...] [--checkpoint PATH|last|best|none] [--json]",
    .summary = "mean loss of a model over evaluation data",
    .text = "Evaluates on eval_datasets, or on the part that val_set_size holds out, or, when the\n"
            "config has neither, on the training data. eval_max_batches bounds it. FOLDER is a\n"
            "run's output_dir, a checkpoint, which knows the data of its run, or any Hugging Face\n"
            "model folder, whose data is given as key=value.",
    .examples = "  snug eval configs/demo.yaml\n"
                "  snug eval configs/demo.yaml --checkpoint out/demo/checkpoint-200\n"
                "  snug eval out/demo/checkpoint-200 datasets.0.path=test.txt",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
