/* Weights in and out of Hugging Face folders: round trips, other names and dtypes, what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/half.h"
#include "base/host_memory.h"
#include "base/str.h"
#include "io/weights.h"
#include "support/golden.h"
#include "support/scratch.h"

static const struct model_request request = {
    .purpose = MODEL_SCORE, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};

/* A golden model's parameters in host memory. */
struct loaded {
    struct golden g;
    struct tensor *tensors;
};

static void allocate(struct loaded *l, const char *name, enum dtype dtype)
{
    golden_open(&l->g, name, "config.json", &request);
    l->tensors = mem_calloc((size_t)l->g.built.n_params, sizeof(*l->tensors));
    assert_non_null(l->tensors);
    for (int i = 0; i < l->g.built.n_params; i++) {
        struct tensor *t = &l->tensors[i];
        *t = (struct tensor){.dtype = dtype, .shape = l->g.built.params[i].shape};
        t->data = mem_calloc((size_t)tensor_bytes(t), 1);
        assert_non_null(t->data);
    }
}

static void release(struct loaded *l)
{
    for (int i = 0; i < l->g.built.n_params; i++)
        mem_free(l->tensors[i].data);
    mem_free(l->tensors);
    golden_close(&l->g);
}

static enum status load(struct loaded *l, const char *folder)
{
    struct team *team;
    TRY(team_new(&team, 2));
    enum status status =
        weights_load(folder, l->g.built.params, l->g.built.n_params, l->tensors, team);
    team_free(team);
    return status;
}

static enum status save(struct loaded *l, const char *folder, enum dtype dtype, int64_t max_shard)
{
    struct weights_save_options options = {.dtype = dtype, .max_shard_bytes = max_shard};
    return weights_save(folder, l->g.built.params, l->g.built.n_params, l->tensors, &host_stage,
                        &options);
}

/* ---- round trips ---- */

static void expect_same_files(const char *a, const char *b)
{
    struct st_reader *x, *y;
    expect_ok(st_reader_open_folder(&x, a));
    expect_ok(st_reader_open_folder(&y, b));
    assert_int_equal(st_reader_count(x), st_reader_count(y));
    for (size_t i = 0; i < st_reader_count(x); i++) {
        const struct st_tensor *s = st_reader_at(x, i), *t;
        expect_ok(st_reader_get(y, s->name, &t));
        assert_int_equal(s->dtype, t->dtype);
        assert_int_equal(s->rank, t->rank);
        assert_memory_equal(s->dims, t->dims, (size_t)s->rank * sizeof(*s->dims));
        assert_memory_equal(s->data, t->data, (size_t)s->n_bytes);
    }
    st_reader_close(x);
    st_reader_close(y);
}

static void saving_what_was_loaded_gives_the_same_tensors(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        struct scratch s;
        struct loaded l;
        scratch_init(&s);
        allocate(&l, golden_names[i], DTYPE_F32);
        expect_ok(load(&l, l.g.folder));
        expect_ok(save(&l, s.folder, DTYPE_F32, 0));
        expect_same_files(l.g.folder, s.folder);
        release(&l);
        scratch_release(&s);
    }
}

static void shards_hold_the_same_tensors(void **state)
{
    (void)state;
    struct scratch s;
    struct loaded l;
    char path[SCRATCH_PATH];
    scratch_init(&s);
    allocate(&l, "gpt2", DTYPE_F32);
    expect_ok(load(&l, l.g.folder));
    expect_ok(save(&l, s.folder, DTYPE_F32, 20000));
    assert_false(file_exists(scratch_path(&s, "model.safetensors", path)));
    assert_true(file_exists(scratch_path(&s, "model.safetensors.index.json", path)));
    expect_same_files(l.g.folder, s.folder);
    release(&l);
    scratch_release(&s);
}

static void narrow_dtypes_survive_a_round_trip_exactly(void **state)
{
    (void)state;
    static const enum dtype narrow[] = {DTYPE_BF16, DTYPE_F16};
    for (size_t k = 0; k < ARRAY_LEN(narrow); k++) {
        struct scratch s;
        struct loaded wide, first, second;
        scratch_init(&s);
        allocate(&wide, "gpt2", DTYPE_F32);
        allocate(&first, "gpt2", narrow[k]);
        allocate(&second, "gpt2", DTYPE_F64);
        expect_ok(load(&wide, wide.g.folder));
        expect_ok(load(&first, first.g.folder));
        expect_ok(save(&wide, s.folder, narrow[k], 0)); /* rounded when written */
        expect_ok(load(&second, s.folder));
        for (int i = 0; i < wide.g.built.n_params; i++) {
            const float *x = wide.tensors[i].data;
            const uint16_t *h = first.tensors[i].data;
            const double *d = second.tensors[i].data;
            for (int64_t e = 0; e < shape_elems(&wide.tensors[i].shape); e++) {
                bool bf16 = narrow[k] == DTYPE_BF16;
                assert_int_equal(h[e], bf16 ? bf16_from_f32(x[e]) : f16_from_f32(x[e]));
                assert_true(d[e] == (double)(bf16 ? bf16_to_f32(h[e]) : f16_to_f32(h[e])));
            }
        }
        release(&wide);
        release(&first);
        release(&second);
        scratch_release(&s);
    }
}

