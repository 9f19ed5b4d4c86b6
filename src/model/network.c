/* network.c: a network of one's own: inputs, a list of layers, heads, losses.
 *
 *     model:
 *       input: [32, 32, 3]            height, width, channels: one sample
 *       layers: [...]                 layers/layers.def has the kinds
 *       loss: cross_entropy
 *
 * Several inputs have names (inputs: {image: [..], facts: [..]}), and so have several outputs
 * (heads: {mask: [..], class: [..]} with loss: {mask: bce, class: cross_entropy}).
 */
#include <string.h>

#include "model/config_keys.h"
#include "model/layers/init.h"
#include "model/layers/objective.h"

enum { MOST_HEADS = MODEL_MOST_LOSSES };

struct head {
    const char *name; /* "": the end of the layers itself */
    const char *target;
    struct layer_list layers;
    struct objective objective;
};

struct network {
    struct model_field inputs[WRITER_MOST_FIELDS];
    int n_inputs;
    struct layer_list layers;
    struct head heads[MOST_HEADS];
    int n_heads;
};

static const char *const model_types[] = {"network", NULL};
static const char *const architectures[] = {"SnugNetwork", NULL};

/* ---- inputs ---------------------------------------------------------------------------------- */

/* A list of sizes, or {shape: [..], draw: uniform}. */
static void parse_input(struct keys *k, const json_t *value, const char *path,
                        struct model_field *f)
{
    json_t *one = json_is_object(value) ? json_incref((json_t *)(uintptr_t)value)
                                        : json_pack("{s:O}", "shape", value);
    struct keys own;
    keys_init_inner(&own, k, one, path);
    layer_sizes(&own, "shape", 1, f->shape.dim, &f->shape.rank);
    const char *draw = keys_text(&own, "draw", "normal");
    f->draw = strcmp(draw, "uniform") == 0 ? DRAW_UNIFORM : DRAW_NORMAL;
    if (f->draw == DRAW_NORMAL && strcmp(draw, "normal") != 0)
        KEYS_FAIL(&own, "draw", ERR_CONFIG,
                  "key '%sdraw' is '%s'; made-up numbers are normal or uniform", path, draw);
    if (keys_good(k) && f->shape.rank == 0)
        KEYS_FAIL(&own, "shape", ERR_CONFIG, "key '%sshape' is missing: the sizes of a sample",
                  path);
    keys_finish_inner(&own);
    json_decref(one);
}

static enum status parse_inputs(struct model *m, struct network *n, struct keys *k)
{
    const json_t *one = keys_has(k, "input") ? json_object_get(k->object, "input") : NULL;
    const json_t *several = keys_object(k, "inputs");
    if (!one == !several || json_object_size(several) > WRITER_MOST_FIELDS) {
        KEYS_FAIL(k, "input", ERR_CONFIG,
                  "expected either input: with the sizes of a sample, such as [32, 32, 3], or "
                  "inputs: with up to %d of them by name",
                  (int)WRITER_MOST_FIELDS);
        return OK;
    }
    if (one) {
        n->inputs[n->n_inputs++] = (struct model_field){.name = "input"};
        parse_input(k, one, "input.", &n->inputs[0]);
        return OK;
    }
    json_t *object = (json_t *)(uintptr_t)several; /* Jansson iterates over mutable ones only */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        struct model_field *f = &n->inputs[n->n_inputs++];
        f->name = pool_strdup(&m->pool, json_object_iter_key(at));
        const char *path = pool_printf(&m->pool, "inputs.%s.", json_object_iter_key(at));
        if (!f->name || !path)
            return pool_status(&m->pool);
        parse_input(k, json_object_iter_value(at), path, f);
    }
    return OK;
}

/* ---- heads and losses ------------------------------------------------------------------------ */

static enum status parse_head(const struct layer_reader *r, struct keys *k, const char *name,
                              const json_t *layers, struct head *h)
{
    h->name = pool_strdup(r->pool, name);
    const char *path = pool_printf(r->pool, "heads.%s", name);
    const char *loss = pool_printf(r->pool, "loss.%s", name);
    if (!h->name || !path || !loss)
        return pool_status(r->pool);
    h->target = pool_printf(r->pool, "%s_target", name);
    if (!h->target)
        return pool_status(r->pool);
    TRY(layers_parse(r, k, layers, path, &h->layers));
    const json_t *due = json_object_get(json_object_get(k->object, "loss"), name);
    return objective_parse(r, k, due, loss, h->name, &h->objective);
}

/* A loss of a head that there is not. */
static void check_losses(struct keys *k, const json_t *losses, const json_t *heads)
{
    json_t *object = (json_t *)(uintptr_t)losses;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        if (!json_object_get(heads, name))
            KEYS_FAIL(k, "loss", ERR_CONFIG, "key 'loss.%s': there is no head of that name", name);
    }
}

