/* freezing.c: which parameters are trained. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "graph/builder.h"
#include "model/adapter.h"
#include "model/model.h"

/* ---- names ----------------------------------------------------------------------------------- */

/* "7" or "0-3". */
static bool parse_blocks(const char *text, int64_t *first, int64_t *last)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    *first = *last = strtol(text, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1]))
        *last = strtol(end + 1, &end, 10);
    return *end == '\0';
}

/* The block that a parameter of ours belongs to ("layers.3.qkv.weight"), or BLOCK_NONE. */
int64_t param_block(const struct model_param *p)
{
    static const char blocks[] = "layers.";
    char *end;
    if (!str_starts_with(p->name, blocks))
        return BLOCK_NONE;
    const char *digits = p->name + sizeof(blocks) - 1;
    int64_t block = strtol(digits, &end, 10);
    return end != digits && *end == '.' ? block : BLOCK_NONE;
}

/* A whole name, or the module that it is in. */
static bool name_is_meant(const char *name, const char *pattern)
{
    size_t n = strlen(pattern);
    return fnmatch(pattern, name, 0) == 0 || (strncmp(name, pattern, n) == 0 && name[n] == '.');
}

bool param_is_meant(const struct model_param *p, int k, const char *pattern)
{
    int64_t first, last;
    if (parse_blocks(pattern, &first, &last))
        return param_block(p) >= first && param_block(p) <= last;
    return name_is_meant(p->name, pattern) || name_is_meant(p->pieces[k].name, pattern);
}

/* ---- questions about pieces of parameters
 * -------------------------------------------------------- */

struct question {
    const struct model *m;
    const struct model_graph *g;
    const struct name_list *names; /* that are asked about */
    bool *used;                    /* [names->n]: some piece was meant */
};

typedef bool piece_question(const struct question *q, const struct model_param *p, int k);

static bool is_named(const struct question *q, const struct model_param *p, int k)
{
    bool any = false;
    for (size_t i = 0; i < q->names->n; i++) {
        if (param_is_meant(p, k, q->names->items[i]))
            any = q->used[i] = true;
    }
    return any;
}

/* A weight or a bias of one of the modules. */
static bool is_saved(const struct question *q, const struct model_param *p, int k)
{
    bool any = false;
    for (size_t i = 0; i < q->names->n; i++) {
        if (module_has(p->pieces[k].name, q->names->items[i]))
            any = q->used[i] = true;
    }
    return any;
}

/* Whether a tensor ("..w1.bias") is of a module that has this adapter, which experts share. */
static bool adapter_is_beside(const struct model_graph *g, const struct model_adapter *a,
                              const char *tensor)
{
    const struct model_param *w = &g->params[a->base];
    const char *end = strrchr(tensor, '.');
    if (!a->n_experts)
        return module_has(tensor, a->module);
    for (int k = 0; end && k < w->n_pieces; k++) {
        size_t n = (size_t)(end - tensor) + 1;
        if (strncmp(w->pieces[k].name, tensor, n) == 0 && !strchr(w->pieces[k].name + n, '.'))
            return true;
    }
    return false;
}

static bool is_trained_bias(const struct question *q, const struct model_param *p, int k)
{
    enum adapter_bias bias = q->m->adapter->bias;
    const char *name = p->pieces[k].name;
    bool adapted = false;
    if (bias == ADAPTER_BIAS_NONE || !str_ends_with(name, ".bias"))
        return false;
    for (int i = 0; i < q->g->n_adapters; i++)
        adapted |= adapter_is_beside(q->g, &q->g->adapters[i], name);
    return bias == ADAPTER_BIAS_ALL || adapted;
}

/* *yes = whether all of the parameter's pieces are meant. It is one tensor here: some of them
 * without the others cannot be had. */
static enum status ask(const struct question *q, piece_question *question,
                       const struct model_param *p, bool *yes)
{
    int n = 0, first_no = 0;
    for (int k = 0; k < p->n_pieces; k++) {
        bool meant = question(q, p, k);
        n += meant;
        first_no = meant ? first_no : k;
    }
    *yes = n > 0 && n == p->n_pieces;
    if (n == 0 || *yes)
        return OK;
    return FAIL(ERR_CONFIG,
                "'%s' is computed as one with what was named: name all parts of %s or none",
                p->pieces[first_no].name, p->name);
}

/* ---- the stage ------------------------------------------------------------------------------- */

static enum status ask_all(const struct model *m, const struct name_list *names, const char *key,
                           piece_question *question, struct model_graph *g, bool *yes)
{
    struct question q = {.m = m, .g = g, .names = names};
    enum status status = OK;
    TRY(mem_try_array(&q.used, names->n + 1, sizeof(*q.used)));
    for (int i = 0; i < g->n_params && status == OK; i++) {
        const struct model_param *p = &g->params[i];
        bool meant = false;
        if (!p->buffer && !p->adapter)
            status = ask(&q, question, p, &meant);
        yes[i] |= meant;
    }
    for (size_t i = 0; i < names->n && status == OK; i++) {
        if (!q.used[i])
            status = FAIL(ERR_CONFIG, "%s: '%s' means no parameter of the model; one is '%s'", key,
                          names->items[i], g->n_params ? g->params[0].pieces[0].name : "");
    }
    mem_free(q.used);
    return status;
}

