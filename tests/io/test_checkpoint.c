/* Checkpoints: what is saved comes back bit for bit; a full disk, a killed run, a cut-off or
 * damaged file never costs an older checkpoint and is never taken for a good one. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/checkpoint.h"
#include "io/checkpoint_internal.h"
#include "io/file_hash.h"
#include "support/failures.h"
#include "support/golden.h"
#include "support/scratch.h"

/* ---- a model with states, and a run folder ---- */

enum { MAX_PARAMS = 64, N_STATES = 9 };

struct fixture {
    struct scratch scratch;
    struct golden golden;
    struct tensor params[MAX_PARAMS];
    struct checkpoint_tensor states[N_STATES];
    struct checkpoint_content content;
};

static void fill_random(const struct tensor *t, uint64_t seed)
{
    int64_t n = tensor_bytes(t);
    for (int64_t i = 0; i < n; i += 16) {
        struct philox4 bits = philox(7, seed, (uint64_t)i);
        memcpy((char *)t->data + i, &bits, (size_t)MIN(n - i, (int64_t)sizeof(bits)));
    }
}

static struct tensor new_tensor(enum dtype dtype, struct shape shape)
{
    struct tensor t = {.dtype = dtype, .shape = shape};
    t.data = mem_calloc((size_t)tensor_bytes(&t) + 1, 1);
    assert_non_null(t.data);
    return t;
}

static void add_states(struct fixture *f)
{
    static const char *const names[N_STATES] = {"m.wte", "v.wte",  "master.wte", "m.b", "bits",
                                                "steps", "scalar", "empty",      "f16s"};
    const enum dtype dtypes[N_STATES] = {DTYPE_F32, DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_U8,
                                         DTYPE_I64, DTYPE_I32, DTYPE_F32, DTYPE_F16};
    const struct shape shapes[N_STATES] = {
        shape_of(2, INT64_C(97), INT64_C(32)),
        shape_of(2, INT64_C(97), INT64_C(32)),
        shape_of(2, INT64_C(97), INT64_C(32)),
        shape_of(1, INT64_C(33)),
        shape_of(3, INT64_C(1), INT64_C(5), INT64_C(3)),
        shape_of(1, INT64_C(2)),
        shape_of(0),
        shape_of(2, INT64_C(0), INT64_C(4)),
        shape_of(1, INT64_C(7)),
    };
    for (int i = 0; i < N_STATES; i++) {
        f->states[i].name = names[i];
        f->states[i].tensor = new_tensor(dtypes[i], shapes[i]);
    }
}

/* Content that differs from step to step, so that tests can tell checkpoints apart. */
static void set_step(struct fixture *f, int64_t step)
{
    for (int i = 0; i < f->golden.built.n_params; i++) {
        float *to = f->params[i].data;
        int64_t n = shape_elems(&f->params[i].shape);
        for (int64_t e = 0; e < n; e++)
            to[e] = rng_uniform(philox((uint64_t)step, (uint64_t)i, (uint64_t)e).v[0]) - 0.5f;
    }
    for (int i = 0; i < N_STATES; i++)
        fill_random(&f->states[i].tensor, (uint64_t)(step * 100 + i));
    json_decref(f->content.state);
    json_decref(f->content.log_history);
    f->content.state = json_pack("{s:I, s:f, s:[I,I]}", "seed", (json_int_t)step, "scale",
                                 0.1 * (double)step, "cursor", INT64_MAX, INT64_MIN);
    f->content.log_history =
        json_pack("[{s:f, s:f, s:f, s:f, s:I}]", "loss", 1.25, "grad_norm", 0.5, "learning_rate",
                  1e-4, "epoch", 0.25, "step", (json_int_t)step);
    f->content.epoch = 0.25;
}

/* In a scratch folder that there is. */
static void fixture_fill(struct fixture *f, const char *name)
{
    struct model_request request = {
        .purpose = MODEL_EVAL, .batch = 1, .seq_len = 8, .dtype = DTYPE_F32};
    golden_open(&f->golden, name, "config.json", &request);
    const struct model_graph *g = &f->golden.built;
    assert_in_range(g->n_params, 1, MAX_PARAMS);
    for (int i = 0; i < g->n_params; i++)
        f->params[i] = new_tensor(DTYPE_F32, g->params[i].shape);
    add_states(f);
    f->content = (struct checkpoint_content){
        .model = f->golden.model,
        .params = g->params,
        .n_params = g->n_params,
        .param_tensors = f->params,
        .stage = &host_stage,
        .weights_dtype = DTYPE_F32,
        .states = f->states,
        .n_states = N_STATES,
    };
    set_step(f, 1);
}

static void fixture_init(struct fixture *f, const char *name)
{
    memset(f, 0, sizeof(*f));
    scratch_init(&f->scratch);
    fixture_fill(f, name);
}