/* Sizes beyond one tile and one run, neither a multiple of them. */
static void large_transposed_and_stacked_parameters_survive(void **state)
{
    (void)state;
    enum { OUT = 331, IN_ = 53, TALL = 9001 };
    static const struct hf_piece wide[] = {{"a.weight", OUT}},
                                 stacked[] = {{"b.weight", TALL}, {"c.weight", 17}};
    const struct model_param params[] = {
        {.name = "a",
         .shape = shape_of(2, INT64_C(331), INT64_C(53)),
         .transposed = true,
         .pieces = wide,
         .n_pieces = 1},
        {.name = "bc",
         .shape = shape_of(2, INT64_C(9018), INT64_C(3)),
         .pieces = stacked,
         .n_pieces = 2},
    };
    static float a[OUT * IN_], bc[(TALL + 17) * 3], a2[OUT * IN_], bc2[(TALL + 17) * 3];
    for (int i = 0; i < OUT * IN_; i++)
        a[i] = (float)(i % 251); /* exact in bf16 */
    for (int i = 0; i < (TALL + 17) * 3; i++)
        bc[i] = (float)(i % 241);
    struct tensor from[] = {{DTYPE_F32, params[0].shape, a}, {DTYPE_F32, params[1].shape, bc}};
    struct tensor to[] = {{DTYPE_F32, params[0].shape, a2}, {DTYPE_F32, params[1].shape, bc2}};
    struct scratch s;
    scratch_init(&s);
    struct weights_save_options options = {.dtype = DTYPE_BF16};
    expect_ok(weights_save(s.folder, params, 2, from, &host_stage, &options));
    expect_ok(weights_load(s.folder, params, 2, to, NULL));
    assert_memory_equal(a, a2, sizeof(a));
    assert_memory_equal(bc, bc2, sizeof(bc));
    struct st_reader *r;
    const struct st_tensor *t;
    expect_ok(st_reader_open_folder(&r, s.folder));
    expect_ok(st_reader_get(r, "a.weight", &t));
    assert_int_equal(t->dims[0], IN_);
    assert_int_equal(t->dims[1], OUT);
    uint16_t h;
    memcpy(&h, t->data + 2 * (7 * OUT + 300), sizeof(h)); /* [in 7, out 300] */
    assert_true(bf16_to_f32(h) == a[300 * IN_ + 7]);
    st_reader_close(r);
    scratch_release(&s);
}

/* ---- in parts ---- */

static enum status fetch_part(void *user, const struct tensor *t, void *buffer)
{
    (void)user;
    memcpy(buffer, t->data, (size_t)tensor_bytes(t));
    return OK;
}

static enum status store_part(void *user, const struct tensor *t, const void *buffer)
{
    (void)user;
    memcpy(t->data, buffer, (size_t)tensor_bytes(t));
    return OK;
}

