/* files.c: token files and model folders. */
#include <string.h>

#include "api/api_internal.h"
#include "base/alloc.h"
#include "data/source.h"
#include "engine/model_open.h"
#include "engine/parameter_stream.h"
#include "engine/weights_origin.h"
#include "io/export.h"
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

static enum status parse_dtype(const struct config *cfg, const char *text, enum dtype *dtype)
{
    *dtype = cfg->bf16 == CONFIG_TRISTATE_TRUE ? DTYPE_BF16 : cfg->fp16 ? DTYPE_F16 : DTYPE_F32;
    if (!text)
        return OK;
    if (dtype_parse(text, dtype) &&
        (*dtype == DTYPE_F32 || *dtype == DTYPE_BF16 || *dtype == DTYPE_F16))
        return OK;
    return FAIL(ERR_USAGE, "dtype '%s': write f32, bf16 or f16", text);
}

static int64_t count_tensors(const struct model_graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_params; i++)
        n += g->params[i].n_pieces;
    return n;
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

static enum status write_export(const struct config *cfg, const struct model *model,
                                const char *model_folder, const struct snug_export_options *options,
                                struct snug_exported *out)
{
    struct parameter_stream stream;
    enum dtype dtype;
    TRY(parse_dtype(cfg, options->dtype, &dtype));
    TRY(parameter_stream_open(&stream, model, out->weights, (uint64_t)cfg->seed,
                              (int)cfg->num_threads));
    struct export_content content = {
        .model = model,
        .params = stream.io.params,
        .n_params = stream.io.n_params,
        .tensors = stream.tensors,
        .stage = &stream.stage,
        .dtype = dtype,
        .weights_folder = out->weights,
        .extras_folder = out->weights ? out->weights : model_folder,
    };
    out->dtype = dtype_name(dtype);
    out->n_params = model_count_params(&stream.io);
    out->n_tensors = count_tensors(&stream.io);
    enum status status = write_content(cfg, &stream, &content, options);
    parameter_stream_close(&stream);
    return status;
}

enum snug_status snug_export(const struct snug_config *config, const struct snug_settings *settings,
                             const struct snug_export_options *options, struct snug_exported *out)
{
    const struct config *cfg = config->config;
    struct model *model = NULL;
    char *folder = NULL;
    enum status status;
    *out = (struct snug_exported){0};
    TRY_GOTO(open_model(cfg, settings_or_none(settings).hub_folder, &model, &folder), out);
    TRY_GOTO(weights_origin(cfg, model, folder, checkpoint_spec(config, options->checkpoint),
                            &out->weights),
             out);
    TRY_GOTO(write_export(cfg, model, folder, options, out), out);
out:
    if (status != OK) {
        mem_free(out->weights);
        out->weights = NULL;
    }
    model_free(model);
    mem_free(folder);
    return public_status(status);
}