static void fixture_release(struct fixture *f)
{
    for (int i = 0; i < f->golden.built.n_params; i++)
        mem_free(f->params[i].data);
    for (int i = 0; i < N_STATES; i++)
        mem_free(f->states[i].tensor.data);
    json_decref(f->content.state);
    json_decref(f->content.log_history);
    golden_close(&f->golden);
    scratch_release(&f->scratch);
}

static void save(struct fixture *f, int64_t step, int64_t keep)
{
    set_step(f, step);
    expect_ok(checkpoint_save(f->scratch.folder, step, &f->content, keep, NULL));
}

static bool exists(const struct fixture *f, const char *name)
{
    char path[SCRATCH_PATH];
    return file_exists(scratch_path(&f->scratch, name, path)) != 0;
}

static void expect_same_bytes(const struct tensor *got, const struct tensor *due)
{
    assert_memory_equal(got->data, due->data, (size_t)tensor_bytes(due));
}

/* The checkpoint in a folder holds what set_step(step) makes. */
static void expect_content(struct fixture *f, const char *path, int64_t step)
{
    struct checkpoint *c;
    expect_ok(checkpoint_open(&c, path, CHECKPOINT_FULL));
    assert_int_equal(checkpoint_step(c), step);
    set_step(f, step);
    assert_true(json_equal(checkpoint_state(c), f->content.state));
    json_t *history;
    expect_ok(checkpoint_log_history(c, &history));
    assert_true(json_equal(history, f->content.log_history));
    json_decref(history);
    expect_ok(checkpoint_check_model(c, f->golden.model));

    struct tensor params[MAX_PARAMS];
    struct checkpoint_tensor states[N_STATES];
    for (int i = 0; i < f->content.n_params; i++)
        params[i] = new_tensor(f->params[i].dtype, f->params[i].shape);
    for (int i = 0; i < N_STATES; i++) {
        states[i].name = f->states[i].name;
        states[i].tensor = new_tensor(f->states[i].tensor.dtype, f->states[i].tensor.shape);
    }
    expect_ok(checkpoint_read_params(c, f->content.params, f->content.n_params, params, &host_stage,
                                     NULL));
    expect_ok(checkpoint_read_states(c, states, N_STATES, &host_stage));
    for (int i = 0; i < f->content.n_params; i++) {
        expect_same_bytes(&params[i], &f->params[i]);
        mem_free(params[i].data);
    }
    for (int i = 0; i < N_STATES; i++) {
        expect_same_bytes(&states[i].tensor, &f->states[i].tensor);
        mem_free(states[i].tensor.data);
    }
    checkpoint_close(c);
}

/* "last" is the checkpoint of this step, whole. */
static void expect_last(struct fixture *f, int64_t step)
{
    char *path, name[64], due[SCRATCH_PATH];
    snprintf(name, sizeof(name), "checkpoint-%lld", (long long)step);
    expect_ok(checkpoint_find(f->scratch.folder, "last", &path));
    assert_string_equal(path, scratch_path(&f->scratch, name, due));
    expect_content(f, path, step);
    mem_free(path);
}

/* Nothing of ours in the run folder but these finished checkpoints, -1 at the end. */
static void expect_folders(const struct fixture *f, const int64_t *steps)
{
    struct pool pool;
    struct checkpoint_list list;
    pool_init(&pool);
    expect_ok(checkpoint_list(&pool, f->scratch.folder, &list));
    size_t i = 0;
    for (; i < list.n; i++) {
        assert_int_equal(list.names[i].kind, CHECKPOINT_FINISHED);
        assert_int_equal(list.names[i].step, steps[i]);
    }
    assert_int_equal(steps[i], -1);
    pool_release(&pool);
}

/* ---- round trips ---- */

static void what_is_saved_comes_back_bit_for_bit(void **state)
{
    (void)state;
    for (int i = 0; golden_names[i]; i++) {
        struct fixture f;
        fixture_init(&f, golden_names[i]);
        save(&f, 20, 0);
        expect_last(&f, 20);
        f.content.max_shard_bytes = 20000;
        save(&f, 21, 0);
        assert_true(exists(&f, "checkpoint-21/model.safetensors.index.json"));
        expect_last(&f, 21);
        fixture_release(&f);
    }
}

