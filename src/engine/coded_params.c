#include "engine/coded_params.h"

#include "model/init.h"
#include "precision/quantize.h"

/* ---- making ---------------------------------------------------------------------------------- */

struct drawing {
    const struct model_param *p;
    const struct coded_origin *o;
    const struct coded_matrix *m;
};

static enum status draw_run(void *user, int i_piece, int64_t first, int64_t n, float *x)
{
    const struct drawing *d = user;
    int64_t begin = quant_piece(&d->m->layout, i_piece).first_elem + first;
    return init_param(d->p, d->o->seed, DTYPE_F32, begin, n, x, d->o->team);
}

static enum status draw(struct coded_matrix *m, const struct model_param *p,
                        const struct coded_origin *o)
{
    struct drawing d = {p, o, m};
    for (int k = 0; k < p->n_pieces; k++)
        TRY(coded_matrix_fill(m, k, draw_run, &d, o->team));
    return OK;
}

enum status coded_param_make(struct coded_matrix *m, const struct model_param *p,
                             const struct coded_origin *o)
{
    struct quant_layout l = param_quant_layout(p);
    TRY(coded_matrix_init(m, &l));
    enum status status =
        o->weights ? weights_read_coded(o->weights, o->stored, m, o->team) : draw(m, p, o);
    if (status != OK)
        coded_matrix_release(m);
    return status;
}

/* ---- storage --------------------------------------------------------------------------------- */

/* Where part k of parameter i lies. */
static enum status find_part(const struct engine *e, int i, const struct format_part *part,
                             struct tensor *out)
{
    char name[QUANT_NAME];
    const struct storage_entry *entry =
        storage_find(&e->work.storage, quantize_part_name(name, e->params[i].name, part->suffix));
    if (!entry)
        return FAIL(ERR_INTERNAL, "'%s' of a quantised parameter has no storage", name);
    *out = (struct tensor){part->dtype, part->shape, executor_storage_address(e->executor, entry)};
    return OK;
}

enum status coded_param_load(struct engine *e, int i, const struct coded_origin *o)
{
    struct coded_matrix m;
    enum status status = OK;
    TRY(coded_param_make(&m, &e->params[i], o));
    for (int k = 0; k < m.n_parts && status == OK; k++) {
        struct tensor part;
        TRY_GOTO(find_part(e, i, &m.part[k], &part), out);
        TRY_GOTO(stage_write(e->stage, &part, m.memory[k], o->team), out);
    }
out:
    coded_matrix_release(&m);
    return status;
}

enum status coded_param_read(struct engine *e, int i, float *x)
{
    struct quant_layout l = param_quant_layout(&e->params[i]);
    struct coded_matrix m;
    enum status status = OK;
    TRY(coded_matrix_init(&m, &l));
    for (int k = 0; k < m.n_parts && status == OK; k++) {
        struct tensor part;
        TRY_GOTO(find_part(e, i, &m.part[k], &part), out);
        TRY_GOTO(stage_read(e->stage, &part, m.memory[k]), out);
    }
    coded_matrix_decode(&m, x, e->device->env.team);
out:
    coded_matrix_release(&m);
    return status;
}
