#include "engine/parameter_stream.h"

#include "base/alloc.h"
#include "base/host_memory.h"
#include "base/machine.h"
#include "engine/parameter_table.h"
#include "model/init.h"

/* A tensor's `data` is the row of the parameter table that it stands for. */
static enum status fetch(void *user, const struct tensor *t, void *buffer)
{
    const struct parameter_stream *s = user;
    const struct model_param *p = t->data;
    struct tensor to = {.dtype = DTYPE_F32, .shape = p->shape, .data = buffer};
    if (s->weights)
        return weights_read(s->weights, (int)(p - s->io.params), &to, s->team);
    return init_param(p, s->seed, DTYPE_F32, 0, shape_elems(&p->shape), buffer, s->team);
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

enum status parameter_stream_open(struct parameter_stream *s, const struct model *model,
                                  const char *folder, uint64_t seed, int n_threads)
{
    enum status status;
    *s = (struct parameter_stream){.seed = seed};
    TRY_GOTO(team_new(&s->team, n_threads > 0 ? n_threads : usable_processors()), out);
    TRY_GOTO(parameter_table(model, &s->graph, &s->io), out);
    if (folder)
        TRY_GOTO(weights_open(&s->weights, folder, s->io.params, s->io.n_params), out);
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
           (s->weights ? weights_load_bytes(params, s->io.n_params) : 0) +
           weights_save_bytes(params, s->io.n_params, DTYPE_F32, dtype);
}

void parameter_stream_close(struct parameter_stream *s)
{
    weights_close(s->weights);
    team_free(s->team);
    graph_free(s->graph);
    mem_free(s->tensors);
    mem_free(s->stage.buffer);
    *s = (struct parameter_stream){0};
}
