/* model.c: finding an architecture by name, and what holds for all of them. */
#include "model/model.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "model/quantization_config.h"

#define MODEL(name) extern const struct model_def model_def_##name;
#include "model/models.def"
#undef MODEL

static const struct model_def *const models[] = {
#define MODEL(name) &model_def_##name,
#include "model/models.def"
#undef MODEL
};

enum { MAX_NAMES = 64 };

/* ERR_UNSUPPORTED that lists what exists; `name` was asked for under `key`. */
static enum status fail_unknown(const char *key, const char *name)
{
    const char *names[MAX_NAMES];
    size_t n = 0;
    struct str list = {0};
    bool by_type = strcmp(key, "model_type") == 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const char *const *own = by_type ? models[i]->model_types : models[i]->architectures;
        for (; *own && n < MAX_NAMES; own++) {
            str_addf(&list, "%s%s", n ? ", " : "", *own);
            names[n++] = *own;
        }
    }
    const char *near = suggest(name, names, n);
    enum status status = str_status(&list);
    if (status == OK)
        status = FAIL(ERR_UNSUPPORTED,
                      "%s '%s' is not an architecture of this version%s%s%s; "
                      "there are: %s",
                      key, name, near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "",
                      str_text(&list));
    str_release(&list);
    return status;
}

static enum status find_by(struct model *m, const char *key, const char *name)
{
    bool by_type = strcmp(key, "model_type") == 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        const char *const *own = by_type ? models[i]->model_types : models[i]->architectures;
        for (int j = 0; own[j]; j++) {
            if (strcmp(own[j], name) == 0) {
                m->def = models[i];
                m->model_type = models[i]->model_types[j];
                return OK;
            }
        }
    }
    return fail_unknown(key, name);
}

static enum status find_def(struct model *m, const json_t *config)
{
    if (!json_is_object(config))
        return FAIL(ERR_CONFIG, "the model's config must be a mapping of keys");
    const json_t *type = json_object_get(config, "model_type");
    const json_t *architecture = json_array_get(json_object_get(config, "architectures"), 0);
    if (json_is_string(type))
        return find_by(m, "model_type", json_string_value(type));
    if (json_is_string(architecture))
        return find_by(m, "architectures", json_string_value(architecture));
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (models[i]->implied_by && json_object_get(config, models[i]->implied_by))
            return find_by(m, "model_type", models[i]->model_types[0]);
    }
    return FAIL(ERR_CONFIG, "key 'model_type' is missing; it names the architecture (gpt2, llama, "
                            "mistral, qwen2, qwen3); layers: is a network of your own");
}

/* Errors that are not yet about one of the architecture's keys name the place of `key`. */
static enum status locate(enum status status, const struct key_origin *origin, const char *key)
{
    bool written = origin->place && json_object_get(origin->written, key);
    if (status == OK)
        return OK;
    return status_prefix(status, "%s", written ? origin->place(origin->user, key) : origin->where);
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    TRY(locate(find_def(m, config), origin, "model_type"));
    TRY(locate(model_parse_quantization(m, json_object_get(config, "quantization_config")), origin,
               "quantization_config"));
    m->source = json_deep_copy(config);
    if (!m->source)
        return FAIL(ERR_MEMORY, "out of memory for a config");
    return m->def->parse(m, config, origin);
}

enum status model_new(struct model **out, const json_t *config, const struct key_origin *origin)
{
    *out = NULL;
    struct model *m;
    TRY(mem_try_array(&m, 1, sizeof(*m)));
    pool_init(&m->pool);
    m->language.bos_token = m->language.eos_token = -1;
    enum status status = parse(m, config, origin);
    if (status != OK) {
        model_free(m);
        return status;
    }
    *out = m;
    return OK;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    json_decref(m->source);
    pool_release(&m->pool);
    mem_free(m);
}

static enum status check_length(const struct model *m, const struct model_request *r)
{
    bool decode = r->purpose == MODEL_DECODE;
    int64_t longest = decode ? r->cache_len : r->seq_len;
    if (decode && r->cache_len < r->seq_len)
        return FAIL(ERR_CONFIG, "a cache of %" PRId64 " positions cannot take %" PRId64 " tokens",
                    r->cache_len, r->seq_len);
    if (longest > m->language.context)
        return FAIL(ERR_CONFIG,
                    "%s %" PRId64 " is longer than the model's context of %" PRId64
                    " positions; shorten it",
                    decode ? "the cache length" : "the sequence length", longest,
                    m->language.context);
    return OK;
}

static enum status check_request(const struct model *m, const struct model_request *r)
{
    bool has_length = m->samples.n_fields == 0;
    if (r->batch < 1 || r->seq_len < 1)
        return FAIL(ERR_CONFIG,
                    "batch size %" PRId64 " and sequence length %" PRId64 " must be at least 1",
                    r->batch, r->seq_len);
    if (!has_length && (r->purpose == MODEL_SCORE || r->purpose == MODEL_DECODE))
        return FAIL(ERR_UNSUPPORTED, "%s: a network without tokens writes no text", m->model_type);
    if (has_length)
        TRY(check_length(m, r));
    if (!dtype_is_float(r->dtype))
        return FAIL(ERR_CONFIG, "a model cannot have parameters of dtype %s", dtype_name(r->dtype));
    return OK;
}

