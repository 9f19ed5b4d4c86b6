/* AdamW with 8-bit states against an update of bitsandbytes (tools/make_adamw_8bit_golden.py), and
 * what must hold where numbers are out of the ordinary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dynamic_map.h"
#include "device/cpu/cpu_kernels.h"
#include "io/safetensors.h"
#include "ops/update_support.h"
#include "support/golden.h"

enum { N = 700, N_BLOCKS = 3, N_IN = 9, N_OUT = 5 };

struct update {
    float p[N], g[N], m_absmax[N_BLOCKS], v_absmax[N_BLOCKS], lr, scale;
    uint8_t m[N], v[N];
    int32_t step;
};

/* ---- the golden file ------------------------------------------------------------------------- */

static struct st_reader *golden_reader(void)
{
    struct st_reader *r;
    expect_ok(st_reader_open_file(&r, SNUG_SOURCE_DIR "/tests/golden/adamw_8bit.safetensors"));
    return r;
}

static void read_into(struct st_reader *r, const char *name, void *to, size_t n_bytes)
{
    const struct st_tensor *t;
    expect_ok(st_reader_get(r, name, &t));
    assert_int_equal(t->n_bytes, n_bytes);
    memcpy(to, t->data, n_bytes);
}

static void read_update(struct st_reader *r, const char *prefix, struct update *u)
{
    char name[32];
#define READ(field)                                              \
    do {                                                         \
        (void)snprintf(name, sizeof(name), "%s" #field, prefix); \
        read_into(r, name, u->field, sizeof(u->field));          \
    } while (0)
    READ(p);
    READ(m);
    READ(v);
    READ(m_absmax);
    READ(v_absmax);
#undef READ
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The tensors of `u` in the order of the op's outputs. */
static void outputs_of(struct update *u, struct tensor out[N_OUT])
{
    struct shape all = shape_of(1, (int64_t)N), blocks = shape_of(1, (int64_t)N_BLOCKS);
    out[0] = (struct tensor){DTYPE_F32, all, u->p};
    out[1] = (struct tensor){DTYPE_U8, all, u->m};
    out[2] = (struct tensor){DTYPE_F32, blocks, u->m_absmax};
    out[3] = (struct tensor){DTYPE_U8, all, u->v};
    out[4] = (struct tensor){DTYPE_F32, blocks, u->v_absmax};
}

/* From `u` into `to`, which may be the same. */
static void run_into(const struct kernel *k, struct update *u, struct update *to)
{
    static max_align_t workspace[1 << 13];
    struct shape one = shape_of(1, (int64_t)1);
    struct tensor was[N_OUT], out[N_OUT];
    outputs_of(u, was);
    outputs_of(to, out);
    struct tensor in[N_IN] = {was[0],
                              {DTYPE_F32, was[0].shape, u->g},
                              was[1],
                              was[2],
                              was[3],
                              was[4],
                              {DTYPE_F32, one, &u->lr},
                              {DTYPE_I32, one, &u->step},
                              {DTYPE_F32, one, &u->scale}};
    struct attr attrs[ADAMW_ATTRS] = {{.f = 0.9}, {.f = 0.999}, {.f = 1e-8}, {.f = 0.0}, {.i = 0}};
    struct op_call c = {
        .op = OP_adamw_8bit, .n_in = N_IN, .n_out = N_OUT, .in = in, .out = out, .attrs = attrs};
    struct kernel_ctx x = {.env = {.n_threads = 1}, .workspace = workspace};
    assert_true(k->workspace(&c, &x.env) <= (int64_t)sizeof(workspace));
    expect_ok(k->run(&x, &c));
}

static void run(const struct kernel *k, struct update *u)
{
    run_into(k, u, u);
}

static void golden_start_state(struct update *u)
{
    struct st_reader *r = golden_reader();
    *u = (struct update){.lr = 1e-3f, .scale = 1.0f, .step = 7};
    read_update(r, "", u);
    read_into(r, "g", u->g, sizeof(u->g));
    st_reader_close(r);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_maps_are_those_of_bitsandbytes(void **state)
{
    struct st_reader *r = golden_reader();
    (void)state;
    for (int is_signed = 0; is_signed <= 1; is_signed++) {
        struct dynamic_map map = dynamic_map_make(is_signed);
        float want[DYNAMIC_CODES];
        read_into(r, is_signed ? "map_signed" : "map_unsigned", want, sizeof(want));
        for (int i = 0; i < DYNAMIC_CODES; i++)
            assert_true(map.value[i] == want[i]);
    }
    st_reader_close(r);
}

/* A code may be the neighbour where a number lies on a border but for its last place. */
static int count_other(const uint8_t *a, const uint8_t *b)
{
    int n_other = 0;
    for (int i = 0; i < N; i++) {
        assert_true(abs(a[i] - b[i]) <= 1);
        n_other += a[i] != b[i];
    }
    return n_other;
}

static void every_kernel_updates_as_bitsandbytes_does(void **state)
{
    (void)state;
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit); k->name; k++) {
        struct update u, want;
        struct st_reader *r = golden_reader();
        golden_start_state(&u);
        read_update(r, "new_", &want);
        st_reader_close(r);
        run(k, &u);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(u.p[i] - want.p[i]) <= 1e-6f * (1.0f + fabsf(want.p[i])));
        for (int i = 0; i < N_BLOCKS; i++) {
            assert_true(fabsf(u.m_absmax[i] - want.m_absmax[i]) <= 1e-6f * want.m_absmax[i]);
            assert_true(fabsf(u.v_absmax[i] - want.v_absmax[i]) <= 1e-6f * want.v_absmax[i]);
        }
        assert_true(count_other(u.m, want.m) <= N / 100);
        assert_true(count_other(u.v, want.v) <= N / 100);
    }
}

