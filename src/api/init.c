/* init.c: a commented config to start from: one of the examples (configs/, which are part of the
 * program), changed for a model, data, a card and a goal. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "config/config.h"
#include "device/card/card.h"

/* The texts of configs/; of cmake/Texts.cmake. */
extern const unsigned char ava_small_yaml[], colab_optimized_yaml[], colab_optimized_full_yaml[],
    demo_yaml[], gpt2_124m_yaml[], gpt2_350m_yaml[], gpt2_1558m_yaml[], llama_1b_yaml[],
    llama_7b_yaml[], lora_8b_yaml[], qlora_8b_8gb_yaml[], qwen2_5_7b_yaml[], tasks_yml[],
    wide_autoencoder_yaml[];

static const struct base {
    const char *name;
    const unsigned char *text;
} models[] = {
    {"tiny", demo_yaml},
    {"gpt2-124m", gpt2_124m_yaml},
    {"gpt2-350m", gpt2_350m_yaml},
    {"gpt2-1558m", gpt2_1558m_yaml},
    {"llama-1b", llama_1b_yaml},
    {"llama-7b", llama_7b_yaml},
    {"qwen2.5-7b", qwen2_5_7b_yaml},
    {"lora-8b", lora_8b_yaml},
    {"qlora-8b", qlora_8b_8gb_yaml},
};

/* A setting and what it is for. */
struct line {
    const char *key, *value, *why;
};

enum { MOST_LINES = 6 };

/* Where to start from. A card's name is one too: nothing but that card. */
static const struct preset {
    const char *name, *what, *card;
    const unsigned char *text; /* NULL: a model's */
    struct line lines[MOST_LINES];
} presets[] = {
    {"cpu", "a small model on the processor", "cpu", NULL, {{0}}},
    {.name = "colab",
     .what = "a notebook with a T4 and 12 GiB of its own",
     .card = "t4",
     .lines = {{"host_memory", "10GiB", "of the machine's 12"}}},
    {"three-branch", "the three-branch network in 39 GiB", "a100-40", tasks_yml, {{0}}},
    {.name = "deepspeed",
     .what = "the three-branch network, optimizer states on the host (ZeRO-2 with offload)",
     .card = "a100-40",
     .text = tasks_yml,
     .lines = {{"offload_optimizer", "true", "states live on the host"},
               {"optim", "adamw_8bit", "2 bytes of moments a parameter"},
               {"gradient_checkpointing", "true", "activations are made again"}}},
    {.name = "accelerate",
     .what = "the three-branch network, placed over GPU and host by the planner",
     .card = "a100-40",
     .text = tasks_yml,
     .lines = {{"host_memory", "100GiB", "what leaves the GPU goes here"}}},
    {"qlora", "4-bit weights of an 8B model with adapters", "rtx4090", qlora_8b_8gb_yaml, {{0}}},
    {"experts", "a mixture of experts of 317 million parameters", "rtx4090", ava_small_yaml, {{0}}},
    {"per-frame", "the per-frame network in full", "t4", colab_optimized_full_yaml, {{0}}},
    {"per-frame-small",
     "the per-frame network, half its channels",
     "t4",
     colab_optimized_yaml,
     {{0}}},
    {"autoencoder",
     "the wide autoencoder of 8.5 billion parameters",
     "a6000",
     wide_autoencoder_yaml,
     {{0}}},
};

static const char *const goals[] = {"pretrain", "finetune", "lora", "qlora"};

/* ---- names ----------------------------------------------------------------------------------- */

static const struct card *find_card(const char *name)
{
    for (int i = 0; i < card_count(); i++) {
        if (strcmp(card_at(i)->name, name) == 0)
            return card_at(i);
    }
    return NULL;
}

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(presets); i++) {
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    }
    return NULL;
}

static const unsigned char *find_model(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(models); i++) {
        if (strcmp(models[i].name, name) == 0)
            return models[i].text;
    }
    return NULL;
}

/* ---- YAML as lines --------------------------------------------------------------------------- */