static void the_folder_is_what_other_programs_expect(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    scratch_write_text(&f.scratch, "source/tokenizer.json", "{\"a\": 1}");
    scratch_write_text(&f.scratch, "source/generation_config.json", "{}");
    char source[SCRATCH_PATH], path[SCRATCH_PATH], *saved;
    f.content.extras_folder = scratch_path(&f.scratch, "source", source);
    set_step(&f, 500);
    expect_ok(checkpoint_save(f.scratch.folder, 500, &f.content, 3, &saved));
    assert_string_equal(saved, scratch_path(&f.scratch, "checkpoint-500", path));
    mem_free(saved);
    static const char *const names[] = {
        "config.json",           "model.safetensors",  "tokenizer.json", "generation_config.json",
        "optimizer.safetensors", "trainer_state.json", "state.json"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof(name), "checkpoint-500/%s", names[i]);
        assert_true(exists(&f, name));
    }
    json_t *root;
    expect_ok(json_read_file(
        &root, scratch_path(&f.scratch, "checkpoint-500/trainer_state.json", path), ERR_DATA));
    assert_int_equal(json_integer_value(json_object_get(root, "global_step")), 500);
    assert_true(json_real_value(json_object_get(root, "epoch")) == 0.25);
    const json_t *row = json_array_get(json_object_get(root, "log_history"), 0);
    assert_true(json_real_value(json_object_get(row, "loss")) == 1.25);
    json_decref(root);
    expect_ok(json_read_file(&root, scratch_path(&f.scratch, "checkpoint-500/state.json", path),
                             ERR_DATA));
    /* Every file but the manifest itself is in the manifest. */
    assert_int_equal(json_object_size(json_object_get(root, "files")), ARRAY_LEN(names) - 1);
    json_decref(root);
    expect_ok(json_read_file(&root, scratch_path(&f.scratch, "checkpoint-500/config.json", path),
                             ERR_DATA));
    assert_string_equal(json_string_value(json_object_get(root, "dtype")), "float32");
    json_decref(root);
    fixture_release(&f);
}

static void a_tokenizer_folder_that_is_gone_does_not_cost_the_checkpoint(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    f.content.extras_folder = "/no/such/folder";
    save(&f, 3, 0);
    expect_last(&f, 3);
    fixture_release(&f);
}

/* Bytes of the tensors of a checkpoint's model file. */
static int64_t stored_bytes(const struct fixture *f)
{
    struct st_reader *r;
    char path[SCRATCH_PATH];
    int64_t n = 0;
    expect_ok(st_reader_open_folder(&r, scratch_path(&f->scratch, "checkpoint-1", path)));
    for (size_t i = 0; i < st_reader_count(r); i++)
        n += st_reader_at(r, i)->n_bytes;
    st_reader_close(r);
    return n;
}

/* Parameters of mixed 16- and 32-bit dtypes keep their bits, and take no more bytes than those. */
static void parameters_of_any_dtype_keep_their_bits(void **state)
{
    (void)state;
    const enum dtype dtypes[][2] = {
        {DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16}, {DTYPE_BF16, DTYPE_F32},
        {DTYPE_BF16, DTYPE_F16},  {DTYPE_F64, DTYPE_F32},
    };
    for (size_t k = 0; k < ARRAY_LEN(dtypes); k++) {
        struct fixture f;
        int64_t n_bytes = 0;
        fixture_init(&f, "llama");
        struct tensor back[MAX_PARAMS];
        for (int i = 0; i < f.content.n_params; i++) {
            struct tensor *t = &f.params[i];
            int64_t n = shape_elems(&t->shape);
            struct tensor other = new_tensor(dtypes[k][i % 2], t->shape);
            for (int64_t e = 0; e < n; e++) {
                float x = ((float *)t->data)[e];
                if (other.dtype == DTYPE_F64)
                    ((double *)other.data)[e] = (double)x / 3;
                else if (other.dtype == DTYPE_F32)
                    ((float *)other.data)[e] = x;
                else
                    ((uint16_t *)other.data)[e] =
                        other.dtype == DTYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
            }
            mem_free(t->data);
            *t = other;
            back[i] = new_tensor(other.dtype, other.shape);
            n_bytes += tensor_bytes(&other);
        }
        char *path, file[SCRATCH_PATH];
        f.content.weights_dtype = DTYPE_BF16;
        expect_ok(checkpoint_save(f.scratch.folder, 1, &f.content, 0, &path));
        assert_int_equal(stored_bytes(&f), n_bytes);
        struct checkpoint *c;
        expect_ok(checkpoint_open(&c, path, CHECKPOINT_FULL));
        expect_ok(checkpoint_read_params(c, f.content.params, f.content.n_params, back, &host_stage,
                                         NULL));
        for (int i = 0; i < f.content.n_params; i++) {
            expect_same_bytes(&back[i], &f.params[i]);
            mem_free(back[i].data);
        }
        checkpoint_close(c);
        mem_free(path);
        json_t *config;
        expect_ok(json_read_file(
            &config, scratch_path(&f.scratch, "checkpoint-1/config.json", file), ERR_DATA));
        assert_string_equal(json_string_value(json_object_get(config, "dtype")), "bfloat16");
        json_decref(config);
        fixture_release(&f);
    }
}

static void saving_and_reading_need_no_memory_for_the_tensors(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    enum { MIB = 1 << 20, N_MIB = 96 };
    struct checkpoint_tensor big = {"big", new_tensor(DTYPE_U8, shape_of(1, INT64_C(96) * MIB))};
    memset(big.tensor.data, 5, (size_t)N_MIB * MIB);
    f.content.states = &big;
    f.content.n_states = 1;
    struct rusage before, after;
    struct checkpoint *c;
    char *path;
    (void)getrusage(RUSAGE_SELF, &before);
    expect_ok(checkpoint_save(f.scratch.folder, 1, &f.content, 0, &path));
    expect_ok(checkpoint_open(&c, path, CHECKPOINT_FULL));
    expect_ok(checkpoint_read_states(c, &big, 1, &host_stage));
    (void)getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 32 * 1024); /* KiB */
    checkpoint_close(c);
    mem_free(path);
    mem_free(big.tensor.data);
    fixture_release(&f);
}

