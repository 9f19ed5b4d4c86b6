/* gguf_export.c: see gguf_export.h. */
#include "io/gguf_export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/pool.h"
#include "io/gguf_recipe.h"
#include "io/gguf_tokenizer.h"
#include "ops/ternary.h"

/* Elements on their way at a time, at most, but for rows that are longer. */
enum { BUFFER_ELEMS = 1 << 20 };

/* A tensor of the file: some rows of a parameter, of each expert where it has several. */
struct part {
    const char *name;
    int i_param; /* -1: the table of rotary scales */
    enum gguf_type type;
    int64_t n_experts, expert_rows; /* [n_experts, expert_rows, row_elems] is the parameter, */
    int64_t first, rows, row_elems; /* of which these rows */
    int64_t head; /* rows of a head whose rotary channels become pairs; 0: they stay */
    float offset; /* added to each element */
    bool ternary; /* rounded as the model computes with it */
};

struct gguf_export {
    struct gguf_content c;
    const struct gguf_family *family;
    struct pool pool; /* names */
    struct gguf file;
    VEC(struct part) parts;
    int64_t n_wider;
    bool has_tokenizer;
    struct str caveats;
    float *elems;   /* rows as the file has them */
    uint8_t *bytes; /* and in its type */
    int64_t n_elems, n_bytes;
};

/* ---- what is in the file ---- */

static const struct llama_config *llama_of(const struct model *m)
{
    return strcmp(m->def->name, "llama") == 0 ? m->config : NULL;
}

/* What becomes of rows and elements on their way. */
static void set_changes(const struct gguf_export *e, struct part *part)
{
    const struct llama_config *c = llama_of(e->c.model);
    const char *at = strrchr(part->name, '.');
    bool is_q = strstr(part->name, ".attn_q.") != NULL,
         is_k = strstr(part->name, ".attn_k.") != NULL;
    if (!c || !at)
        return;
    if (e->family->pairs && (is_q || is_k))
        part->head = c->head_dim;
    if (str_ends_with(part->name, "_norm.weight"))
        part->offset = (float)c->traits->norm_offset;
}

static int64_t layer_of(const char *name)
{
    return str_starts_with(name, "blk.") ? strtoll(name + 4, NULL, 10) : -1;
}

static enum status declare(struct gguf_export *e, struct part *part, int rank, const int64_t *dims)
{
    const struct llama_config *c = llama_of(e->c.model);
    bool wider;
    struct gguf_wanted wanted = {.name = part->name,
                                 .rank = rank,
                                 .row_elems = dims[rank - 1],
                                 .layer = layer_of(part->name),
                                 .n_layers = e->c.model->n_layers,
                                 .n_experts = c && c->traits->experts ? c->experts.n : 0,
                                 .tied = e->c.model->language.tied};
    part->type = gguf_recipe_type(e->c.recipe, &wanted, &wider);
    e->n_wider += wider;
    TRY(gguf_tensor(&e->file, part->name, part->type, rank, dims));
    return vec_push(&e->parts, *part);
}

static enum status add_piece(struct gguf_export *e, int i, int k, int64_t first)
{
    const struct model_param *p = &e->c.params[i];
    struct str name = {0};
    enum status status = gguf_name(e->c.model, p->pieces[k].name, &name);
    struct part part = {.name = pool_strdup(&e->pool, str_text(&name)),
                        .i_param = i,
                        .n_experts = MAX(p->n_experts, (int64_t)1),
                        .expert_rows = p->shape.dim[p->n_experts > 0],
                        .first = first,
                        .rows = p->pieces[k].rows,
                        .row_elems = param_row_elems(p)};
    str_release(&name);
    TRY(status);
    TRY(pool_status(&e->pool));
    int64_t dims[3] = {part.n_experts, part.rows, part.row_elems};
    int from = p->n_experts ? 0 : 1, to = p->shape.rank - (p->n_experts ? 0 : -1);
    set_changes(e, &part);
    part.ternary = e->c.model->ternary && p->linear;
    return declare(e, &part, to - from, dims + from);
}

/* Of experts the pieces of the first: all have the same. */
static enum status add_param(struct gguf_export *e, int i)
{
    const struct model_param *p = &e->c.params[i];
    int n_pieces = p->n_pieces / (int)MAX(p->n_experts, (int64_t)1);
    int64_t first = 0;
    BUG_ON(p->channels || e->c.tensors[i].dtype != DTYPE_F32);
    for (int k = 0; k < n_pieces; k++) {
        TRY(add_piece(e, i, k, first));
        first += p->pieces[k].rows;
    }
    return OK;
}

