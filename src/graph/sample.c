#include "graph/sample.h"

#include "graph/text.h"

static enum status parse_range(struct text *t, struct sample_input *in)
{
    in->fill = FILL_RANGE;
    struct text_place place = text_here(t);
    TRY(text_int(t, &in->high));
    in->low = 0;
    if (text_take(t, ":")) {
        in->low = in->high;
        TRY(text_int(t, &in->high));
    }
    if (in->low >= in->high)
        return TEXT_FAIL_AT(place, "an empty range of integers");
    return OK;
}

static enum status parse_input(struct text *t, struct sample_input *in)
{
    *in = (struct sample_input){0};
    if (text_take_word(t, "_"))
        return OK;
    struct text_place place = text_here(t);
    TRY(text_dtype(t, &in->dtype));
    TRY(text_shape(t, &in->shape));
    bool is_float = dtype_is_float(in->dtype);
    in->fill = is_float ? FILL_NORMAL : FILL_RANGE;
    in->high = 1;
    if (text_take(t, "~"))
        return is_float ? TEXT_FAIL_AT(place, "~ is for integers") : parse_range(t, in);
    if (text_take(t, "+")) {
        if (!is_float)
            return TEXT_FAIL_AT(place, "+ is for floats");
        in->fill = FILL_POSITIVE;
    } else if (text_take(t, "=")) {
        in->fill = FILL_EQUAL;
        TRY(text_double(t, &in->value));
    }
    return OK;
}

enum status sample_parse(struct sample *out, const struct op_def *def, const char *source)
{
    struct text t;
    text_init(&t, source);
    *out = (struct sample){0};
    (void)text_here(&t);
    if (*t.at != '{' && *t.at != '\0') {
        do {
            if (out->n_in == SAMPLE_MAX_INPUTS)
                return TEXT_FAIL(&t, "a sample has at most %d inputs", SAMPLE_MAX_INPUTS);
            TRY(parse_input(&t, &out->in[out->n_in]));
            out->n_in++;
        } while (text_take(&t, ","));
    }
    TRY(text_attrs(&t, def, out->attrs));
    if (!text_at_end(&t))
        return TEXT_FAIL(&t, "there is more after the sample");
    return OK;
}