/* A row with channels is the least that goes through at once, and a transposed parameter whole. */
static void parameters_larger_than_the_stage_are_the_same_files_and_weights(void **state)
{
    (void)state;
    enum { ROW = 4 * 5, N_PLAIN = 7 * 11 * 13, N_IMAGE = 31 * ROW, N_TURNED = 6 * 9, LEAST = 54 };
    static const struct hf_piece plain[] = {{"a.weight", 500}, {"b.weight", 501}},
                                 image[] = {{"c.weight", 31}}, turned[] = {{"d.weight", 6}};
    const struct model_param params[] = {
        {.name = "ab", .shape = shape_of(1, INT64_C(1001)), .pieces = plain, .n_pieces = 2},
        {.name = "c",
         .shape = shape_of(3, INT64_C(31), INT64_C(4), INT64_C(5)),
         .channels = 5,
         .pieces = image,
         .n_pieces = 1},
        {.name = "d",
         .shape = shape_of(2, INT64_C(6), INT64_C(9)),
         .transposed = true,
         .pieces = turned,
         .n_pieces = 1},
    };
    static float x[N_PLAIN + N_IMAGE + N_TURNED], y[ARRAY_LEN(x)], buffer[LEAST + 5];
    const struct tensor_stage small = {
        .buffer = buffer, .n_bytes = sizeof(buffer), .fetch = fetch_part, .store = store_part};
    struct tensor from[3], to[3];
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = (float)(i % 251); /* exact in bf16 */
    for (int i = 0, at = 0; i < 3; at += (int)shape_elems(&params[i++].shape)) {
        from[i] = (struct tensor){DTYPE_F32, params[i].shape, x + at};
        to[i] = (struct tensor){DTYPE_F32, params[i].shape, y + at};
    }
    for (int k = 0; k < 2; k++) { /* copied as it is, and converted */
        struct weights_save_options options = {.dtype = k ? DTYPE_BF16 : DTYPE_F32};
        struct scratch s, parts;
        scratch_init(&s);
        scratch_init(&parts);
        expect_ok(weights_save(s.folder, params, 3, from, &host_stage, &options));
        expect_ok(weights_save(parts.folder, params, 3, from, &small, &options));
        expect_same_files(s.folder, parts.folder);
        memset(y, 0, sizeof(y));
        expect_ok(weights_load_staged(s.folder, params, 3, to, &small, NULL));
        assert_memory_equal(x, y, sizeof(x));
        scratch_release(&parts);
        scratch_release(&s);
    }
}

/* ---- other folders ---- */

/* Copies the golden model's tensors to a new folder, as `edit` says. */
struct edit {
    const char *strip;              /* prefix taken off every name */
    const char *drop, *rename, *to; /* one tensor left out; one renamed */
    const char *extra[3];           /* F32 [2] tensors added */
    const char *copy, *copy_as;     /* one tensor stored twice */
    int flip_copy;                  /* ... with another first byte */
    const char *reshape, *retype;   /* one flattened; one called I32 */
};

/* The most that is resident from here on is what the system tells afterwards. */
static bool forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool done = f && fputs("5", f) >= 0;
    return f && fclose(f) == 0 && done;
}

/* No more of a file is held at a time than was said, whether it is copied, transposed, or held
 * against its tied copy. */
static void expect_small_reading(const struct model_param *param)
{
    struct tensor t = {DTYPE_F32, param->shape, NULL};
    struct scratch s;
    struct weights *w;
    char path[SCRATCH_PATH];
    struct st_writer *file;
    t.data = mem_alloc((size_t)tensor_bytes(&t));
    assert_non_null(t.data);
    memset(t.data, 1, (size_t)tensor_bytes(&t));
    scratch_init(&s);
    int64_t dims[2] = {param->shape.dim[param->transposed], param->shape.dim[!param->transposed]};
    expect_ok(st_writer_new(&file));
    expect_ok(st_writer_add(file, param->pieces[0].name, ST_F32, 2, dims));
    if (param->tied_name)
        expect_ok(st_writer_add(file, param->tied_name, ST_F32, 2, dims));
    expect_ok(st_writer_open_file(file, scratch_path(&s, "model.safetensors", path)));
    while (st_writer_next(file) >= 0)
        expect_ok(st_writer_append(file, t.data, (size_t)tensor_bytes(&t)));
    expect_ok(st_writer_finish(file, 0));
    st_writer_free(file);
    bool can_tell = forget_peak();
    int64_t before = process_peak();
    expect_ok(weights_open(&w, s.folder, param, 1));
    expect_ok(weights_read(w, 0, &t, NULL));
    if (can_tell && !SNUG_ASAN) /* the header is mapped, and pages come in groups */
        assert_true(process_peak() - before < weights_load_bytes(param, 1) + (1 << 20));
    assert_int_equal(((unsigned char *)t.data)[tensor_bytes(&t) - 1], 1);
    weights_close(w);
    mem_free(t.data);
    scratch_release(&s);
}

static void reading_holds_no_second_copy_of_the_weights(void **state)
{
    static const struct hf_piece pieces[] = {{"a.weight", 8192}};
    struct model_param param = {.name = "a",
                                .shape = shape_of(2, INT64_C(8192), INT64_C(1024)),
                                .pieces = pieces,
                                .n_pieces = 1};
    (void)state;
    expect_small_reading(&param);
    param.tied_name = "b.weight";
    expect_small_reading(&param);
    param.tied_name = NULL;
    param.transposed = true;
    expect_small_reading(&param);
}