static enum status add_rope_table(struct gguf_export *e)
{
    const struct llama_config *c = llama_of(e->c.model);
    if (!c || c->rope.type != ROPE_LLAMA3)
        return OK;
    int64_t n = rope_channels(&c->rope, c->head_dim) / 2;
    struct part part = {.name = "rope_freqs.weight",
                        .i_param = -1,
                        .n_experts = 1,
                        .expert_rows = n,
                        .rows = n,
                        .row_elems = 1};
    return declare(e, &part, 1, &n);
}

static enum status put_general(struct gguf_export *e)
{
    struct gguf *g = &e->file;
    const char *architecture = e->family->architecture;
    gguf_key_text(g, "general.architecture", architecture, strlen(architecture));
    gguf_key_text(g, "general.type", "model", 5);
    gguf_key_text(g, "general.name", e->c.name, strlen(e->c.name));
    gguf_key_u32(g, "general.file_type", gguf_recipe_id(e->c.recipe));
    gguf_key_u32(g, "general.quantization_version", 2);
    TRY(gguf_model_keys(g, e->c.model, e->family));
    return gguf_tokenizer_keys(g, e->c.extras_folder, e->c.chat_family, &e->c.model->language,
                               &e->has_tokenizer);
}

static int64_t rows_at_once(const struct part *p)
{
    return MIN(MAX(BUFFER_ELEMS / p->row_elems, (int64_t)1), p->rows);
}

static int64_t row_bytes(const struct part *p)
{
    return p->row_elems / gguf_types[p->type].elems * gguf_types[p->type].bytes;
}

static void size_buffers(struct gguf_export *e)
{
    for (size_t i = 0; i < e->parts.n; i++) {
        const struct part *p = &e->parts.items[i];
        e->n_elems = MAX(e->n_elems, rows_at_once(p) * p->row_elems);
        e->n_bytes = MAX(e->n_bytes, rows_at_once(p) * row_bytes(p));
    }
}

static enum status fill(struct gguf_export *e)
{
    TRY(gguf_family_find(&e->family, e->c.model));
    if (e->c.recipe == GGUF_MOST_TQ2 && !e->c.model->ternary)
        return FAIL(ERR_USAGE, "tq2_0 holds -1, 0 and 1: it is for models of quantization: bitnet");
    gguf_caveats(e->c.model, e->family, &e->caveats);
    TRY(put_general(e));
    TRY(add_rope_table(e));
    for (int i = 0; i < e->c.n_params; i++)
        TRY(add_param(e, i));
    size_buffers(e);
    return OK;
}

enum status gguf_export_new(struct gguf_export **out, const struct gguf_content *c)
{
    TRY(mem_try_array(out, 1, sizeof(**out)));
    struct gguf_export *e = *out;
    e->c = *c;
    pool_init(&e->pool);
    enum status status = fill(e);
    if (status != OK) {
        gguf_export_free(e);
        *out = NULL;
    }
    return status;
}

void gguf_export_free(struct gguf_export *e)
{
    if (!e)
        return;
    gguf_release(&e->file);
    vec_release(&e->parts);
    str_release(&e->caveats);
    mem_free(e->elems);
    mem_free(e->bytes);
    pool_release(&e->pool);
    mem_free(e);
}

int64_t gguf_export_bytes(const struct gguf_export *e)
{
    return e->n_elems * (int64_t)sizeof(float) + e->n_bytes;
}

int64_t gguf_export_file_bytes(const struct gguf_export *e)
{
    return gguf_data_bytes(&e->file);
}

int64_t gguf_export_n_tensors(const struct gguf_export *e)
{
    return (int64_t)e->parts.n;
}

int64_t gguf_export_n_wider(const struct gguf_export *e)
{
    return e->n_wider;
}

bool gguf_export_has_tokenizer(const struct gguf_export *e)
{
    return e->has_tokenizer;
}

const char *gguf_export_caveats(const struct gguf_export *e)
{
    return str_text(&e->caveats);
}

/* ---- bytes ---- */

/* Where row r of the file is in the part: pair i of a head is channels i and i + head / 2. */
static int64_t source_row(const struct part *p, int64_t r)
{
    if (!p->head)
        return r;
    int64_t in_head = r % p->head;
    return r - in_head + in_head % 2 * (p->head / 2) + in_head / 2;
}

struct rows_job {
    const struct part *part;
    const float *source; /* row 0 of the part, of one expert */
    float *elems;
    uint8_t *bytes;
    int64_t first; /* row of the file that elems and bytes begin with */
    float scale;   /* of a ternary matrix */
};

/* A weight as ternary_weight makes it (ops/ternary_weight.c). */
static float ternary_of(float w, float scale)
{
    float r = rintf(w / scale);
    return (r < -1.0f ? -1.0f : r > 1.0f ? 1.0f : r) * scale;
}

