#include "train/parameter_stream.h"

#include "base/alloc.h"
#include "graph/builder.h"
#include "model/init.h"

static enum status build_table(struct parameter_stream *s, const struct model *model)
{
    struct builder b;
    struct model_request smallest = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = 1, .dtype = DTYPE_F32};
    TRY(graph_new(&s->graph, "parameters"));
    builder_init(&b, s->graph);
    TRY(model_build(model, &b, &smallest, &s->io));
    return builder_status(&b);
}

static enum status make_buffer(struct parameter_stream *s)
{
    int64_t most = 1;
    for (int i = 0; i < s->io.n_params; i++)
        most = MAX(most, shape_elems(&s->io.params[i].shape));
    s->buffer = mem_alloc((size_t)most * sizeof(float));
    if (!s->buffer)
        return FAIL(ERR_MEMORY, "out of memory for a parameter of %lld elements", (long long)most);
    return OK;
}

enum status parameter_stream_open(struct parameter_stream *s, const struct model *model,
                                  const char *folder, uint64_t seed, int n_threads)
{
    enum status status;
    *s = (struct parameter_stream){.seed = seed, .n_threads = MAX(n_threads, 1)};
    TRY_GOTO(build_table(s, model), out);
    if (folder)
        TRY_GOTO(weights_open(&s->weights, folder, s->io.params, s->io.n_params), out);
    TRY_GOTO(make_buffer(s), out);
out:
    if (status != OK)
        parameter_stream_close(s);
    return status;
}

void parameter_stream_close(struct parameter_stream *s)
{
    weights_close(s->weights);
    graph_free(s->graph);
    mem_free(s->buffer);
    *s = (struct parameter_stream){0};
}

static enum status get(void *user, int i, struct tensor *src)
{
    const struct parameter_stream *s = user;
    const struct model_param *p = &s->io.params[i];
    *src = (struct tensor){.dtype = DTYPE_F32, .shape = p->shape, .data = s->buffer};
    if (s->weights)
        return weights_read(s->weights, i, src, s->n_threads);
    return init_param(p, s->seed, DTYPE_F32, 0, shape_elems(&p->shape), s->buffer, s->n_threads);
}

struct weights_source parameter_stream_source(struct parameter_stream *s)
{
    return (struct weights_source){get, s};
}
