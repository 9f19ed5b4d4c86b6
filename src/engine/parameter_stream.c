#include "engine/parameter_stream.h"

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/machine.h"
#include "engine/coded_params.h"
#include "engine/merge.h"
#include "engine/parameter_table.h"
#include "model/init.h"

/* Where parameter i is in a table of some of them; -1: it is not there. */
static int place_in(const int *index, int n, int i)
{
    for (int k = 0; k < n; k++) {
        if (index[k] == i)
            return k;
    }
    return -1;
}

/* As the run has it: coded, and decoded again. */
static enum status read_coded(const struct parameter_stream *s, const struct model_param *p,
                              int stored, float *buffer)
{
    struct coded_matrix m;
    const struct coded_origin o = {.weights = stored >= 0 ? s->weights : NULL,
                                   .stored = stored,
                                   .seed = s->seed,
                                   .team = s->team};
    TRY(coded_param_make(&m, p, &o));
    coded_matrix_decode(&m, buffer, s->team);
    coded_matrix_release(&m);
    return OK;
}

enum status parameter_stream_read(const struct parameter_stream *s, int i, float *buffer)
{
    const struct model_param *p = &s->io.params[i];
    struct tensor to = {.dtype = DTYPE_F32, .shape = p->shape, .data = buffer};
    int trained = s->adapter ? place_in(s->table.index, s->table.n, i) : -1;
    int stored = s->weights ? place_in(s->index, s->n_stored, i) : -1;
    if (trained >= 0)
        return weights_read(s->adapter, trained, &to, s->team);
    if (param_is_coded(p))
        return read_coded(s, p, stored, buffer);
    if (stored >= 0)
        return weights_read(s->weights, stored, &to, s->team);
    return init_param(p, s->seed, DTYPE_F32, 0, shape_elems(&p->shape), buffer, s->team);
}

/* A tensor's `data` is the row of the parameter table that it stands for. */
static enum status fetch(void *user, const struct tensor *t, void *buffer)
{
    const struct parameter_stream *s = user;
    int i = (int)((const struct model_param *)t->data - s->io.params);
    TRY(parameter_stream_read(s, i, buffer));
    return s->merges ? merge_into(s, i, buffer) : OK;
}

static enum status store(void *user, const struct tensor *t, const void *buffer)
{
    (void)user;
    (void)t;
    (void)buffer;
    return FAIL(ERR_INTERNAL, "a stream of parameters is only read");
}

static enum status make_tensors(struct parameter_stream *s)
{
    int64_t most = 1;
    TRY(mem_try_array(&s->tensors, (size_t)MAX(s->io.n_params, 1), sizeof(*s->tensors)));
    for (int i = 0; i < s->io.n_params; i++) {
        struct model_param *p = &s->io.params[i];
        s->tensors[i] = (struct tensor){.dtype = DTYPE_F32, .shape = p->shape, .data = p};
        most = MAX(most, shape_elems(&p->shape));
    }
    s->stage = (struct tensor_stage){.fetch = fetch, .store = store, .user = s};
    s->stage.n_bytes = most * (int64_t)sizeof(float);
    s->stage.buffer = mem_alloc((size_t)s->stage.n_bytes);
    if (!s->stage.buffer)
        return FAIL(ERR_MEMORY, "out of memory for a parameter of %lld elements", (long long)most);
    return OK;
}

/* The model's own parameters, without those of an adapter. */
static enum status open_model_weights(struct parameter_stream *s, const char *folder)
{
    TRY(mem_try_array(&s->stored, (size_t)MAX(s->io.n_params, 1), sizeof(*s->stored)));
    TRY(mem_try_array(&s->index, (size_t)MAX(s->io.n_params, 1), sizeof(*s->index)));
    for (int i = 0; i < s->io.n_params; i++) {
        if (s->io.params[i].adapter)
            continue;
        s->index[s->n_stored] = i;
        s->stored[s->n_stored++] = s->io.params[i];
    }
    return folder ? weights_open(&s->weights, folder, s->stored, s->n_stored) : OK;
}

static enum status open_adapter(struct parameter_stream *s, const char *folder)
{
    TRY(peft_table_make(&s->table, s->io.params, s->io.n_params));
    TRY(folder ? peft_open(&s->adapter, folder, &s->table) : OK);
    return s->merges ? mem_try_array(&s->merging, (size_t)merge_elems(s) + 1, sizeof(*s->merging))
                     : OK;
}

enum status parameter_stream_open(struct parameter_stream *s,
                                  const struct parameter_stream_options *o)
{
    enum status status;
    int n_threads = o->n_threads > 0 ? o->n_threads : usable_processors();
    *s = (struct parameter_stream){.seed = o->seed, .merges = o->merge};
    TRY_GOTO(team_new(&s->team, n_threads), out);
    TRY_GOTO(parameter_table(o->model, &s->graph, &s->io), out);
    TRY_GOTO(open_model_weights(s, o->folders.model), out);
    if (o->model->adapter)
        TRY_GOTO(open_adapter(s, o->folders.adapter), out);
    TRY_GOTO(make_tensors(s), out);
out:
    if (status != OK)
        parameter_stream_close(s);
    return status;
}

int64_t parameter_stream_bytes(const struct parameter_stream *s, enum dtype dtype)
{
    const struct model_param *params = s->io.params;
    return process_resident() + s->stage.n_bytes +
           (s->merges ? merge_elems(s) * (int64_t)sizeof(float) : 0) +
           (s->weights ? weights_load_bytes(params, s->io.n_params) : 0) +
           weights_save_bytes(params, s->io.n_params, DTYPE_F32, dtype);
}

void parameter_stream_close(struct parameter_stream *s)
{
    weights_close(s->weights);
    weights_close(s->adapter);
    if (s->table.params)
        peft_table_release(&s->table);
    mem_free(s->merging);
    mem_free(s->stored);
    mem_free(s->index);
    team_free(s->team);
    graph_free(s->graph);
    mem_free(s->tensors);
    mem_free(s->stage.buffer);
    *s = (struct parameter_stream){0};
}
