/* cmd_export.c: a Hugging Face model folder. */
#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"output", 'o', OPTION_TEXT, offsetof(struct args, output), "DIR", "folder to make; needed"},
    {"checkpoint", 'c', OPTION_TEXT, offsetof(struct args, checkpoint), "PATH",
     "weights: a folder, `last`, or `none` for the model as configured; default: the newest "
     "checkpoint in output_dir if there is one"},
    {"dtype", 0, OPTION_TEXT, offsetof(struct args, dtype), "TYPE",
     "of the weights in the file: f32, bf16 or f16; default: as trained"},
    {"merge", 0, OPTION_FLAG, offsetof(struct args, merge), NULL,
     "add the adapter to the model's weights, in f32, and write the model"},
    {"force", 0, OPTION_FLAG, offsetof(struct args, force), NULL,
     "replace a folder that is not empty: what is there is removed"},
};

/* `asked`: the user said which weights. */
static void show(const struct snug_exported *e, const char *folder, const char *output_dir,
                 bool asked)
{
    char count[BYTES_TEXT];
    log_info("wrote %s: %s parameters in %lld tensors, %s, from %s", folder,
             format_count(count, e->n_params), (long long)e->n_tensors, e->dtype,
             e->weights ? e->weights : "the seed (untrained)");
    if (!e->weights && !asked)
        log_warn("there is no checkpoint in %s: the weights are as they were before training; "
                 "--checkpoint names others",
                 output_dir);
}

static enum snug_status run(struct cli *cli)
{
    const struct args *a = &cli->args;
    struct snug_export_options o = {.checkpoint = a->checkpoint,
                                    .out_dir = a->output,
                                    .dtype = a->dtype,
                                    .force = a->force,
                                    .merge = a->merge};
    struct snug_config *config;
    struct snug_exported made;
    char *json = NULL;
    if (!a->output)
        return usage_error("where to? give -o DIR");
    enum snug_status status = load_model_config(cli, &config);
    if (status != SNUG_OK)
        return status;
    status = snug_export(config, &cli->settings, &o, &made);
    if (status == SNUG_OK) {
        show(&made, a->output, snug_config_output_dir(config), a->checkpoint != NULL);
        if (a->json)
            status = snug_exported_json(&made, a->output, &json);
        snug_free(made.weights);
    }
    if (status == SNUG_OK)
        status = print_json(cli, json);
    snug_config_free(config);
    return status;
}

const struct command cmd_export = {
    .name = "export",
    .usage =
        "export CONFIG|FOLDER -o DIR [--checkpoint PATH|last|best|none] [--dtype f32|bf16|f16]\n"
        "            [--merge] [--force] [--json]",
    .summary = "write a model as a Hugging Face folder",
    .text = "Writes config.json, model.safetensors (sharded when large) and the tokenizer files\n"
            "of the model it came from: a folder that transformers and other tools load. A run\n"
            "with an adapter is written as that alone (adapter_config.json and\n"
            "adapter_model.safetensors, as PEFT has them), or with --merge as a model. The folder\n"
            "appears whole or not at all.",
    .examples = "  snug export configs/demo.yaml --checkpoint last -o model --dtype bf16",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