/* States begin as zero bytes: codes 0 with scale 0 are zeros. */
static void zeroed_states_are_zeros(void **state)
{
    (void)state;
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit); k->name; k++) {
        struct update u;
        golden_start_state(&u);
        memset(u.m, 0, sizeof(u.m));
        memset(u.v, 0, sizeof(u.v));
        memset(u.m_absmax, 0, sizeof(u.m_absmax));
        memset(u.v_absmax, 0, sizeof(u.v_absmax));
        float p = u.p[5], g = u.g[5];
        u.step = 1;
        run(k, &u);
        /* the first step of Adam goes by the sign alone */
        float want = p - u.lr * g / (fabsf(g) + 1e-8f);
        assert_true(fabsf(u.p[5] - want) < 1e-5f);
    }
}

/* Numbers whose inverse is not finite, none at all, and those that are no numbers. */
static void blocks_out_of_the_ordinary_stay_inside_the_map(void **state)
{
    (void)state;
    const float odd[] = {0.0f, 1e-30f, 1e25f, (float)INFINITY, (float)NAN};
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit); k->name; k++) {
        for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
            struct update u;
            golden_start_state(&u);
            for (int e = 0; e < N; e++)
                u.g[e] = odd[i];
            for (int b = 0; b < N_BLOCKS; b++)
                u.m_absmax[b] = u.v_absmax[b] = 1e-41f;
            run(k, &u);
            run(k, &u);
            for (int e = 0; e < N && odd[i] < 1e20f; e++)
                assert_true(isfinite(u.p[e]));
        }
    }
}

static void scale_zero_leaves_codes_and_scales_alone(void **state)
{
    (void)state;
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit); k->name; k++) {
        struct update u, before;
        golden_start_state(&u);
        u.scale = 0.0f;
        before = u;
        run(k, &u);
        assert_memory_equal(&u, &before, sizeof(u));
    }
}

static void outputs_elsewhere_are_those_in_place(void **state)
{
    (void)state;
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit); k->name; k++) {
        for (int scale = 0; scale <= 1; scale++) {
            struct update u, apart;
            golden_start_state(&u);
            u.scale = (float)scale;
            apart = u;
            memset(apart.p, 0xA5, sizeof(apart.p));
            memset(apart.m, 0xA5, sizeof(apart.m));
            memset(apart.v, 0xA5, sizeof(apart.v));
            memset(apart.m_absmax, 0xA5, sizeof(apart.m_absmax));
            memset(apart.v_absmax, 0xA5, sizeof(apart.v_absmax));
            run_into(k, &u, &apart);
            run(k, &u);
            assert_memory_equal(&u, &apart, sizeof(u));
        }
    }
}

