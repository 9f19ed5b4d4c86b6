/* cmd_export.c: a Hugging Face model folder, or a GGUF file. */
#include "base/log.h"
#include "cli/cli.h"

static const struct option options[] = {
    {"output", 'o', OPTION_TEXT, offsetof(struct args, output), "PATH",
     "folder to make, or file: one whose name ends in .gguf; needed"},
    {"checkpoint", 'c', OPTION_TEXT, offsetof(struct args, checkpoint), "PATH",
     "weights: a folder, `last`, `best`, or `none` for the model as configured; default: the "
     "newest "
     "checkpoint in output_dir if there is one"},
    {"dtype", 0, OPTION_TEXT, offsetof(struct args, dtype), "TYPE",
     "of the weights in the file: f32, bf16 or f16, of GGUF also q8_0, q4_0, q4_k_m or tq2_0; "
     "default: "
     "as trained"},
    {"format", 0, OPTION_TEXT, offsetof(struct args, export_format), "FORMAT",
     "hf (a folder) or gguf (a file); default: as the name says"},
    {"merge", 0, OPTION_FLAG, offsetof(struct args, merge), NULL,
     "add the adapter to the model's weights, in f32, and write the model"},
    {"force", 0, OPTION_FLAG, offsetof(struct args, force), NULL,
     "replace a folder that is not empty, or a file: what is there is removed"},
};

static void show_gguf(const struct snug_exported *e)
{
    char bytes[BYTES_TEXT];
    log_info("GGUF: %s of weights%s", format_bytes(bytes, e->n_bytes),
             e->is_merged ? ", the adapter merged into them" : "");
    if (e->n_wider)
        log_info("%lld tensors are stored wider: their rows are no whole blocks of the type",
                 (long long)e->n_wider);
    if (!e->has_tokenizer)
        log_warn("the model came without a tokenizer, so there is none in the file");
}

/* `asked`: the user said which weights. */
static void show(const struct snug_exported *e, const char *folder, const char *output_dir,
                 bool asked)
{
    char count[BYTES_TEXT];
    log_info("wrote %s: %s parameters in %lld tensors, %s, from %s", folder,
             format_count(count, e->n_params), (long long)e->n_tensors, e->dtype,
             e->weights ? e->weights : "the seed (untrained)");
    if (e->is_gguf)
        show_gguf(e);
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
                                    .format = a->export_format,
                                    .dtype = a->dtype,
                                    .force = a->force,
                                    .merge = a->merge};
    struct snug_config *config;
    struct snug_exported made;
    char *json = NULL;
    if (!a->output)
        return usage_error("where to? give -o DIR or -o FILE.gguf");
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
        "export CONFIG|FOLDER -o DIR|FILE.gguf [--checkpoint PATH|last|best|none] [--dtype TYPE]\n"
        "            [--format hf|gguf] [--merge] [--force] [--json]",
    .summary = "write a model as a Hugging Face folder or a GGUF file",
    .text = "Writes config.json, model.safetensors (sharded when large) and the tokenizer files\n"
            "of the model it came from: a folder that transformers and other tools load. A run\n"
            "with an adapter is written as that alone (adapter_config.json and\n"
            "adapter_model.safetensors, as PEFT has them), or with --merge as a model.\n"
            "A name that ends in .gguf is a file for llama.cpp and its relatives: the whole model\n"
            "(an adapter merged into it), its tokenizer and its chat template, quantised where\n"
            "--dtype is q8_0, q4_0 or q4_k_m. Either appears whole or not at all. FOLDER is a\n"
            "model's, a checkpoint or a run's output_dir.",
    .examples = "  snug export configs/demo.yaml --checkpoint last -o model --dtype bf16\n"
                "  snug export configs/demo.yaml -o demo.gguf --dtype q8_0",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .min_words = 1,
    .max_words = 1,
    .takes_overrides = true,
    .run = run,
};
