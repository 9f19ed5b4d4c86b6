/* files.c: token files and model folders. */
#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/log.h"
#include "data/source.h"
#include "engine/adapter_config.h"
#include "engine/model_open.h"
#include "engine/parameter_stream.h"
#include "engine/weights_origin.h"
#include "io/export.h"
#include "io/gguf_export.h"
#include "io/peft.h"
#include "task/language.h"

/* ---- tokenize -------------------------------------------------------------------------------- */

static enum status write_tokens(const struct source_options *from, const char *path,
                                struct snug_tokenized *out)
{
    struct token_writer *w;
    TRY(token_writer_open(&w, path, TOKEN_FORMAT_LLMC, out->vocab_size));
    enum status status = source_write(from, w);
    out->n_tokens = token_writer_n_tokens(w);
    out->n_unlabelled = token_writer_n_ignored(w);
    if (status != OK) {
        token_writer_abandon(w);
        return status;
    }
    int width = token_dtype_bytes(token_dtype_for_vocab(out->vocab_size));
    out->n_bytes = 1024 + out->n_tokens * width;
    return token_writer_commit(w);
}

static enum status require_text(const struct model *m)
{
    if (m->samples.n_fields > 0)
        return FAIL(ERR_USAGE, "the samples of this network are tensors: it reads no tokens");
    return OK;
}

enum snug_status snug_tokenize(const struct snug_config *config,
                               const struct snug_settings *settings, const char *const *inputs,
                               size_t n_inputs, const char *out_path, struct snug_tokenized *out)
{
    const struct config *cfg = config->config;
    struct model *model = NULL;
    char *folder = NULL;
    struct tokenizer *tokenizer = NULL;
    enum status status;
    *out = (struct snug_tokenized){0};
    struct device_room room;
    room_of_host(&room);
    TRY_GOTO(open_model(cfg, settings_or_none(settings).hub_folder, &model, &folder), out);
    TRY_GOTO(require_text(model), out);
    TRY_GOTO(language_open_tokenizer(cfg, model, folder, &tokenizer), out);
    out->vocab_size = model->language.vocab_size;
    struct source_options o = {
        .kind = SOURCE_AUTO,
        .paths = inputs,
        .n_paths = n_inputs,
        .tokenizer = tokenizer,
        .vocab_size = model->language.vocab_size,
        .output = out_path,
        .text_field = cfg->datasets.n ? cfg->datasets.items[0].text_field : NULL,
        .spare_bytes = room_available(&room),
    };
    if (source_open_bytes(&o) > 0)
        language_tell_documents(tokenizer);
    TRY_GOTO(write_tokens(&o, out_path, out), out);
out:
    tokenizer_free(tokenizer);
    model_free(model);
    mem_free(folder);
    return public_status(status);
}

/* ---- export ---------------------------------------------------------------------------------- */

/* The type as trained, where none is asked for. */
static const char *dtype_or_trained(const struct config *cfg, const char *text)
{
    return text ? text : cfg->bf16 == CONFIG_TRISTATE_TRUE ? "bf16" : cfg->fp16 ? "f16" : "f32";
}

static enum status parse_dtype(const char *text, enum dtype *dtype)
{
    enum gguf_recipe recipe;
    if (dtype_parse(text, dtype) &&
        (*dtype == DTYPE_F32 || *dtype == DTYPE_BF16 || *dtype == DTYPE_F16))
        return OK;
    return gguf_recipe_parse(text, &recipe)
               ? FAIL(ERR_USAGE,
                      "dtype '%s' is of GGUF files: name one (-o model.gguf); a folder has f32, "
                      "bf16 or f16",
                      text)
               : FAIL(ERR_USAGE, "dtype '%s': write f32, bf16 or f16", text);
}

static enum status parse_recipe(const char *text, enum gguf_recipe *recipe)
{
    if (gguf_recipe_parse(text, recipe))
        return OK;
    struct str names = {0};
    for (int i = 0; i < GGUF_RECIPE_COUNT; i++)
        str_addf(&names, "%s%s", i ? ", " : "", gguf_recipe_name((enum gguf_recipe)i));
    enum status status =
        FAIL(ERR_USAGE, "dtype '%s': of GGUF there are %s", text, str_text(&names));
    str_release(&names);
    return status;
}