/* ---- finding and rotation ---- */

static void the_newest_by_number_is_last(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    char *path, due[SCRATCH_PATH];
    expect_ok(checkpoint_find(f.scratch.folder, "auto", &path));
    assert_null(path);
    expect_ok(checkpoint_find("/no/such/folder", "auto", &path));
    assert_null(path);
    assert_int_equal(checkpoint_find(f.scratch.folder, "last", &path), ERR_CHECKPOINT);
    expect_message("no complete checkpoint");
    assert_null(path);
    assert_int_equal(checkpoint_find(f.scratch.folder, "checkpoint-9", &path), ERR_CHECKPOINT);
    expect_message("checkpoint-9");
    assert_null(path);
    save(&f, 100, 0);
    save(&f, 9, 0);
    save(&f, 20, 0);
    expect_last(&f, 100);
    expect_ok(checkpoint_find(f.scratch.folder, "checkpoint-9", &path));
    assert_string_equal(path, scratch_path(&f.scratch, "checkpoint-9", due));
    mem_free(path);
    expect_ok(checkpoint_find("/elsewhere", due, &path));
    assert_string_equal(path, due);
    mem_free(path);
    fixture_release(&f);
}

static void a_later_run_is_newer_whatever_its_steps(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    f.content.run = "20261115-100000-000000-ffffffff";
    save(&f, 100, 0);
    save(&f, 200, 0);
    f.content.run = "20261115-100001-000000-00000000";
    save(&f, 5, 0);
    expect_last(&f, 5);
    struct pool pool;
    struct checkpoint_entries list;
    pool_init(&pool);
    expect_ok(checkpoint_entries(&pool, f.scratch.folder, &list));
    assert_int_equal(list.n, 3);
    assert_string_equal(list.items[2].run, f.content.run);
    pool_release(&pool);
    save(&f, 10, 2); /* the old run's go first */
    expect_folders(&f, (const int64_t[]){5, 10, -1});
    expect_last(&f, 10);
    save(&f, 15, 4294967297); /* more than 32 bits: keep that many */
    expect_folders(&f, (const int64_t[]){5, 10, 15, -1});
    fixture_release(&f);
}

static void rotation_keeps_the_newest_and_always_the_one_just_written(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    scratch_write_text(&f.scratch, "checkpoint-1/pytorch_model.bin", "another program's");
    scratch_write_text(&f.scratch, "checkpoint-best/x", "x");
    save(&f, 8, 2);
    save(&f, 9, 2);
    save(&f, 10, 2);
    expect_folders(&f, (const int64_t[]){1, 9, 10, -1});
    save(&f, 100, 0);
    expect_folders(&f, (const int64_t[]){1, 9, 10, 100, -1});
    save(&f, 11, 2); /* resumed from an older one */
    expect_folders(&f, (const int64_t[]){1, 11, 100, -1});
    save(&f, 12, 1);
    expect_folders(&f, (const int64_t[]){1, 12, -1});
    expect_last(&f, 12);
    assert_true(exists(&f, "checkpoint-1/pytorch_model.bin"));
    assert_true(exists(&f, "checkpoint-best/x"));
    fixture_release(&f);
}

static void saving_a_step_again_replaces_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 5, 0);
    set_step(&f, 6);
    expect_ok(checkpoint_save(f.scratch.folder, 5, &f.content, 0, NULL));
    expect_folders(&f, (const int64_t[]){5, -1});
    struct checkpoint *c;
    char path[SCRATCH_PATH];
    expect_ok(checkpoint_open(&c, scratch_path(&f.scratch, "checkpoint-5", path), CHECKPOINT_FULL));
    assert_true(json_equal(checkpoint_state(c), f.content.state));
    checkpoint_close(c);

    /* Not ours: moved out of the way, not removed. */
    scratch_write_text(&f.scratch, "checkpoint-7/pytorch_model.bin", "x");
    save(&f, 7, 0);
    assert_true(exists(&f, "checkpoint-7.replaced-1/pytorch_model.bin"));
    expect_last(&f, 7);
    fixture_release(&f);
}

