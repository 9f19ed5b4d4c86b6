/* rates.c: how fast each parameter learns beside the others. */
#include <math.h>

#include "base/alloc.h"
#include "model/adapter.h"
#include "model/model.h"

/* The embedding, which may be the head too. */
static bool is_embedding(const struct model_param *p)
{
    return p->table || p->tied_name;
}

/* With a decay d, the last block learns d as fast as the head, the one before it d^2, and the
 * embedding slowest. */
static double by_depth(const struct model *m, const struct model_param *p)
{
    int64_t block = param_block(p);
    if (is_embedding(p))
        return pow(m->rates.layer_decay, (double)(m->n_layers + 1));
    return block < 0 ? 1.0 : pow(m->rates.layer_decay, (double)(m->n_layers - block));
}

/* *yes = whether the pattern means the parameter: all of its pieces, which learn as one. */
static enum status is_meant(const struct model_param *p, const char *pattern, bool *yes)
{
    int n = 0;
    for (int k = 0; k < p->n_pieces; k++)
        n += param_is_meant(p, k, pattern);
    *yes = n > 0 && n == p->n_pieces;
    if (n == 0 || *yes)
        return OK;
    return FAIL(ERR_CONFIG,
                "lr_multipliers: '%s' means some parts of %s, which learn as one: name all of them",
                pattern, p->name);
}

static enum status multiply(const struct adapter_pattern *pattern, struct model_graph *g)
{
    bool used = false;
    for (int i = 0; i < g->n_params; i++) {
        bool meant = false;
        if (!g->params[i].buffer)
            TRY(is_meant(&g->params[i], pattern->module, &meant));
        g->params[i].lr_factor *= meant ? pattern->value : 1.0;
        used |= meant;
    }
    if (used)
        return OK;
    return FAIL(ERR_CONFIG, "lr_multipliers: '%s' means no parameter of the model; one is '%s'",
                pattern->module, g->n_params ? g->params[0].pieces[0].name : "");
}

enum status model_set_rates(const struct model *m, struct model_graph *g)
{
    const struct learning_rates *r = &m->rates;
    for (int i = 0; i < g->n_params; i++) {
        struct model_param *p = &g->params[i];
        p->lr_factor = r->layer_decay > 0 ? by_depth(m, p) : 1.0;
        if (r->has_embedding && is_embedding(p))
            p->lr_factor = r->embedding;
    }
    for (size_t i = 0; i < r->n_patterns; i++)
        TRY(multiply(&r->patterns[i], g));
    return OK;
}