static enum status parse_heads(const struct layer_reader *r, struct network *n, struct keys *k)
{
    const json_t *heads = keys_object(k, "heads");
    const json_t *loss = keys_has(k, "loss") ? json_object_get(k->object, "loss") : NULL;
    if (!heads) {
        struct head *h = &n->heads[n->n_heads++];
        h->name = "";
        h->target = "target";
        if (!loss)
            KEYS_FAIL(k, "loss", ERR_CONFIG, "key 'loss' is missing: what is minimised");
        return loss ? objective_parse(r, k, loss, "loss", "loss", &h->objective) : OK;
    }
    if (json_object_size(heads) > MOST_HEADS || json_object_size(heads) == 0) {
        KEYS_FAIL(k, "heads", ERR_CONFIG, "key 'heads': expected from 1 to %d heads",
                  (int)MOST_HEADS);
        return OK;
    }
    json_t *object = (json_t *)(uintptr_t)heads;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at))
        TRY(parse_head(r, k, json_object_iter_key(at), json_object_iter_value(at),
                       &n->heads[n->n_heads++]));
    check_losses(k, loss, heads);
    return OK;
}

/* ---- the graph ------------------------------------------------------------------------------- */

static void write_head(struct writer *w, const struct head *h, value_id x)
{
    const char *before = w->prefix;
    if (*h->name) {
        (void)writer_enter(w, "heads");
        (void)writer_enter(w, h->name);
        x = layers_write(w, &h->layers, x);
    }
    w->prefix = before;
    w->b->block = BLOCK_NONE;
    if (w->b->status == OK)
        objective_write(w, &h->objective, x, h->target);
}

static void write_network(struct writer *w, const struct network *n)
{
    for (int i = 0; i < n->n_inputs; i++)
        (void)writer_input(w, &n->inputs[i]);
    value_id x = layers_write(w, &n->layers, n->n_inputs == 1 ? w->values[0] : VALUE_NONE);
    for (int i = 0; i < n->n_heads && w->b->status == OK; i++)
        write_head(w, &n->heads[i], x);
    writer_end(w);
}

static enum status build_graph(const struct model *m, struct builder *b,
                               const struct model_request *r, struct model_graph *out)
{
    struct writer w;
    writer_begin(&w, b, r, out);
    write_network(&w, m->config);
    return builder_status(b);
}

/* ---- the config ------------------------------------------------------------------------------ */

/* Where an entry of the config is. Shapes that do not go together are a mistake in it. */
static enum status locate(enum status status, const struct key_origin *origin,
                          const struct layer *l)
{
    status = status == ERR_SHAPE ? ERR_CONFIG : status;
    bool written = origin->place && origin->written;
    const char *where =
        written ? origin->place(origin->user, l ? l->path : "layers") : origin->where;
    return l ? status_prefix(status, "%s: %s (%s)", where, l->path, l->def->name)
             : status_prefix(status, "%s", where);
}

/* Writes the network once, to see that its layers go together and what its samples are. */
static enum status try_network(struct model *m, const struct key_origin *origin)
{
    const struct model_request request = {
        .purpose = MODEL_TRAIN, .batch = 2, .seq_len = 1, .dtype = DTYPE_F32};
    struct graph *g = NULL;
    struct builder b;
    struct model_graph io;
    struct writer w;
    enum status status;
    TRY_GOTO(graph_new(&g, "trial"), out);
    builder_init(&b, g);
    writer_begin(&w, &b, &request, &io);
    write_network(&w, m->config);
    status = builder_status(&b);
    if (status != OK)
        status = locate(status, origin, w.failed);
    else
        status = writer_facts(&w, m);
out:
    graph_free(g);
    return status;
}

static enum status parse_layers(struct model *m, struct network *n, struct keys *k)
{
    const struct layer_reader r = {.pool = &m->pool,
                                   .init = init_parse(k, (struct weight_init){0})};
    TRY(parse_inputs(m, n, k));
    TRY(layers_parse(&r, k, keys_array(k, "layers"), "layers", &n->layers));
    return parse_heads(&r, n, k);
}

static enum status parse(struct model *m, const json_t *config, const struct key_origin *origin)
{
    struct network *n;
    struct keys k;
    TRY(pool_try(&m->pool, &n, sizeof(*n)));
    m->config = n;
    keys_init(&k, config, origin);
    enum status status = parse_layers(m, n, &k);
    if (status != OK)
        keys_note(&k, "layers", status);
    TRY(keys_finish(&k));
    return try_network(m, origin);
}

/* The config says it all. */
static json_t *export_config(const struct model *m)
{
    (void)m;
    return json_object();
}

const struct model_def model_def_network = {
    .name = "network",
    .model_types = model_types,
    .architectures = architectures,
    .implied_by = "layers",
    .parse = parse,
    .build = build_graph,
    .export_config = export_config,
};