static const char *edited_name(const struct edit *e, const char *name)
{
    if (e->rename && strcmp(e->rename, name) == 0)
        return e->to;
    return e->strip && str_starts_with(name, e->strip) ? name + strlen(e->strip) : name;
}

static void add_edited(struct st_writer *w, const struct st_tensor *t, const struct edit *e,
                       const char *name)
{
    bool flat = e->reshape && strcmp(e->reshape, t->name) == 0;
    bool retype = e->retype && strcmp(e->retype, t->name) == 0;
    expect_ok(st_writer_add(w, name, retype ? ST_I32 : t->dtype, flat ? 1 : t->rank,
                            flat ? &t->n_elems : t->dims));
}

static void write_edited(const char *from, const char *to, const struct edit *e)
{
    struct st_reader *r;
    struct st_writer *w;
    const struct st_tensor *written[256];
    int64_t two = 2;
    size_t n = 0;
    expect_ok(st_reader_open_folder(&r, from));
    expect_ok(st_writer_new(&w));
    for (size_t i = 0; i < st_reader_count(r); i++) {
        const struct st_tensor *t = st_reader_at(r, i);
        if (e->drop && strcmp(e->drop, t->name) == 0)
            continue;
        add_edited(w, t, e, edited_name(e, t->name));
        written[n++] = t;
        if (e->copy && strcmp(e->copy, t->name) == 0) {
            add_edited(w, t, e, e->copy_as);
            written[n++] = NULL; /* the one before again */
        }
    }
    size_t n_copied = n;
    for (int i = 0; i < 3 && e->extra[i]; i++, n++)
        expect_ok(st_writer_add(w, e->extra[i], ST_F32, 1, &two));
    expect_ok(st_writer_open_folder(w, to, ST_DEFAULT_SHARD_BYTES));
    for (int64_t i; (i = st_writer_next(w)) >= 0;) {
        static const float zeros[2];
        if ((size_t)i >= n_copied) {
            expect_ok(st_writer_append(w, zeros, sizeof(zeros)));
            continue;
        }
        const struct st_tensor *t = written[i] ? written[i] : written[i - 1];
        uint8_t first = (uint8_t)(t->data[0] ^ (!written[i] && e->flip_copy));
        expect_ok(st_writer_append(w, &first, 1));
        expect_ok(st_writer_append(w, t->data + 1, (size_t)t->n_bytes - 1));
    }
    expect_ok(st_writer_finish(w, 0));
    st_writer_free(w);
    st_reader_close(r);
}

/* Loads an edited copy of a golden model; equal to the original when it loads. */
static enum status load_edited(const char *name, const struct edit *e)
{
    struct scratch s;
    struct loaded due, got;
    scratch_init(&s);
    allocate(&due, name, DTYPE_F32);
    allocate(&got, name, DTYPE_F32);
    expect_ok(load(&due, due.g.folder));
    write_edited(due.g.folder, s.folder, e);
    enum status status = load(&got, s.folder);
    for (int i = 0; status == OK && i < due.g.built.n_params; i++)
        assert_memory_equal(due.tensors[i].data, got.tensors[i].data,
                            (size_t)tensor_bytes(&due.tensors[i]));
    release(&due);
    release(&got);
    scratch_release(&s);
    return status;
}

static void names_may_lack_their_first_part(void **state)
{
    (void)state;
    expect_ok(load_edited("gpt2", &(struct edit){.strip = "transformer."}));
    expect_ok(load_edited("llama", &(struct edit){.strip = "model."}));
}

static void masks_and_rotary_tables_are_passed_over(void **state)
{
    (void)state;
    expect_ok(load_edited("gpt2", &(struct edit){.extra = {"transformer.h.0.attn.bias",
                                                           "transformer.h.1.attn.masked_bias"}}));
    expect_ok(load_edited(
        "llama", &(struct edit){.extra = {"model.layers.0.self_attn.rotary_emb.inv_freq"}}));
}

static void a_tied_head_may_be_stored_if_it_is_the_embedding(void **state)
{
    (void)state;
    struct edit e = {.copy = "transformer.wte.weight", .copy_as = "lm_head.weight"};
    expect_ok(load_edited("gpt2", &e));
    e.flip_copy = 1;
    assert_int_equal(load_edited("gpt2", &e), ERR_DATA);
    expect_message("'lm_head.weight' differs from 'transformer.wte.weight'");
    e = (struct edit){.copy = "model.embed_tokens.weight", .copy_as = "lm_head.weight"};
    expect_ok(load_edited("llama3", &e));
}