static void names_are_taken_exactly(void **state)
{
    (void)state;
    static const char *const others[] = {
        "checkpoint-",
        "checkpoint-007",
        "checkpoint-5x",
        "checkpoint--5",
        "checkpoint-99999999999999999999",
        ".tmp-checkpoint-5",
        ".tmp-checkpoint-5-",
        ".tmp-checkpoint-5-1x",
        ".tmp-checkpoint-x-1",
        ".old-checkpoint-5",
        ".tmp-other",
        "xcheckpoint-5",
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(checkpoint_parse_name(others[i]).kind, CHECKPOINT_OTHER);
    struct checkpoint_name name = checkpoint_parse_name("checkpoint-0");
    assert_int_equal(name.kind, CHECKPOINT_FINISHED);
    assert_int_equal(name.step, 0);
    name = checkpoint_parse_name(".tmp-checkpoint-1200-34");
    assert_int_equal(name.kind, CHECKPOINT_TEMPORARY);
    assert_int_equal(name.step, 1200);
    assert_int_equal(name.pid, 34);
    assert_int_equal(checkpoint_parse_name(".old-checkpoint-1-2").kind, CHECKPOINT_ASIDE);
}

/* ---- damage ---- */

static const char *const all_files[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                        "trainer_state.json", "state.json"};

/* checkpoint-20 is refused, naming the file, and "last" goes back to checkpoint-10. */
static void expect_refused(struct fixture *f, const char *file, enum checkpoint_check check)
{
    struct checkpoint *c;
    char path[SCRATCH_PATH];
    int64_t live = mem_live();
    assert_int_equal(checkpoint_open(&c, scratch_path(&f->scratch, "checkpoint-20", path), check),
                     ERR_CHECKPOINT);
    assert_null(c);
    expect_message(file);
    assert_int_equal(mem_live(), live);
    char *found;
    expect_ok(checkpoint_find(f->scratch.folder, "last", &found));
    assert_string_equal(found, scratch_path(&f->scratch, "checkpoint-10", path));
    mem_free(found);
}

static void a_file_cut_off_anywhere_is_noticed(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 10, 0);
    save(&f, 20, 0);
    for (size_t i = 0; i < ARRAY_LEN(all_files); i++) {
        char name[64], path[SCRATCH_PATH], *bytes;
        size_t n;
        snprintf(name, sizeof(name), "checkpoint-20/%s", all_files[i]);
        expect_ok(file_read(scratch_path(&f.scratch, name, path), &bytes, &n));
        const size_t lengths[] = {0, 1, 7, 8, 9, 30, 40, n / 2, n - 100, n - 8, n - 2, n - 1};
        for (size_t k = 0; k < ARRAY_LEN(lengths); k++) {
            scratch_write(&f.scratch, name, bytes, lengths[k]);
            expect_refused(&f, all_files[i], CHECKPOINT_QUICK);
        }
        scratch_write(&f.scratch, name, bytes, n);
        mem_free(bytes);
    }
    expect_last(&f, 20);
    fixture_release(&f);
}

static void a_flipped_bit_anywhere_is_noticed(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 10, 0);
    save(&f, 20, 0);
    struct rng r = {.key = 3};
    for (size_t i = 0; i < ARRAY_LEN(all_files); i++) {
        char name[64], path[SCRATCH_PATH], *bytes;
        size_t n;
        snprintf(name, sizeof(name), "checkpoint-20/%s", all_files[i]);
        expect_ok(file_read(scratch_path(&f.scratch, name, path), &bytes, &n));
        for (size_t k = 0; k < 40; k++) {
            size_t at = k < 10 ? k * 3 : k == 10 ? n - 1 : rng_below(&r, n);
            char old = bytes[at];
            bytes[at] = (char)(old ^ (1 << rng_below(&r, 8)));
            scratch_write(&f.scratch, name, bytes, n);
            expect_refused(&f, all_files[i], CHECKPOINT_FULL);
            bytes[at] = old;
        }
        scratch_write(&f.scratch, name, bytes, n);
        mem_free(bytes);
    }
    expect_last(&f, 20);
    fixture_release(&f);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 10, 0);
    for (size_t i = 0; i < ARRAY_LEN(all_files); i++) {
        char name[64], path[SCRATCH_PATH];
        save(&f, 20, 0);
        snprintf(name, sizeof(name), "checkpoint-20/%s", all_files[i]);
        assert_int_equal(unlink(scratch_path(&f.scratch, name, path)), 0);
        expect_refused(&f, all_files[i], CHECKPOINT_QUICK);
        expect_ok(file_make_folders(path)); /* a folder in its place */
        expect_refused(&f, all_files[i], CHECKPOINT_QUICK);
        char folder[SCRATCH_PATH];
        expect_ok(file_remove_tree(scratch_path(&f.scratch, "checkpoint-20", folder)));
    }
    scratch_write_text(&f.scratch, "checkpoint-20/x", "");
    expect_refused(&f, "state.json: missing", CHECKPOINT_FULL);
    fixture_release(&f);
}

/* Writes a state.json with a right checksum and the given text after it. */
static void write_state_file(const struct fixture *f, const char *rest)
{
    char text[512], digits[HASH_TEXT];
    int n = snprintf(text, sizeof(text), "{\n  \"xxh64\": \"0000000000000000\"%s", rest);
    memcpy(text + 14, file_hash_text(digits, file_hash_bytes(text, (size_t)n)), HASH_DIGITS);
    scratch_write(&f->scratch, "checkpoint-20/state.json", text, (size_t)n);
}