/* Whether the model keeps this parameter as codes, if it is not trained. */
static bool is_coded(const struct model *m, const struct model_param *p)
{
    bool is_experts = p->n_experts && p->shape.rank == 3;
    int n_each = p->n_pieces / (int)MAX(p->n_experts, (int64_t)1);
    bool coded = m->quantization.code != CODE_NONE && (p->linear || p->head || is_experts) &&
                 !p->adapter && n_each <= MAX_ATTR_INTS;
    for (int k = 0; k < p->n_pieces && coded; k++) {
        for (size_t i = 0; i < m->unquantized.n && coded; i++)
            coded = !module_has(p->pieces[k].name, m->unquantized.items[i]);
    }
    return coded;
}

/* trained[i] of an adapter's model: its matrices, and what it says is trained whole. */
static enum status find_trained_beside(const struct model *m, struct model_graph *g, bool *trained)
{
    static const struct name_list none = {0};
    for (int i = 0; i < g->n_params; i++)
        trained[i] = g->params[i].adapter;
    TRY(ask_all(m, &none, "lora_bias", is_trained_bias, g, trained));
    return ask_all(m, &m->adapter->saved, "lora_modules_to_save", is_saved, g, trained);
}

static enum status find_trained(const struct model *m, struct model_graph *g, bool *trained)
{
    const struct freezing *f = &m->freezing;
    bool *frozen = trained + g->n_params;
    if (m->adapter)
        return find_trained_beside(m, g, trained);
    for (int i = 0; i < g->n_params; i++)
        trained[i] = (f->frozen.n > 0 || f->trained.n == 0) && !g->params[i].buffer &&
                     !is_coded(m, &g->params[i]);
    TRY(ask_all(m, &f->frozen, "freeze", is_named, g, frozen));
    for (int i = 0; i < g->n_params; i++)
        trained[i] = trained[i] && !frozen[i];
    return ask_all(m, &f->trained, "unfreeze", is_named, g, trained);
}

/* A tied head is the embedding: an adapter's files would hold it once, and readers untie it. */
static enum status refuse_tied(const struct model *m, const struct model_graph *g)
{
    for (int i = 0; m->adapter && i < g->n_params; i++) {
        const struct model_param *p = &g->params[i];
        if (p->tied_name && !p->frozen)
            return FAIL(
                ERR_UNSUPPORTED,
                "%s is also the head (tie_word_embeddings): it cannot be trained beside an "
                "adapter; leave it out of lora_modules_to_save, or train without an adapter",
                p->pieces[0].name);
    }
    return OK;
}

/* Whether a name means a module that has this adapter. */
static bool adapter_is_meant(const struct model_graph *g, const struct model_adapter *a,
                             const char *name)
{
    const struct model_param *w = &g->params[a->base];
    bool meant = module_matches(a->module, name);
    for (int k = 0; a->n_experts && !meant && k < w->n_pieces; k++)
        meant = module_has(w->pieces[k].name, name);
    return meant;
}

/* Names of modules that have no adapter are not what was meant. */
static enum status check_targets(const struct model *m, const struct model_graph *g)
{
    const struct name_list *targets = &m->adapter->targets;
    for (size_t i = 0; i < targets->n; i++) {
        bool used = false;
        for (int k = 0; k < g->n_adapters; k++)
            used |= adapter_is_meant(g, &g->adapters[k], targets->items[i]);
        if (!used)
            return FAIL(ERR_CONFIG,
                        "lora_target_modules: no linear layer of the model is called '%s' "
                        "(all-linear means all of them but experts; the head has no adapter)",
                        targets->items[i]);
    }
    return OK;
}

enum status model_mark_frozen(const struct model *m, struct builder *b, struct model_graph *g)
{
    bool *trained;
    if (m->adapter)
        TRY(check_targets(m, g));
    TRY(mem_try_array(&trained, 2 * (size_t)g->n_params + 1, sizeof(*trained)));
    enum status status = find_trained(m, g, trained);
    for (int i = 0; i < g->n_params && status == OK; i++) {
        g->params[i].frozen = !trained[i];
        if (!trained[i] && is_coded(m, &g->params[i]))
            g->params[i].quantization = m->quantization;
        if (!trained[i] && !g->params[i].buffer)
            graph_value(b->g, g->params[i].value)->role = ROLE_FROZEN;
    }
    mem_free(trained);
    return status == OK ? refuse_tied(m, g) : status;
}

enum status model_check_trained(const struct model *m, const struct model_graph *g)
{
    bool any = false;
    for (int i = 0; i < g->n_params; i++)
        any |= !g->params[i].frozen && !g->params[i].buffer;
    if (any)
        return OK;
    return FAIL(ERR_CONFIG, "%s",
                m->freezing.frozen.n > 0
                    ? "freeze names every parameter of the model, and nothing is left to train: "
                      "name fewer, or some of them under unfreeze"
                    : "the model has no parameter that is trained");
}