/* ---- refusals ---- */

static void a_missing_tensor_is_named_with_the_nearest(void **state)
{
    (void)state;
    const char *norm = "model.layers.1.input_layernorm.weight";
    struct edit e = {.rename = norm, .to = "model.layers.1.input_layer_norm.weight"};
    assert_int_equal(load_edited("llama", &e), ERR_DATA);
    expect_message(norm);
    expect_message("model.layers.1.input_layer_norm.weight");
    e = (struct edit){.drop = "lm_head.weight"}; /* the config does not tie it */
    assert_int_equal(load_edited("llama", &e), ERR_DATA);
    expect_message("lm_head.weight");
}

static void a_wrong_shape_is_told_with_both_shapes(void **state)
{
    (void)state;
    struct edit e = {.reshape = "transformer.h.0.attn.c_attn.weight"};
    assert_int_equal(load_edited("gpt2", &e), ERR_DATA);
    expect_message("'transformer.h.0.attn.c_attn.weight' has shape [3072]");
    expect_message("asks for [32, 96]");
}

static void a_quantised_tensor_is_refused(void **state)
{
    (void)state;
    struct edit e = {.retype = "model.layers.0.mlp.up_proj.weight"};
    assert_int_equal(load_edited("llama", &e), ERR_DATA);
    expect_message("'model.layers.0.mlp.up_proj.weight' is I32");
}

static void tensors_without_a_place_are_listed(void **state)
{
    (void)state;
    struct edit e = {.extra = {"model.layers.2.norm.weight", "score.weight"}};
    assert_int_equal(load_edited("llama", &e), ERR_DATA);
    expect_message("2 tensors the model has no place for");
    expect_message("score.weight");
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    struct scratch s;
    struct loaded l;
    struct file_map map;
    char path[SCRATCH_PATH * 2];
    scratch_init(&s);
    allocate(&l, "gpt2", DTYPE_F32);
    snprintf(path, sizeof(path), "%s/model.safetensors", l.g.folder);
    expect_ok(file_map_open(&map, path));
    scratch_write(&s, "model.safetensors", map.data, map.n_bytes - 100);
    file_map_close(&map);
    assert_int_equal(load(&l, s.folder), ERR_DATA);
    release(&l);
    scratch_release(&s);
}

static void a_failing_disk_is_an_error_that_leaks_nothing(void **state)
{
    (void)state;
    struct loaded l;
    allocate(&l, "gpt2", DTYPE_F32);
    expect_ok(load(&l, l.g.folder));
    int64_t before = mem_live();
    for (int n = 1; n <= 8; n++) {
        struct scratch s;
        scratch_init(&s);
        file_fail_after(n);
        enum status status = save(&l, s.folder, DTYPE_BF16, 20000);
        file_fail_after(0);
        assert_int_equal(status, ERR_IO);
        assert_int_equal(mem_live(), before);
        scratch_release(&s);
    }
    release(&l);
}

static void running_out_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    (void)state;
    struct loaded l;
    allocate(&l, "qwen2", DTYPE_F32);
    int64_t before = mem_live();
    enum status status = ERR_MEMORY;
    for (int64_t n = 1; status != OK && n < 1000; n++) {
        mem_fail_after(n, 1);
        status = load(&l, l.g.folder);
        mem_fail_after(0, 0);
        assert_true(status == OK || status == ERR_MEMORY);
        assert_int_equal(mem_live(), before);
    }
    assert_int_equal(status, OK);
    release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_what_was_loaded_gives_the_same_tensors),
        cmocka_unit_test(shards_hold_the_same_tensors),
        cmocka_unit_test(narrow_dtypes_survive_a_round_trip_exactly),
        cmocka_unit_test(large_transposed_and_stacked_parameters_survive),
        cmocka_unit_test(parameters_larger_than_the_stage_are_the_same_files_and_weights),
        cmocka_unit_test(reading_holds_no_second_copy_of_the_weights),
        cmocka_unit_test(names_may_lack_their_first_part),
        cmocka_unit_test(masks_and_rotary_tables_are_passed_over),
        cmocka_unit_test(a_tied_head_may_be_stored_if_it_is_the_embedding),
        cmocka_unit_test(a_missing_tensor_is_named_with_the_nearest),
        cmocka_unit_test(a_wrong_shape_is_told_with_both_shapes),
        cmocka_unit_test(a_quantised_tensor_is_refused),
        cmocka_unit_test(tensors_without_a_place_are_listed),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_failing_disk_is_an_error_that_leaks_nothing),
        cmocka_unit_test(running_out_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