static enum status parse_format(const struct snug_export_options *o, bool *is_gguf)
{
    *is_gguf = o->format ? strcmp(o->format, "gguf") == 0 : str_ends_with(o->out_dir, ".gguf");
    if (!o->format || *is_gguf || strcmp(o->format, "hf") == 0)
        return OK;
    return FAIL(ERR_USAGE, "format '%s': write hf (a folder) or gguf (a file)", o->format);
}

/* What is written: all of a model with an adapter, of which that alone is stored; or the model
 * without one. */
struct chosen {
    struct model_param *params;
    struct tensor *tensors;
    int n;
};

static enum status choose(struct chosen *c, const struct parameter_stream *s, bool adapter)
{
    *c = (struct chosen){0};
    TRY(mem_try_array(&c->params, (size_t)MAX(s->io.n_params, 1), sizeof(*c->params)));
    TRY(mem_try_array(&c->tensors, (size_t)MAX(s->io.n_params, 1), sizeof(*c->tensors)));
    for (int i = 0; i < s->io.n_params; i++) {
        if (s->io.params[i].adapter && !adapter)
            continue;
        c->params[c->n] = s->io.params[i];
        c->tensors[c->n++] = s->tensors[i];
    }
    return OK;
}

static void count_chosen(const struct chosen *c, bool adapter, struct snug_exported *out)
{
    for (int i = 0; i < c->n; i++) {
        const struct model_param *p = &c->params[i];
        if (adapter && p->frozen)
            continue;
        out->n_tensors += p->n_pieces;
        out->n_params += p->buffer ? 0 : shape_elems(&p->shape);
    }
}

/* Parameters go one after the other through a buffer: the largest decides. */
static enum status require_fit(const struct config *cfg, int64_t needs)
{
    char need[BYTES_TEXT], have[BYTES_TEXT];
    struct device_room room;
    bool given = cfg->host_memory != CONFIG_AUTO && cfg->host_memory != CONFIG_UNSET;
    room_of_host(&room);
    int64_t limit = given ? cfg->host_memory : room_available(&room);
    if (needs <= limit)
        return OK;
    return FAIL(ERR_FIT,
                "does not fit: writing the model needs %s (%lld bytes) of host memory, %s %s (%lld "
                "bytes): %s",
                format_bytes(need, needs), (long long)needs,
                given ? "the budget is" : "but what can be had is", format_bytes(have, limit),
                (long long)limit, given ? "raise host_memory" : "end what holds the rest");
}

static enum status write_content(const struct config *cfg, const struct parameter_stream *stream,
                                 const struct export_content *content,
                                 const struct snug_export_options *options)
{
    TRY(require_fit(cfg, parameter_stream_bytes(stream, content->dtype)));
    return export_model(options->out_dir, content, options->force);
}

/* What an export is made of. */
struct exporting {
    const struct config *cfg;
    struct model *model;
    char *model_folder, *adapter_folder;
    const struct snug_export_options *options;
    struct snug_exported *out;
};

/* The one that the config names; NULL: the tokenizer's own. */
static const char *chat_family(const struct config *cfg)
{
    if (cfg->chat_template == CONFIG_CHAT_TOKENIZER_DEFAULT)
        return NULL;
    return config_choice_name("chat_template", (int)cfg->chat_template);
}

/* A tokenizer is the model's; an adapter's folder may have none. */
static const char *extras_folder(const struct exporting *e)
{
    bool is_models = !e->out->weights || peft_is_folder(e->out->weights);
    return is_models && e->model_folder ? e->model_folder : e->out->weights;
}

static enum status write_export(const struct exporting *e, struct parameter_stream *stream,
                                bool adapter)
{
    struct chosen chosen;
    enum dtype dtype;
    enum status status = parse_dtype(dtype_or_trained(e->cfg, e->options->dtype), &dtype);
    if (status != OK)
        return status;
    TRY_GOTO(choose(&chosen, stream, adapter), out);
    struct export_content content = {
        .model = e->model,
        .params = chosen.params,
        .n_params = chosen.n,
        .tensors = chosen.tensors,
        .stage = &stream->stage,
        .dtype = dtype,
        .adapter = adapter,
        .base = e->cfg->model_name_or_path,
        .weights_folder = e->out->weights,
        .extras_folder = extras_folder(e),
        .chat_family = chat_family(e->cfg),
    };
    e->out->dtype = dtype_name(dtype);
    count_chosen(&chosen, adapter, e->out);
    TRY_GOTO(write_content(e->cfg, stream, &content, e->options), out);
out:
    mem_free(chosen.params);
    mem_free(chosen.tensors);
    return status;
}

