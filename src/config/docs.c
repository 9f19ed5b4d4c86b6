/* docs.c: docs/CONFIG.md, printed from the schema so that it cannot fall behind. */
#include <string.h>

#include "config/config_internal.h"

static void add_type(struct str *out, const struct config_key *key)
{
    struct config_interval_rule rule;
    char words[96];
    switch (key->type) {
    case TYPE_CHOICE:
    case TYPE_LIST:
        str_add(out, key->type == TYPE_LIST ? "list of " : "");
        config_list_choices(out, key->rule);
        return;
    case TYPE_NAMES:
        str_add(out, "list of names");
        return;
    case TYPE_TEXTS:
        str_add(out, "list of texts");
        return;
    case TYPE_MODEL:
        str_add(out, "mapping");
        return;
    case TYPE_DATASETS:
        str_add(out, "list of datasets");
        return;
    case TYPE_BLOCKS:
        str_add(out, "true, false, auto, blocks or parts");
        return;
    case TYPE_RESUME:
        str_add(out, "folder, last, auto, true or false");
        return;
    case TYPE_BYTES:
        str_add(out, "size or auto");
        return;
    default:
        str_add(out, config_type_word(key->type));
    }
    if (key->rule[0] && config_parse_rule(key->rule, &rule))
        str_addf(out, ", %s", config_rule_words(words, sizeof(words), &rule));
}

static void add_key(struct str *out, const struct config_key *key)
{
    char word[CONFIG_MAX_KEY];
    const char *comma = "";
    str_addf(out, "| `%s` | ", key->name);
    add_type(out, key);
    static const char *const resumes[] = {
        [CONFIG_RESUME_EXACT] = "same", [CONFIG_RESUME_FREE] = "free", [CONFIG_RESUME_LOCAL] = ""};
    str_addf(out, key->preset[0] ? " | `%s` | " : " | %s | ",
             key->preset[0] ? key->preset : "unset");
    str_addf(out, "%s | ", resumes[key->resume]);
    for (const char *list = key->aliases; config_next_alias(&list, word, sizeof(word));) {
        str_addf(out, "%s`%s`", comma, word);
        comma = ", ";
    }
    str_addf(out, " | %s |\n", key->meaning);
}

static void add_spellings(struct str *out, const char *key, const char *set)
{
    const char *comma = "";
    str_addf(out, "- `%s`, other spellings: ", key);
    for (const struct config_choice *c = config_choices(set); c->name; c++) {
        const char *name = config_choice_name(set, c->value);
        if (c->nearest || strcmp(name, c->name) == 0)
            continue;
        str_addf(out, "%s`%s` (= `%s`)", comma, c->name, name);
        comma = ", ";
    }
    if (!*comma)
        str_add(out, "none");
    str_add(out, ". Refused, with the nearest named: ");
    comma = "";
    for (const struct config_choice *c = config_choices(set); c->name; c++) {
        if (!c->nearest)
            continue;
        str_addf(out, "%s`%s`", comma, c->name);
        comma = ", ";
    }
    str_add(out, *comma ? ".\n" : "none.\n");
}

static void add_refusals(struct str *out)
{
    str_add(out, "\n## Keys that are refused\n\n"
                 "Known from other tools, not in this version: an error, never silently dropped. "
                 "The value in "
                 "the second column (or an empty one) is what happens anyway and is accepted.\n\n"
                 "| key | accepted | instead |\n|---|---|---|\n");
    for (size_t i = 0; i < n_config_refusals; i++) {
        const struct config_refusal *r = &config_refusals[i];
        if (r->accepted)
            str_addf(out, "| `%s` | `%s` | %s |\n", r->name, r->accepted, r->hint);
    }
    str_add(out, "\n## Keys that are ignored\n\n"
                 "They change neither results nor memory; one line in the log says so.\n\n"
                 "| key | why |\n|---|---|\n");
    for (size_t i = 0; i < n_config_refusals; i++) {
        const struct config_refusal *r = &config_refusals[i];
        if (!r->accepted && !r->of_model)
            str_addf(out, "| `%s` | %s |\n", r->name, r->hint);
    }
    str_add(out, "\n## Keys of networks\n\n"
                 "They may stand at the top as well as below `model`:");
    for (size_t i = 0; i < n_config_refusals; i++) {
        if (config_refusals[i].of_model)
            str_addf(out, " `%s`", config_refusals[i].name);
    }
    str_add(out, "\n");
}