/* With an allocation that fails memory is what is missing, and never an older checkpoint found. */
static bool finds_newest(struct fixture *f)
{
    char *found, due[SCRATCH_PATH];
    enum status status = checkpoint_find(f->scratch.folder, "last", &found);
    if (status == ERR_MEMORY)
        return false;
    expect_ok(status);
    assert_string_equal(found, scratch_path(&f->scratch, "checkpoint-20", due));
    mem_free(found);
    return true;
}

static void want_of_memory_is_not_taken_for_damage(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 10, 0);
    save(&f, 20, 0);
    json_malloc_t before_alloc;
    json_free_t before_free;
    json_get_alloc_funcs(&before_alloc, &before_free);
    json_set_alloc_funcs(mem_alloc, mem_free); /* Jansson's fail with ours */
    int64_t n = 1;
    for (bool whole = false; !whole; n++) {
        mem_fail_after(n, 1);
        whole = finds_newest(&f);
        mem_fail_after(0, 0);
    }
    json_set_alloc_funcs(before_alloc, before_free);
    assert_true(n > 100);
    fixture_release(&f);
}

static void a_state_file_of_another_kind_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 10, 0);
    scratch_write_text(&f.scratch, "checkpoint-20/state.json", "not JSON at all, whatever it is");
    expect_refused(&f, "state.json: cut off or damaged", CHECKPOINT_FULL);
    scratch_write_text(&f.scratch, "checkpoint-20/state.json", "{}");
    expect_refused(&f, "state.json: cut off or damaged", CHECKPOINT_FULL);
    write_state_file(&f, ", nonsense");
    expect_refused(&f, "not valid JSON", CHECKPOINT_FULL);
    write_state_file(&f, "}");
    expect_refused(&f, "not the state of a checkpoint", CHECKPOINT_FULL);
    write_state_file(&f, ", \"format\": \"snug-checkpoint\", \"version\": 2}");
    expect_refused(&f, "version 2", CHECKPOINT_FULL);
    write_state_file(&f, ", \"format\": \"snug-checkpoint\", \"version\": 1, \"step\": 4}");
    expect_refused(&f, "step, state or files is missing", CHECKPOINT_FULL);
    write_state_file(&f, ", \"format\": \"snug-checkpoint\", \"version\": 1, \"step\": -4, "
                         "\"state\": {}, \"files\": {}}");
    expect_refused(&f, "step is -4", CHECKPOINT_FULL);
    write_state_file(&f,
                     ", \"format\": \"snug-checkpoint\", \"version\": 1, \"step\": 4, "
                     "\"run\": \"../20261115-10000-000000-00000\", \"state\": {}, \"files\": {}}");
    expect_refused(&f, "'run' is not the id of a run", CHECKPOINT_FULL);
    write_state_file(&f, ", \"format\": \"snug-checkpoint\", \"version\": 1, \"step\": 4, "
                         "\"state\": {}, \"files\": {\"config.json\": 3}}");
    expect_refused(&f, "config.json: missing", CHECKPOINT_FULL);
    write_state_file(&f, ", \"format\": \"snug-checkpoint\", \"version\": 1, \"step\": 4, "
                         "\"state\": {}, \"files\": {}}");
    expect_refused(&f, "optimizer.safetensors", CHECKPOINT_FULL);
    fixture_release(&f);
}

static void a_checkpoint_of_another_model_or_optimizer_is_refused(void **state)
{
    (void)state;
    struct fixture f, other;
    fixture_init(&f, "gpt2");
    fixture_init(&other, "llama");
    char *path;
    set_step(&f, 1);
    expect_ok(checkpoint_save(f.scratch.folder, 1, &f.content, 0, &path));
    struct checkpoint *c;
    expect_ok(checkpoint_open(&c, path, CHECKPOINT_QUICK));
    assert_int_equal(checkpoint_check_model(c, other.golden.model), ERR_CHECKPOINT);
    expect_message("another model");
    assert_int_equal(checkpoint_read_params(c, other.content.params, other.content.n_params,
                                            other.content.param_tensors, &host_stage, NULL),
                     ERR_CHECKPOINT);
    expect_message("model.safetensors");

    struct checkpoint_tensor t = f.states[0];
    t.tensor.shape = shape_of(2, INT64_C(32), INT64_C(97));
    assert_int_equal(checkpoint_read_state(c, t.name, &t.tensor, &host_stage), ERR_CHECKPOINT);
    expect_message("'m.wte' is F32 [97, 32], this run needs f32 [32, 97]");
    t.tensor.shape = shape_of(1, INT64_C(97));
    assert_int_equal(checkpoint_read_state(c, t.name, &t.tensor, &host_stage), ERR_CHECKPOINT);
    t = f.states[0];
    t.tensor.dtype = DTYPE_I32;
    assert_int_equal(checkpoint_read_state(c, t.name, &t.tensor, &host_stage), ERR_CHECKPOINT);
    expect_message("needs i32");
    assert_int_equal(checkpoint_read_state(c, "m.wtf", &f.states[0].tensor, &host_stage),
                     ERR_CHECKPOINT);
    expect_message("m.wtf");
    assert_int_equal(checkpoint_read_states(c, f.states, N_STATES - 1, &host_stage),
                     ERR_CHECKPOINT);
    expect_message("holds 9 states, this run has 8");
    checkpoint_close(c);
    mem_free(path);
    fixture_release(&f);
    fixture_release(&other);
}

