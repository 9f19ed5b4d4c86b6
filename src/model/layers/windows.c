#include "model/layers/windows.h"

#include <string.h>

static bool says_same(const struct keys *k)
{
    const char *text = json_string_value(json_object_get(k->object, "padding"));
    return text && strcmp(text, "same") == 0;
}

void window_parse(struct keys *k, struct layer_window *out)
{
    layer_sizes(k, "kernel", 1, out->kernel, &out->n_kernel);
    layer_sizes(k, "stride", 1, out->stride, &out->n_stride);
    layer_sizes(k, "padding_end", 0, out->padding_end, &out->n_padding_end);
    out->pads_to_same = says_same(k);
    if (out->pads_to_same)
        (void)keys_text(k, "padding", NULL);
    else
        layer_sizes(k, "padding", 0, out->padding, &out->n_padding);
    if (keys_good(k) && out->n_kernel == 0)
        KEYS_FAIL(k, "kernel", ERR_CONFIG, "key '%skernel' is missing", k->path);
}

/* One number for every axis, or one for all of them, or none and the preset. */
static bool spread(int rank, const int64_t *given, int n, int64_t preset, int64_t *out)
{
    for (int i = 0; i < rank; i++)
        out[i] = n == 0 ? preset : n == 1 ? given[0] : given[i];
    return n <= 1 || n == rank;
}

bool window_sizes(struct writer *w, value_id x, const struct layer_window *from,
                  struct window_sizes *out)
{
    char text[SHAPE_TEXT];
    if (w->b->status != OK)
        return false;
    const struct shape *shape = build_shape(w->b, x);
    int rank = shape->rank - 2;
    *out = (struct window_sizes){.rank = rank};
    bool good = rank >= 1 && rank <= 3;
    good = good && spread(rank, from->kernel, from->n_kernel, 1, out->kernel);
    good = good && spread(rank, from->stride, from->n_stride, 1, out->stride);
    good = good && spread(rank, from->padding, from->n_padding, 0, out->pad_before);
    good = good && spread(rank, from->padding_end, from->n_padding_end, 0, out->pad_after);
    good = good && spread(rank, from->dilation, from->n_dilation, 1, out->dilation);
    if (!good) {
        w->b->status = FAIL(ERR_CONFIG,
                            "it needs an input [batch, 1 to 3 axes, channels], and one number for "
                            "each of these axes or one for all; here the input is %s",
                            shape_text(text, shape));
        return false;
    }
    for (int i = 0; i < rank; i++) {
        int64_t reach = out->dilation[i] * (out->kernel[i] - 1);
        if (from->pads_to_same)
            out->pad_before[i] = reach / 2;
        if (from->n_padding_end == 0)
            out->pad_after[i] = from->pads_to_same ? reach - reach / 2 : out->pad_before[i];
        if (from->n_stride == 0 && from->steps_by_kernel)
            out->stride[i] = out->kernel[i];
    }
    return true;
}

struct attr_set window_attr(const char *name, const int64_t *sizes, int n)
{
    struct attr_set a = {.name = name, .n_ints = n};
    memcpy(a.ints, sizes, (size_t)n * sizeof(*sizes));
    return a;
}