/* The file's own name, without its ending: what programs show. */
static char *stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *stem = mem_strdup(name);
    if (stem && str_ends_with(stem, ".gguf"))
        stem[strlen(stem) - 5] = '\0';
    return stem;
}

static enum status write_gguf_content(const struct exporting *e,
                                      const struct parameter_stream *stream,
                                      const struct gguf_content *content)
{
    struct gguf_export *g;
    TRY(gguf_export_new(&g, content));
    e->out->dtype = gguf_recipe_name(content->recipe);
    e->out->n_tensors = gguf_export_n_tensors(g);
    e->out->n_bytes = gguf_export_file_bytes(g);
    e->out->n_wider = gguf_export_n_wider(g);
    e->out->has_tokenizer = gguf_export_has_tokenizer(g);
    if (gguf_export_caveats(g)[0])
        log_warn("%s", gguf_export_caveats(g));
    enum status status =
        require_fit(e->cfg, parameter_stream_bytes(stream, DTYPE_F32) + gguf_export_bytes(g));
    if (status == OK)
        status = gguf_export_write(g, e->options->out_dir, e->options->force);
    gguf_export_free(g);
    return status;
}

static enum status write_gguf(const struct exporting *e, struct parameter_stream *stream)
{
    struct chosen chosen = {0};
    enum gguf_recipe recipe;
    enum status status = parse_recipe(dtype_or_trained(e->cfg, e->options->dtype), &recipe);
    char *name = stem_of(e->options->out_dir);
    if (status == OK && !name)
        status = FAIL(ERR_MEMORY, "%s: out of memory", e->options->out_dir);
    if (status == OK)
        status = choose(&chosen, stream, false);
    struct gguf_content content = {.model = e->model,
                                   .params = chosen.params,
                                   .n_params = chosen.n,
                                   .tensors = chosen.tensors,
                                   .stage = &stream->stage,
                                   .team = stream->team,
                                   .recipe = recipe,
                                   .name = name,
                                   .extras_folder = extras_folder(e),
                                   .chat_family = chat_family(e->cfg)};
    if (status == OK) {
        count_chosen(&chosen, false, e->out);
        status = write_gguf_content(e, stream, &content);
    }
    mem_free(name);
    mem_free(chosen.params);
    mem_free(chosen.tensors);
    return status;
}

static enum status export_from(const struct exporting *e)
{
    bool has_adapter = e->model->adapter != NULL;
    struct parameter_stream stream;
    struct parameter_stream_options o = {.model = e->model,
                                         .seed = (uint64_t)e->cfg->seed,
                                         .n_threads = (int)e->cfg->num_threads,
                                         .merge =
                                             has_adapter && (e->options->merge || e->out->is_gguf)};
    if (e->options->merge && !has_adapter)
        return FAIL(ERR_USAGE, "there is no adapter to merge: the config has none");
    e->out->is_merged = o.merge;
    TRY(weight_folders(&o.folders, e->model, e->out->weights, e->model_folder, e->adapter_folder));
    TRY(parameter_stream_open(&stream, &o));
    enum status status = e->out->is_gguf
                             ? write_gguf(e, &stream)
                             : write_export(e, &stream, has_adapter && !e->options->merge);
    parameter_stream_close(&stream);
    return status;
}

enum snug_status snug_export(const struct snug_config *config, const struct snug_settings *settings,
                             const struct snug_export_options *options, struct snug_exported *out)
{
    const char *hub_folder = settings_or_none(settings).hub_folder;
    struct exporting e = {.cfg = config->config, .options = options, .out = out};
    enum status status;
    *out = (struct snug_exported){0};
    TRY_GOTO(parse_format(options, &out->is_gguf), out);
    TRY_GOTO(open_model(e.cfg, hub_folder, &e.model, &e.model_folder), out);
    TRY_GOTO(adapter_from_config(e.model, e.cfg, hub_folder, &e.adapter_folder), out);
    TRY_GOTO(weights_origin(e.cfg, e.model, e.model_folder,
                            checkpoint_spec(config, options->checkpoint), &out->weights),
             out);
    TRY_GOTO(export_from(&e), out);
out:
    if (status != OK) {
        mem_free(out->weights);
        out->weights = NULL;
    }
    model_free(e.model);
    mem_free(e.model_folder);
    mem_free(e.adapter_folder);
    return public_status(status);
}