/* ---- failing writes and memory ---- */

static void a_disk_full_at_any_write_costs_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    scratch_write_text(&f.scratch, "source/tokenizer.json", "{}");
    char source[SCRATCH_PATH];
    f.content.extras_folder = scratch_path(&f.scratch, "source", source);
    f.content.max_shard_bytes = 60000;
    save(&f, 10, 0);
    int64_t n = 1, live = mem_live();
    for (;; n++) {
        set_step(&f, 20);
        file_fail_after(n);
        char *path;
        enum status status = checkpoint_save(f.scratch.folder, 20, &f.content, 0, &path);
        file_fail_after(0);
        if (status == OK) {
            mem_free(path);
            break;
        }
        assert_int_equal(status, ERR_IO);
        assert_null(path);
        expect_message("the disk is full");
        expect_message("step 20 is not saved");
        assert_int_equal(mem_live(), live);
        expect_folders(&f, (const int64_t[]){10, -1});
        expect_last(&f, 10);
    }
    assert_true(n > 20);
    expect_last(&f, 20);

    /* The same while a checkpoint of that step is replaced: the old one stays. */
    for (n = 1;; n++) {
        set_step(&f, 30);
        file_fail_after(n);
        enum status status = checkpoint_save(f.scratch.folder, 20, &f.content, 0, NULL);
        file_fail_after(0);
        if (status == OK)
            break;
        expect_message("the disk is full");
        expect_folders(&f, (const int64_t[]){10, 20, -1});
        expect_last(&f, 20);
    }
    assert_true(n > 20);
    fixture_release(&f);
}

static void trouble_with_an_old_checkpoint_does_not_fail_the_new_one(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    save(&f, 1, 0);
    save(&f, 2, 0);
    int64_t n = 1;
    for (;; n++) { /* one write further than without rotation */
        set_step(&f, 3);
        file_fail_after(n);
        enum status status = checkpoint_save(f.scratch.folder, 3, &f.content, 1, NULL);
        file_fail_after(0);
        if (status == OK)
            break;
    }
    expect_folders(&f, (const int64_t[]){1, 2, 3, -1});
    save(&f, 4, 1);
    expect_folders(&f, (const int64_t[]){4, -1});
    fixture_release(&f);
}

static enum status use_all(struct fixture *f)
{
    char *path = NULL, *found = NULL;
    struct checkpoint *c = NULL;
    json_t *history = NULL;
    enum status status;
    TRY_GOTO(checkpoint_recover(f->scratch.folder), out);
    TRY_GOTO(checkpoint_save(f->scratch.folder, 2, &f->content, 2, &path), out);
    TRY_GOTO(checkpoint_find(f->scratch.folder, "last", &found), out);
    TRY_GOTO(checkpoint_open(&c, path, CHECKPOINT_QUICK), out);
    TRY_GOTO(checkpoint_log_history(c, &history), out);
    TRY_GOTO(checkpoint_check_model(c, f->golden.model), out);
    TRY_GOTO(checkpoint_read_params(c, f->content.params, f->content.n_params, f->params,
                                    &host_stage, NULL),
             out);
    TRY_GOTO(checkpoint_read_states(c, f->states, N_STATES, &host_stage), out);
out:
    json_decref(history);
    checkpoint_close(c);
    mem_free(path);
    mem_free(found);
    return status;
}

static void running_out_of_memory_anywhere_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct fixture f = {0};
    scratch_init_in_memory(&f.scratch); /* some hundred savings */
    fixture_fill(&f, "gpt2");
    save(&f, 1, 0);
    set_step(&f, 2);
    int64_t n = 1, n_all = 0, live = mem_live();
    /* Once with every later allocation failing too, which says how many there are; then each alone:
     * that one may be of rotation, which only warns. */
    for (int sticky = 1; sticky >= 0; sticky--) {
        for (n = 1; sticky || n < n_all; n = next_failure(n)) {
            mem_fail_after(n, sticky);
            enum status status = use_all(&f);
            mem_fail_after(0, 0);
            assert_int_equal(mem_live(), live);
            if (status == OK && sticky)
                break;
            if (status != OK)
                assert_int_equal(status, ERR_MEMORY);
            if (exists(&f, "checkpoint-2"))
                expect_folders(&f, (const int64_t[]){1, 2, -1});
            else
                expect_folders(&f, (const int64_t[]){1, -1});
            set_step(&f, 2);
        }
        n_all = n;
    }
    assert_true(n > 50);
    expect_last(&f, 2);
    fixture_release(&f);
}

/* ---- killed runs ---- */