static float ternary_scale(const float *w, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)fabsf(w[i]);
    return fmaxf((float)(sum / (double)n), TERNARY_LEAST);
}

static void encode_rows(const void *user, int64_t first, int64_t last, int thread)
{
    const struct rows_job *j = user;
    const struct part *p = j->part;
    int64_t n_bytes = row_bytes(p);
    (void)thread;
    for (int64_t r = first; r < last; r++) {
        float *x = j->elems + r * p->row_elems;
        const float *from = j->source + source_row(p, j->first + r) * p->row_elems;
        for (int64_t k = 0; k < p->row_elems; k++)
            x[k] = p->ternary ? ternary_of(from[k], j->scale) : from[k] + p->offset;
        gguf_encode(p->type, x, p->row_elems, j->bytes + r * n_bytes);
    }
}

/* The largest magnitude that a type holds; f16 scales set it for integers. */
static float most_of(enum gguf_type type)
{
    return type == GGUF_F16 ? 65519.0f : gguf_types[type].quantized ? 65504.0f * 8 : INFINITY;
}

static enum status check_range(const struct part *p, const float *x, int64_t n)
{
    float most = most_of(p->type);
    bool any = !gguf_types[p->type].quantized;
    for (int64_t i = 0; i < n; i++)
        if (any ? isfinite(x[i]) && fabsf(x[i]) > most : !(fabsf(x[i]) <= most))
            return FAIL(ERR_CONFIG,
                        "%s: there is a %g in it, which %s cannot hold; export as f32 or bf16",
                        p->name, (double)x[i], gguf_types[p->type].name);
    return OK;
}

static enum status write_rows(struct gguf_export *e, const struct part *p, const float *source)
{
    int64_t n_at_once = rows_at_once(p), n_elems = p->rows * p->row_elems;
    float scale = p->ternary ? ternary_scale(source, n_elems) : 0.0f;
    TRY(check_range(p, source, n_elems));
    for (int64_t r = 0; r < p->rows; r += n_at_once) {
        int64_t n = MIN(n_at_once, p->rows - r);
        struct rows_job job = {.part = p,
                               .source = source,
                               .elems = e->elems,
                               .bytes = e->bytes,
                               .first = r,
                               .scale = scale};
        team_run(e->c.team, n, MAX(4096 / p->row_elems, (int64_t)1), encode_rows, &job);
        TRY(gguf_append(&e->file, e->bytes, (size_t)(n * row_bytes(p))));
    }
    return OK;
}

/* How much longer a turn of each pair of channels takes than without the scaling. */
static enum status write_rope_table(struct gguf_export *e, const struct part *p)
{
    const struct llama_config *c = llama_of(e->c.model);
    struct rope plain = c->rope;
    float scaled[ROPE_MAX_HEAD_DIM / 2], unscaled[ROPE_MAX_HEAD_DIM / 2];
    plain.type = ROPE_DEFAULT;
    rope_inv_freq(&c->rope, 2 * p->rows, scaled);
    rope_inv_freq(&plain, 2 * p->rows, unscaled);
    for (int64_t i = 0; i < p->rows; i++)
        unscaled[i] /= scaled[i];
    return write_rows(e, p, unscaled);
}

static enum status write_part(struct gguf_export *e, const struct part *p, const float *data)
{
    for (int64_t x = 0; x < p->n_experts; x++)
        TRY(write_rows(e, p, data + (x * p->expert_rows + p->first) * p->row_elems));
    return OK;
}

static enum status write_parts(struct gguf_export *e)
{
    struct tensor t = {0};
    int fetched = -1;
    for (size_t i = 0; i < e->parts.n; i++) {
        const struct part *p = &e->parts.items[i];
        if (p->i_param >= 0 && fetched != p->i_param)
            TRY(stage_fetch(e->c.stage, &e->c.tensors[p->i_param], &t));
        fetched = p->i_param >= 0 ? p->i_param : fetched;
        TRY(p->i_param >= 0 ? write_part(e, p, t.data) : write_rope_table(e, p));
    }
    return OK;
}

enum status gguf_export_write(struct gguf_export *e, const char *path, bool force)
{
    if (file_is_regular(path) && !force)
        return FAIL(ERR_USAGE, "%s: exists; choose another name, or replace it (--force)", path);
    TRY(mem_try_array(&e->elems, (size_t)e->n_elems, sizeof(*e->elems)));
    TRY(mem_try_array(&e->bytes, (size_t)e->n_bytes, sizeof(*e->bytes)));
    TRY(gguf_open(&e->file, path));
    TRY(write_parts(e));
    return gguf_commit(&e->file);
}
