/* A convolution in parts (device/cuda/declared/conv_parts.h) is the whole: every part is done by
 * the definition, on random shapes with limits from one row to more than everything. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "device/cuda/declared/conv_parts.h"

enum { N_SHAPES = 4000, MOST = 4096 };

static double x[MOST], w[MOST], y[MOST], whole[MOST], parts[MOST];

static int64_t number(struct rng *r, int64_t least, int64_t most)
{
    return least + (int64_t)rng_below(r, (uint64_t)(most - least + 1));
}

static struct conv_shape random_shape(struct rng *r)
{
    struct conv_shape s = {.kind = (enum conv_kind)number(r, 0, 2)};
    struct window *v = &s.dims.window;
    s.dims.groups = 1;
    s.dims.channels = number(r, 1, 2);
    s.dims.features = number(r, 1, 3);
    v->batch = number(r, 1, 3);
    v->rank = (int)number(r, 1, WINDOW_AXES);
    for (int a = 0; a < WINDOW_AXES; a++) {
        bool there = a >= WINDOW_AXES - v->rank;
        v->size[a] = there ? number(r, 1, v->rank == 1 ? 40 : 9) : 1;
        v->kernel[a] = there ? number(r, 1, 3) : 1;
        v->stride[a] = there ? number(r, 1, 3) : 1;
        v->dilation[a] = there ? number(r, 1, 2) : 1;
        v->pad_before[a] = there ? number(r, 0, 2) : 0;
        v->pad_after[a] = there ? number(r, 0, 2) : 0;
        int64_t span = (v->kernel[a] - 1) * v->dilation[a] + 1;
        int64_t room = v->size[a] + v->pad_before[a] + v->pad_after[a] - span;
        v->out[a] = room < 0 ? 0 : room / v->stride[a] + 1;
    }
    return s;
}

static bool is_usable(const struct conv_shape *s)
{
    return conv_y_elems(s) > 0 && conv_x_elems(s) <= MOST && conv_y_elems(s) <= MOST;
}

/* Element of [batch, sizes, channels], channel 0; -1: outside. */
static int64_t place_of(const int64_t size[WINDOW_AXES], int64_t n, const int64_t at[WINDOW_AXES])
{
    int64_t place = n;
    for (int a = 0; a < WINDOW_AXES; a++) {
        if (at[a] < 0 || at[a] >= size[a])
            return -1;
        place = place * size[a] + at[a];
    }
    return place;
}

static void places(int64_t i, const int64_t size[WINDOW_AXES], int64_t at[WINDOW_AXES])
{
    for (int a = WINDOW_AXES - 1; a >= 0; a--) {
        at[a] = i % size[a];
        i /= size[a];
    }
}

/* One place of y and one of the kernel, in all channels. `out` holds sums already. */
static void multiply(const struct conv_shape *s, int64_t in_x, int64_t in_y, int64_t tap,
                     const struct conv_part *part, double *out)
{
    const int64_t channels = s->dims.channels, features = s->dims.features;
    const int64_t taps = window_places(s->dims.window.kernel);
    for (int64_t o = 0; o < features; o++) {
        for (int64_t c = 0; c < channels; c++) {
            int64_t at_x = part->first_x + in_x * channels + c;
            int64_t at_y = part->first_y + in_y * features + o;
            int64_t at_w = (o * taps + tap) * channels + c;
            if (s->kind == CONV_FORWARD)
                out[at_y] += x[at_x] * w[at_w];
            else if (s->kind == CONV_GRAD_INPUT)
                out[at_x] += y[at_y] * w[at_w];
            else
                out[at_w] += x[at_x] * y[at_y];
        }
    }
}