/* What is coded and not touched again keeps its codes: nothing drifts from step to step. */
/* As run(), by factors of whole numbers, whose product is exact: 28 rows of 25 columns. */
static void run_by_product(const struct kernel *k, struct update *u, float *dy, float *x)
{
    enum { ROWS = 28, COLUMNS = N / ROWS, TERMS = 2 };
    static max_align_t workspace[1 << 13];
    struct shape one = shape_of(1, (int64_t)1),
                 weight = shape_of(2, (int64_t)ROWS, (int64_t)COLUMNS);
    struct tensor out[N_OUT];
    outputs_of(u, out);
    out[0].shape = out[1].shape = out[3].shape = weight;
    struct tensor in[N_IN + 1] = {out[0],
                                  {DTYPE_F32, shape_of(2, (int64_t)TERMS, (int64_t)ROWS), dy},
                                  out[1],
                                  out[2],
                                  out[3],
                                  out[4],
                                  {DTYPE_F32, one, &u->lr},
                                  {DTYPE_I32, one, &u->step},
                                  {DTYPE_F32, one, &u->scale},
                                  {DTYPE_F32, shape_of(2, (int64_t)TERMS, (int64_t)COLUMNS), x}};
    for (int i = 0; i < N; i++)
        u->g[i] =
            dy[i / COLUMNS] * x[i % COLUMNS] + dy[ROWS + i / COLUMNS] * x[COLUMNS + i % COLUMNS];
    struct attr attrs[ADAMW_ATTRS + 1] = {{.f = 0.9}, {.f = 0.999},      {.f = 1e-8},
                                          {.f = 0.0}, {.i = DTYPE_NONE}, {.i = 0}};
    struct op_call c = {.op = OP_adamw_8bit_product,
                        .n_in = N_IN + 1,
                        .n_out = N_OUT,
                        .in = in,
                        .out = out,
                        .attrs = attrs};
    struct kernel_ctx ctx = {.env = {.n_threads = 1}, .workspace = workspace};
    expect_ok(k->run(&ctx, &c));
}

static void a_product_updates_as_the_gradient_that_it_is(void **state)
{
    (void)state;
    const struct kernel *plain = cpu_kernels(OP_adamw_8bit);
    for (const struct kernel *k = cpu_kernels(OP_adamw_8bit_product); k->name; k++, plain++) {
        struct update a, b;
        float dy[2 * 28], x[2 * 25];
        for (int i = 0; i < 2 * 28; i++)
            dy[i] = (float)(i * 5 % 7 - 3);
        for (int i = 0; i < 2 * 25; i++)
            x[i] = (float)(i * 3 % 11 - 5);
        golden_start_state(&a);
        b = a;
        run_by_product(k, &a, dy, x);
        memcpy(b.g, a.g, sizeof(a.g));
        run(plain, &b);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

static void codes_of_decoded_numbers_are_the_same_codes(void **state)
{
    struct update u, before;
    (void)state;
    golden_start_state(&u);
    const struct kernel *k = cpu_kernels(OP_adamw_8bit);
    u.scale = 1.0f;
    run(k, &u);
    memset(u.g, 0, sizeof(u.g));
    before = u;
    run(k, &u); /* without gradients m and v only shrink, all by the same factor */
    assert_true(count_other(u.v, before.v) == 0);
    for (int b = 0; b < N_BLOCKS; b++)
        assert_true(fabsf(u.v_absmax[b] - 0.999f * before.v_absmax[b]) <= 1e-6f * u.v_absmax[b]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_maps_are_those_of_bitsandbytes),
        cmocka_unit_test(every_kernel_updates_as_bitsandbytes_does),
        cmocka_unit_test(zeroed_states_are_zeros),
        cmocka_unit_test(blocks_out_of_the_ordinary_stay_inside_the_map),
        cmocka_unit_test(scale_zero_leaves_codes_and_scales_alone),
        cmocka_unit_test(outputs_elsewhere_are_those_in_place),
        cmocka_unit_test(a_product_updates_as_the_gradient_that_it_is),
        cmocka_unit_test(codes_of_decoded_numbers_are_the_same_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