/* An example may have a key commented out, as a hint: that line. */
static const char *find_hint(const char *text, const char *key, const char **end)
{
    size_t n = strlen(key);
    for (const char *line = text; *line;) {
        const char *next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (strncmp(line, "# ", 2) == 0 && strncmp(line + 2, key, n) == 0 && line[n + 2] == ':') {
            *end = next;
            return line;
        }
        line = next;
    }
    return NULL;
}

/* Where the top-level key stands with all that is indented below it; NULL: nowhere. */
static const char *find_block(const char *text, const char *key, const char **end)
{
    size_t n = strlen(key);
    for (const char *line = text; *line;) {
        const char *next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            while (*next == ' ' || *next == '-') {
                next += strcspn(next, "\n");
                next += *next == '\n';
            }
            *end = next;
            return line;
        }
        line = next;
    }
    return NULL;
}

/* Puts `block` (whole lines; "": nothing) where the key stands, or at the end. */
static void replace(struct str *text, const char *key, const char *block)
{
    struct str out = {0};
    const char *end = NULL, *at = find_block(str_text(text), key, &end);
    if (!at)
        at = find_hint(str_text(text), key, &end);
    if (at) {
        str_add_n(&out, str_text(text), (size_t)(at - str_text(text)));
        str_add(&out, block);
        str_add(&out, end);
    } else {
        str_add(&out, str_text(text));
        str_add(&out, block);
    }
    out.failed |= text->failed;
    str_release(text);
    *text = out;
}

static void set(struct str *text, const char *key, const char *value, const char *why)
{
    struct str block = {0};
    str_addf(&block, "%s: %s", key, value);
    if (why)
        str_addf(&block, "%*s# %s", (int)MAX(28 - (int)(strlen(key) + strlen(value)), 1), "", why);
    str_add(&block, "\n");
    replace(text, key, str_text(&block));
    text->failed |= block.failed;
    str_release(&block);
}

/* A value that somebody gave. */
static void set_text(struct str *text, const char *key, const char *value, const char *why)
{
    struct str quoted = {0};
    config_add_text(&quoted, value);
    set(text, key, str_text(&quoted), why);
    text->failed |= quoted.failed;
    str_release(&quoted);
}

/* The comment at the head of an example is about the example. */
static const char *body(const unsigned char *text)
{
    const char *at = (const char *)text;
    while (*at == '#' || *at == '\n') {
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return at;
}

/* ---- answers --------------------------------------------------------------------------------- */

struct answers {
    const struct preset *preset; /* NULL: none */
    const struct card *card;     /* NULL: the processor */
    const char *card_name, *model, *data, *goal, *output_dir;
    bool is_folder; /* the model is one, or a name of the Hugging Face hub */
};

static enum status take_card(struct answers *a, const char *name)
{
    struct str names = {0};
    a->card_name = name;
    a->card = find_card(name);
    if (a->card || strcmp(name, "cpu") == 0)
        return OK;
    card_add_names(&names);
    enum status status =
        FAIL(ERR_USAGE, "there is no card '%s'; there are cpu, %s", name, str_text(&names));
    str_release(&names);
    return status;
}

static enum status take_preset(struct answers *a, const char *name)
{
    a->preset = find_preset(name);
    if (a->preset || find_card(name))
        return OK;
    struct str names = {0};
    for (size_t i = 0; i < ARRAY_LEN(presets); i++)
        str_addf(&names, "%s%s", i ? ", " : "", presets[i].name);
    enum status status =
        FAIL(ERR_USAGE, "there is no preset '%s'; there are %s, and every card of snug help gpus",
             name, str_text(&names));
    str_release(&names);
    return status;
}

static const char *model_for(const struct answers *a)
{
    if (!a->card)
        return "tiny";
    if (strcmp(a->goal, "qlora") == 0)
        return "qlora-8b";
    if (strcmp(a->goal, "lora") == 0)
        return "lora-8b";
    return a->card->memory_mib < 12000   ? "gpt2-124m"
           : a->card->memory_mib < 20000 ? "gpt2-350m"
                                         : "llama-1b";
}

/* What is given is written into a file of lines. */
static enum status check_names(const struct snug_init *in)
{
    const char *const names[] = {in->model, in->data, in->output_dir};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool plain = !names[i] || utf8_prefix(names[i], strlen(names[i])) == strlen(names[i]);
        for (const char *c = names[i]; c && *c; c++)
            plain &= !iscntrl((unsigned char)*c);
        if (!plain)
            return FAIL(ERR_USAGE,
                        "'%s': a config holds no names with line breaks, other control "
                        "characters or bytes that are no UTF-8; give it another name",
                        names[i]);
    }
    return OK;
}