static void what_a_dead_run_left_is_put_right(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    char from[SCRATCH_PATH], to[SCRATCH_PATH], name[64];
    save(&f, 5, 0);
    save(&f, 6, 0);
    /* A process that has ended: its id cannot be alive. */
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    snprintf(name, sizeof(name), ".tmp-checkpoint-7-%d/model.safetensors", (int)dead);
    scratch_write_text(&f.scratch, name, "half");
    snprintf(name, sizeof(name), ".tmp-checkpoint-8-%d/x", (int)getpid());
    scratch_write_text(&f.scratch, name, "an earlier process with our id");
    /* Killed between the two renames: the old one is aside. */
    snprintf(name, sizeof(name), ".old-checkpoint-6-%d", (int)dead);
    expect_ok(file_rename(scratch_path(&f.scratch, "checkpoint-6", from),
                          scratch_path(&f.scratch, name, to)));
    /* Killed after them: there are both. */
    snprintf(name, sizeof(name), ".old-checkpoint-5-%d/x", (int)dead);
    scratch_write_text(&f.scratch, name, "x");
    /* Not ours, or of a process that is alive. */
    scratch_write_text(&f.scratch, ".tmp-notes/x", "x");
    snprintf(name, sizeof(name), ".tmp-checkpoint-9-%d/x", (int)getppid());
    scratch_write_text(&f.scratch, name, "x");

    expect_last(&f, 5);
    expect_ok(checkpoint_recover(f.scratch.folder));
    assert_true(exists(&f, ".tmp-notes/x"));
    assert_true(exists(&f, name));
    *strrchr(name, '/') = '\0';
    expect_ok(file_remove_tree(scratch_path(&f.scratch, name, to)));
    expect_folders(&f, (const int64_t[]){5, 6, -1});
    expect_last(&f, 6);
    expect_ok(checkpoint_recover("/no/such/folder"));
    fixture_release(&f);
}

/* Saves for ever; the parent kills it. Each step twice, so that replacing is interrupted too. */
static void save_until_killed(struct fixture *f, int64_t first)
{
    for (int64_t step = first;; step++)
        for (int again = 0; again < 2; again++) {
            set_step(f, step);
            if (checkpoint_save(f->scratch.folder, step, &f->content, 2, NULL) != OK)
                _exit(1);
        }
}

static void kill_9_at_any_moment_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "gpt2");
    struct rng r = {.key = 11};
    int64_t newest = 0;
    save(&f, newest, 0);
    for (int i = 0; i < 30; i++) {
        (void)fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save_until_killed(&f, newest);
        (void)usleep((useconds_t)rng_below(&r, 60000));
        assert_int_equal(kill(child, SIGKILL), 0);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how));
        expect_ok(checkpoint_recover(f.scratch.folder));
        /* Every folder under a final name is good, and one is there. */
        struct pool pool;
        struct checkpoint_list list;
        pool_init(&pool);
        expect_ok(checkpoint_list(&pool, f.scratch.folder, &list));
        assert_in_range(list.n, 1, 3);
        assert_true(list.names[list.n - 1].step >= newest);
        newest = list.names[list.n - 1].step;
        for (size_t k = 0; k < list.n; k++) {
            assert_int_equal(list.names[k].kind, CHECKPOINT_FINISHED);
            const char *folder =
                checkpoint_folder(&pool, f.scratch.folder, CHECKPOINT_FINISHED, list.names[k].step);
            expect_content(&f, folder, list.names[k].step);
        }
        pool_release(&pool);
    }
    fixture_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back_bit_for_bit),
        cmocka_unit_test(the_folder_is_what_other_programs_expect),
        cmocka_unit_test(a_tokenizer_folder_that_is_gone_does_not_cost_the_checkpoint),
        cmocka_unit_test(parameters_of_any_dtype_keep_their_bits),
        cmocka_unit_test(saving_and_reading_need_no_memory_for_the_tensors),
        cmocka_unit_test(the_newest_by_number_is_last),
        cmocka_unit_test(a_later_run_is_newer_whatever_its_steps),
        cmocka_unit_test(rotation_keeps_the_newest_and_always_the_one_just_written),
        cmocka_unit_test(saving_a_step_again_replaces_it),
        cmocka_unit_test(names_are_taken_exactly),
        cmocka_unit_test(a_file_cut_off_anywhere_is_noticed),
        cmocka_unit_test(a_flipped_bit_anywhere_is_noticed),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(want_of_memory_is_not_taken_for_damage),
        cmocka_unit_test(a_state_file_of_another_kind_is_refused),
        cmocka_unit_test(a_checkpoint_of_another_model_or_optimizer_is_refused),
        cmocka_unit_test(a_disk_full_at_any_write_costs_nothing),
        cmocka_unit_test(trouble_with_an_old_checkpoint_does_not_fail_the_new_one),
        cmocka_unit_test(running_out_of_memory_anywhere_is_reported_and_leaks_nothing),
        cmocka_unit_test(what_a_dead_run_left_is_put_right),
        cmocka_unit_test(kill_9_at_any_moment_leaves_a_whole_checkpoint),
    };
    log_set_level(LOG_QUIET);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