enum status model_build(const struct model *m, struct builder *b, const struct model_request *r,
                        struct model_graph *out)
{
    TRY(check_request(m, r));
    TRY(m->def->build(m, b, r, out));
    TRY(model_mark_frozen(m, b, out));
    if (r->purpose == MODEL_TRAIN)
        TRY(model_check_trained(m, out));
    return model_set_rates(m, out);
}

enum status model_config_set_dtype(json_t *config, enum dtype dtype)
{
    const char *name = dtype == DTYPE_BF16  ? "bfloat16"
                       : dtype == DTYPE_F16 ? "float16"
                       : dtype == DTYPE_F64 ? "float64"
                                            : "float32";
    int bad = json_object_set_new(config, "dtype", json_string(name));
    bad |= json_object_set_new(config, "torch_dtype", json_string(name));
    return bad ? FAIL(ERR_MEMORY, "out of memory for a config") : OK;
}

json_t *model_export_config(const struct model *m)
{
    json_t *config = json_deep_copy(m->source);
    json_t *ours = m->def->export_config(m);
    int i = 0;
    while (m->def->model_types[i] && strcmp(m->def->model_types[i], m->model_type) != 0)
        i++;
    int bad = json_object_update(config, ours);
    json_decref(ours);
    bad |= json_object_set_new(config, "model_type", json_string(m->model_type));
    bad |= json_object_set_new(config, "architectures", json_pack("[s]", m->def->architectures[i]));
    /* They speak of the software and the place the config came from. */
    json_object_del(config, "transformers_version");
    json_object_del(config, "_name_or_path");
    /* What is written is not quantised; ternary weights are rounded by whoever computes with them.
     */
    json_object_del(config, "quantization_config");
    if (m->ternary)
        bad |= json_object_set_new(config, "quantization_config", model_ternary_config());
    if (!bad && model_config_set_dtype(config, DTYPE_F32) == OK)
        return config;
    json_decref(config);
    return NULL;
}

/* Parameters move to an array of twice the size; the old one stays in the pool. */
static void grow_params(struct builder *b, struct model_graph *out, int *room)
{
    int larger_room = MAX(16, 2 * *room);
    struct model_param *larger;
    b->status = pool_try(&b->g->pool, &larger, sizeof(*larger) * (size_t)larger_room);
    if (b->status != OK)
        return;
    for (int i = 0; i < out->n_params; i++)
        larger[i] = out->params[i];
    out->params = larger;
    *room = larger_room;
}

value_id model_add_param(struct builder *b, struct model_graph *out, int *room,
                         struct model_param param, enum dtype dtype)
{
    param.value = build_value(b, param.name, param.buffer ? ROLE_STATE : ROLE_PARAMETER,
                              param.buffer ? DTYPE_F32 : dtype, param.shape);
    if (b->status == OK && out->n_params == *room)
        grow_params(b, out, room);
    if (b->status != OK)
        return VALUE_NONE;
    param.latest = param.value;
    out->params[out->n_params++] = param;
    return param.value;
}

int64_t model_count_params(const struct model_graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_params; i++)
        n += g->params[i].buffer ? 0 : shape_elems(&g->params[i].shape);
    return n;
}

static int64_t active_elems(const struct model_param *p)
{
    int64_t elems = shape_elems(&p->shape);
    return p->n_experts ? elems / p->n_experts * p->n_met : elems;
}

int64_t model_count_active(const struct model_graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_params; i++)
        n += active_elems(&g->params[i]);
    return n;
}

int64_t model_count_trained(const struct model_graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_params; i++)
        n += g->params[i].frozen ? 0 : shape_elems(&g->params[i].shape);
    return n;
}

int64_t model_count_frozen(const struct model_graph *g)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_params; i++) {
        const struct model_param *p = &g->params[i];
        n += p->frozen && !p->buffer && !p->table ? active_elems(p) : 0;
    }
    return n;
}

struct shape param_piece_shape(const struct model_param *p, int k)
{
    struct shape s = p->shape;
    if (p->n_experts) {
        s.rank--;
        for (int i = 0; i < s.rank; i++)
            s.dim[i] = s.dim[i + 1];
    }
    s.dim[0] = p->pieces[k].rows;
    return s;
}

int64_t param_row_elems(const struct model_param *p)
{
    return shape_inner(&p->shape, p->n_experts ? 2 : 1);
}

int64_t param_unit(const struct model_param *p)
{
    return p->transposed ? shape_elems(&p->shape) : p->channels ? shape_inner(&p->shape, 1) : 1;
}

struct quant_layout param_quant_layout(const struct model_param *p)
{
    int rank = p->shape.rank;
    struct quant_layout l = {.q = p->quantization,
                             .n_columns = p->shape.dim[rank - 1],
                             .n_pieces = p->n_pieces,
                             .n_matrices = (int)p->n_experts};
    BUG_ON(rank != (p->n_experts ? 3 : 2) || quant_pieces_each(&l) > MAX_ATTR_INTS);
    for (int k = 0; k < quant_pieces_each(&l); k++)
        l.rows[k] = p->pieces[k].rows;
    return l;
}
