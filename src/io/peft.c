/* peft.c: the tensors of an adapter's folder. */
#include "io/peft.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

#define PEFT_WEIGHTS_FILE "adapter_model.safetensors"

static enum status file_in(struct str *path, const char *folder, const char *name)
{
    str_addf(path, "%s/%s", folder, name);
    return str_status(path);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether the module that a tensor ("..q_proj.bias") is of has an adapter. */
static bool is_adapted(const struct model_param *params, int n_params, const char *name)
{
    static const char prefix[] = PEFT_PREFIX, suffix[] = ".lora_A.weight";
    const char *leaf = strrchr(name, '.');
    size_t n_module = leaf ? (size_t)(leaf - name) : 0, n_prefix = sizeof(prefix) - 1;
    for (int i = 0; leaf && i < n_params; i++) {
        for (int k = 0; params[i].adapter && k < params[i].n_pieces; k++) {
            const char *own = params[i].pieces[k].name;
            if (strncmp(own + n_prefix, name, n_module) == 0 &&
                strcmp(own + n_prefix + n_module, suffix) == 0)
                return true;
        }
    }
    return false;
}

/* An adapter's own have theirs already; the layer that has one is inside a module of PEFT's. */
static enum status rename_pieces(struct pool *pool, const struct model_param *params, int n_params,
                                 struct model_param *p)
{
    struct hf_piece *pieces;
    if (p->adapter)
        return OK;
    TRY(pool_try(pool, &pieces, (size_t)p->n_pieces * sizeof(*pieces)));
    for (int k = 0; k < p->n_pieces; k++) {
        const char *name = p->pieces[k].name, *leaf = strrchr(name, '.');
        pieces[k] = p->pieces[k];
        pieces[k].name =
            is_adapted(params, n_params, name)
                ? pool_printf(pool, PEFT_PREFIX "%.*s.base_layer%s", (int)(leaf - name), name, leaf)
                : pool_printf(pool, PEFT_PREFIX "%s", name);
        TRY(pool_status(pool));
    }
    p->pieces = pieces;
    p->tied_name = NULL;
    p->stacked_name = NULL;
    return OK;
}

enum status peft_table_make(struct peft_table *t, const struct model_param *params, int n_params)
{
    enum status status;
    *t = (struct peft_table){0};
    pool_init(&t->pool);
    TRY_GOTO(pool_try(&t->pool, &t->params, (size_t)(n_params + 1) * sizeof(*t->params)), out);
    TRY_GOTO(pool_try(&t->pool, &t->index, (size_t)(n_params + 1) * sizeof(*t->index)), out);
    for (int i = 0; i < n_params; i++) {
        if (params[i].frozen)
            continue;
        t->params[t->n] = params[i];
        TRY_GOTO(rename_pieces(&t->pool, params, n_params, &t->params[t->n]), out);
        t->index[t->n++] = i;
    }
out:
    if (status != OK)
        peft_table_release(t);
    return status;
}

void peft_table_release(struct peft_table *t)
{
    pool_release(&t->pool);
    *t = (struct peft_table){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

enum status peft_open(struct weights **out, const char *folder, const struct peft_table *t)
{
    struct str path = {0};
    *out = NULL;
    enum status status = file_in(&path, folder, PEFT_WEIGHTS_FILE);
    if (status == OK && !file_exists(path.text))
        status = FAIL(ERR_DATA,
                      "%s: missing; an adapter's folder holds it beside "
                      "adapter_config.json",
                      path.text);
    if (status == OK)
        status = weights_open_file(out, path.text, t->params, t->n);
    str_release(&path);
    return status;
}

enum status peft_load(const char *folder, const struct model_param *params, int n_params,
                      const struct tensor *dst, const struct tensor_stage *stage, struct team *team)
{
    struct peft_table t;
    struct weights *w = NULL;
    TRY(peft_table_make(&t, params, n_params));
    enum status status = peft_open(&w, folder, &t);
    for (int i = 0; i < t.n && status == OK; i++)
        status = weights_read_staged(w, i, &dst[t.index[i]], stage, team);
    weights_close(w);
    peft_table_release(&t);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

enum status peft_save(const char *folder, const struct model_param *params, int n_params,
                      const struct tensor *src, const struct tensor_stage *stage,
                      const struct weights_save_options *options)
{
    struct peft_table t;
    struct weights_save_options o = *options;
    struct tensor *tensors = NULL;
    enum status status;
    TRY(peft_table_make(&t, params, n_params));
    o.file = PEFT_WEIGHTS_FILE;
    TRY_GOTO(mem_try_array(&tensors, (size_t)t.n + 1, sizeof(*tensors)), out);
    for (int i = 0; i < t.n; i++)
        tensors[i] = src[t.index[i]];
    TRY_GOTO(weights_save(folder, t.params, t.n, tensors, stage, &o), out);
out:
    mem_free(tensors);
    peft_table_release(&t);
    return status;
}