static enum status take(struct answers *a, const struct snug_init *in)
{
    bool known = in->goal == NULL;
    TRY(check_names(in));
    *a = (struct answers){.data = in->data,
                          .model = in->model,
                          .goal = in->goal ? in->goal : "pretrain",
                          .output_dir = in->output_dir ? in->output_dir : "out/run"};
    for (size_t i = 0; in->goal && i < ARRAY_LEN(goals); i++)
        known |= strcmp(goals[i], in->goal) == 0;
    if (!known)
        return FAIL(ERR_USAGE,
                    "there is no goal '%s'; there are pretrain, finetune, lora and qlora",
                    in->goal);
    if (in->preset)
        TRY(take_preset(a, in->preset));
    TRY(take_card(a, in->card                       ? in->card
                     : a->preset && a->preset->card ? a->preset->card
                     : in->preset                   ? in->preset
                                                    : "cpu"));
    if (a->preset && a->preset->text && in->model)
        return FAIL(ERR_USAGE, "the preset %s has its own model: leave --model out", in->preset);
    if (!a->model)
        a->model = model_for(a);
    a->is_folder = !find_model(a->model);
    if (a->is_folder && !strchr(a->model, '/') && !file_is_folder(a->model)) {
        struct str names = {0};
        for (size_t i = 0; i < ARRAY_LEN(models); i++)
            str_addf(&names, "%s%s", i ? ", " : "", models[i].name);
        enum status status = FAIL(
            ERR_USAGE, "there is no model '%s'; there are %s, folders, and names such as ORG/NAME",
            a->model, str_text(&names));
        str_release(&names);
        return status;
    }
    return OK;
}

/* ---- the text -------------------------------------------------------------------------------- */

static void add_model(const struct answers *a, struct str *text)
{
    const struct preset *p = a->preset;
    const unsigned char *base = p && p->text   ? p->text
                                : a->is_folder ? gpt2_124m_yaml
                                               : find_model(a->model);
    str_add(text, body(base));
    if (!a->is_folder || (p && p->text))
        return;
    struct str block = {0};
    str_add(&block, "model_name_or_path: ");
    config_add_text(&block, a->model);
    str_add(&block, "  # its weights, tokenizer and shape\n");
    replace(text, "model", str_text(&block));
    text->failed |= block.failed;
    str_release(&block);
}

static void add_data(const struct answers *a, struct str *text)
{
    struct str block = {0};
    const char *end;
    if (a->data) {
        str_add(&block, "datasets:\n  - path: ");
        config_add_text(&block, a->data);
        str_add(&block, "\n    type: auto          # by extension and first bytes\n");
        replace(text, "datasets", str_text(&block));
        text->failed |= block.failed;
        str_release(&block);
        return;
    }
    if (!find_block(str_text(text), "val_set_size", &end))
        return;
    replace(text, "datasets",
            "datasets:\n  - type: synthetic      # made up, with something to learn; --data FILE "
            "for your own\n");
    replace(text, "val_set_size", "");
    set(text, "eval_strategy", "no", "nothing is held out of made-up data");
}

/* Examples of made-up data run a few steps and keep nothing; a run of one's own goes on. */
static void add_length(const struct answers *a, struct str *text)
{
    const char *end;
    const char *at = find_block(str_text(text), "max_steps", &end);
    if (!at || strncmp(at, "max_steps: 20\n", 14) != 0)
        return;
    set(text, "max_steps", "1000", NULL);
    set(text, "warmup_steps", "100", NULL);
    if (!a->data)
        return;
    set(text, "save_strategy", "steps", NULL);
    set(text, "save_steps", "500", "a checkpoint each, to resume from");
    set(text, "save_total_limit", "2", NULL);
    if (!a->is_folder && !find_block(str_text(text), "tokenizer", &end))
        set(text, "tokenizer", "bytes", "every byte is a token; or a folder with a tokenizer.json");
}