static void convolve(const struct conv_part *part, double *out)
{
    const struct conv_shape *s = &part->shape;
    const struct window *v = &s->dims.window;
    for (int64_t n = 0; n < v->batch; n++) {
        for (int64_t p = 0; p < window_places(v->out); p++) {
            for (int64_t t = 0; t < window_places(v->kernel); t++) {
                int64_t o[WINDOW_AXES], k[WINDOW_AXES], at[WINDOW_AXES];
                places(p, v->out, o);
                places(t, v->kernel, k);
                for (int a = 0; a < WINDOW_AXES; a++)
                    at[a] = o[a] * v->stride[a] - v->pad_before[a] + k[a] * v->dilation[a];
                int64_t in_x = place_of(v->size, n, at);
                if (in_x >= 0)
                    multiply(s, in_x, n * window_places(v->out) + p, t, part, out);
            }
        }
    }
}

/* What a part makes is its own: it starts from nothing, where nothing was made before. */
static void begin_part(const struct conv_part *part, bool first)
{
    const struct conv_shape *s = &part->shape;
    bool of_x = s->kind == CONV_GRAD_INPUT;
    if (s->kind == CONV_GRAD_WEIGHT) {
        for (int64_t i = 0; first && i < conv_w_elems(s); i++)
            parts[i] = 0.0;
        return;
    }
    int64_t begin = of_x ? part->first_x : part->first_y;
    int64_t n = of_x ? conv_x_elems(s) : conv_y_elems(s);
    for (int64_t i = begin; i < begin + n; i++) {
        assert_true(isnan(parts[i]));
        parts[i] = 0.0;
    }
}

static int64_t made_elems(const struct conv_shape *s)
{
    return s->kind == CONV_FORWARD      ? conv_y_elems(s)
           : s->kind == CONV_GRAD_INPUT ? conv_x_elems(s)
                                        : conv_w_elems(s);
}

/* The sizes that are said of a part are those of a convolution. */
static void check_window(const struct window *v)
{
    for (int a = 0; a < WINDOW_AXES; a++) {
        int64_t span = (v->kernel[a] - 1) * v->dilation[a] + 1;
        assert_true(v->pad_before[a] >= 0 && v->pad_after[a] >= 0);
        assert_int_equal(
            (v->size[a] + v->pad_before[a] + v->pad_after[a] - span) / v->stride[a] + 1, v->out[a]);
    }
}

static void check_cut(const struct conv_shape *s, const struct conv_cut *cut, int64_t most)
{
    const struct conv_part all = {.shape = *s};
    for (int i = 0; i < MOST; i++) {
        whole[i] = 0.0;
        parts[i] = (double)NAN;
    }
    convolve(&all, whole);
    for (int64_t i = 0; i < cut->n_parts; i++) {
        const struct conv_part part = conv_part_of(s, cut, i);
        check_window(&part.shape.dims.window);
        assert_true(conv_x_elems(&part.shape) <= most && conv_y_elems(&part.shape) <= most);
        begin_part(&part, i == 0);
        convolve(&part, parts);
    }
    for (int64_t i = 0; i < made_elems(s); i++)
        assert_true(fabs(parts[i] - whole[i]) <= 1e-9);
}

static void parts_make_the_whole(void **state)
{
    (void)state;
    struct rng r = {.key = 7};
    int n_slabs = 0, n_none = 0, n = 0;
    for (int i = 0; i < MOST; i++) {
        x[i] = rng_double(&r) - 0.5;
        w[i] = rng_double(&r) - 0.5;
        y[i] = rng_double(&r) - 0.5;
    }
    while (n < N_SHAPES) {
        const struct conv_shape s = random_shape(&r);
        if (!is_usable(&s))
            continue;
        int64_t most = number(&r, 6, MAX(conv_x_elems(&s), conv_y_elems(&s)) + 6);
        const struct conv_cut cut = conv_cut_of(&s, most);
        n_slabs += cut.n_parts > 0 && cut.n_slabs > 1;
        n_none += cut.n_parts == 0;
        if (cut.n_parts > 0)
            check_cut(&s, &cut, most);
        n++;
    }
    assert_true(n_slabs > N_SHAPES / 8 && n_none < N_SHAPES / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_make_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