static const char introduction[] =
    "# Configuration\n\n"
    "<!-- Printed by tools/config_docs from src/config/config.def; edit that file and run it "
    "again. "
    "-->\n\n"
    "A config is one YAML file. Its keys carry the names of Hugging Face `TrainingArguments` where "
    "there "
    "is one; common other spellings are aliases. `-` and `_` are the same in a key. Values are "
    "read by what the key needs: `2e-4` is a number, `5e8` a whole number, `save_strategy: no` the "
    "word. "
    "An empty value leaves the key unset.\n\n"
    "Any key can be set on the command line after the file, as `key=value`, and the parts of a "
    "mapping or "
    "list as `model.n_layer=2` or `datasets.0.path=data.txt`; the last one wins. An unknown key "
    "(under "
    "`model` too), a wrong type, a value out of range or a contradiction stops the run with exit "
    "code 2; "
    "all that is wrong is told at once, each with its line. `snug help keys` prints the keys.\n\n"
    "With `model_name_or_path`, keys under `model` change those of the folder's `config.json` (a "
    "mapping "
    "such as `rope_scaling` as a whole); one that contradicts the weights in the folder is "
    "refused.\n\n"
    "Sizes: `GiB`, `MiB`, `KiB` (and `G`, `M`, `K`) are powers of 1024; `GB`, `MB`, `KB` powers of "
    "1000.\n\n"
    "The column *resume*: a run goes on from a checkpoint bit for bit, so a key marked *same* must "
    "have the "
    "value it had, and so must the model, the tokens of the training data, the precision and the "
    "device. What differs is named and refused, unless `allow_resume_changes: true`. A key marked "
    "*free* changes no step; a line of the log names those that differ. A new `max_steps` or "
    "`num_train_epochs` is free too, though a schedule that ends somewhere then ends somewhere "
    "else.\n";

static const char datasets[] =
    "\n## Datasets\n\n"
    "`datasets` and `eval_datasets` are lists of mappings (a path alone stands for `{path: "
    "...}`):\n\n"
    "```yaml\n"
    "datasets:\n"
    "  - path: data/train.jsonl\n"
    "    type: jsonl\n"
    "    text_field: text\n"
    "```\n\n"
    "| key | meaning |\n|---|---|\n"
    "| `path` | File or folder; none with `type: synthetic` and `random`. |\n"
    "| `type` | `text`; `jsonl` (one object per line); `tokens` (llm.c `.bin` with its header); "
    "`nanogpt` "
    "(`.bin` without a header); `synthetic` (made up, with something to learn in it); `random` "
    "(every "
    "token equally likely); `auto`: by extension and first bytes. To fine-tune on, records of JSON "
    "lines, "
    "of one JSON array or of CSV with a header: `chat_template` (`messages` of OpenAI, "
    "`conversations` "
    "of "
    "ShareGPT), `alpaca` (`instruction`, `input`, `output`, in Alpaca's prompt), `alpaca_chat` "
    "(the "
    "same "
    "in the chat template), `prompt_completion`, `input_output` (`segments` with labels), `csv`; "
    "`auto` and `jsonl` look at the first record. Each record is a row of its own unless `packing: "
    "true`. |\n"
    "| `text_field` | The member of a JSONL line to read; default `text`. |\n"
    "| `token_dtype` | `u16` (default) or `u32`: how wide the tokens of a `nanogpt` file are. |\n"
    "| `n_tokens` | How much `synthetic` or `random` data there is; default 0: no end. |\n"
    "| `weight` | Of records: how often each is seen in an epoch; 0.5: half of them are, drawn by "
    "`data_seed`; default 1. |\n"
    "| `max_samples` | Of records: how many to read, the first ones; default: the key "
    "`max_samples`. |\n"
    "| `field_messages`, `field_instruction`, `field_input`, `field_output`, `field_system`, "
    "`field_prompt`, `field_completion` | Names of members that are not the usual ones. |\n"
    "| `message_property_mappings` | `{role: from, content: value}`: the members of a message "
    "(also "
    "`message_field_role`, `message_field_content`). |\n"
    "| `split`, `ds_type` | Accepted: `train`; the format of the file. |\n";

void config_docs_markdown(struct str *out)
{
    str_add(out, introduction);
    for (size_t i = 0; i < n_config_keys; i++) {
        if (config_keys[i].type == TYPE_GROUP)
            str_addf(out,
                     "\n## %s\n\n| key | type | default | resume | aliases | meaning |\n"
                     "|---|---|---|---|---|---|\n",
                     config_keys[i].name);
        else
            add_key(out, &config_keys[i]);
    }
    str_add(out, datasets);
    str_add(out, "\n## Words of other tools\n\n");
    add_spellings(out, "optim", "optim");
    add_spellings(out, "lr_scheduler_type", "schedule");
    add_spellings(out, "*_dtype", "dtype");
    add_spellings(out, "datasets type", "dataset_type");
    add_spellings(out, "chat_template", "chat_template");
    add_refusals(out);
}