static void add_goal(const struct answers *a, struct str *text)
{
    const char *end;
    bool adapts = strcmp(a->goal, "lora") == 0 || strcmp(a->goal, "qlora") == 0;
    if (adapts && !find_block(str_text(text), "adapter", &end)) {
        set(text, "adapter", a->goal, "small matrices beside the weights are trained");
        set(text, "lora_r", "16", NULL);
        set(text, "lora_alpha", "32", NULL);
        set(text, "learning_rate", "2e-4", NULL);
    } else if (strcmp(a->goal, "finetune") == 0) {
        set(text, "learning_rate", "2e-5", "small: the weights know something already");
        set(text, "warmup_ratio", "0.03", NULL);
        replace(text, "warmup_steps", "");
    }
}

static void add_card(const struct answers *a, struct str *text)
{
    char memory[32];
    if (!a->card) {
        set(text, "device", "cpu", NULL);
        replace(text, "bf16", "");
        replace(text, "fp16", "");
        return;
    }
    bool bf16 = a->card->capability >= 80;
    replace(text, bf16 ? "fp16" : "bf16", "");
    set(text, bf16 ? "bf16" : "fp16", "true",
        bf16 ? NULL : "this card has no bf16; with loss scaling");
    replace(text, "bnb_4bit_compute_dtype", "");
    /* What the driver keeps and a desktop takes is not the run's. */
    int tenths = (int)((double)a->card->memory_mib * 0.97 / 102.4);
    (void)snprintf(memory, sizeof(memory), "%d.%dGiB", tenths / 10, tenths % 10);
    set(text, "device_memory", memory, "a promise: what does not fit is made again or moved");
}

static void add_head(const struct answers *a, const struct snug_init *in, struct str *out)
{
    char plan[64], watch[256];
    const char *what = a->preset ? a->preset->what : a->card ? a->card->title : "the processor";
    str_addf(out, "# Made by snug init%s%s: %s.\n", in->preset ? " --preset " : "",
             in->preset ? in->preset : "", what);
    str_add(out, "# Every key can be changed here, or on the command line: snug train FILE "
                 "max_steps=50\n#\n");
    (void)snprintf(plan, sizeof(plan), "snug plan FILE%s%s", a->card ? " --gpu " : "",
                   a->card ? a->card->name : "");
    (void)snprintf(watch, sizeof(watch), "snug monitor %s", a->output_dir);
    str_addf(out, "#     %-32s what every byte will be for, before anything runs\n", plan);
    str_addf(out, "#     %-32s trains, with a page to watch it\n", "snug train FILE --serve");
    str_addf(out, "#     %-32s the same in a second terminal\n\n", watch);
}

enum snug_status snug_init_config(const struct snug_init *in, char **text)
{
    struct answers a;
    struct str s = {0}, out = {0};
    enum status status = take(&a, in);
    if (status == OK) {
        add_model(&a, &s);
        add_data(&a, &s);
        add_length(&a, &s);
        add_goal(&a, &s);
        add_card(&a, &s);
        for (int i = 0; a.preset && i < MOST_LINES && a.preset->lines[i].key; i++)
            set(&s, a.preset->lines[i].key, a.preset->lines[i].value, a.preset->lines[i].why);
        set_text(&s, "output_dir", a.output_dir,
                 "checkpoints, metrics.jsonl, what snug monitor reads");
        add_head(&a, in, &out);
        str_add(&out, str_text(&s));
        status = str_status(&s);
    }
    if (status == OK)
        status = str_status(&out);
    str_release(&s);
    return hand_out(&out, status, text);
}

const char *snug_preset_name(size_t i)
{
    return i < ARRAY_LEN(presets) ? presets[i].name : NULL;
}

const char *snug_preset_text(size_t i)
{
    return i < ARRAY_LEN(presets) ? presets[i].what : NULL;
}
