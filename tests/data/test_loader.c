/* Batches: the order of samples, the cursor, the ring, ranks, and errors out of the thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/loader.h"
#include "data/permutation.h"
#include "data/windows.h"
#include "support/scratch.h"

enum { SEQ = 7, VOCAB = 60000 };

/* A token file whose ids are their own positions, so that every window can be recognised. */
struct fixture {
    struct scratch scratch;
    char path[SCRATCH_PATH];
    struct source *source;
    struct windows *windows;
    struct dataset data;
};

static void fixture_open(struct fixture *f, int64_t n_tokens)
{
    scratch_init(&f->scratch);
    (void)scratch_path(&f->scratch, "tokens.bin", f->path);
    struct token_writer *w;
    assert_int_equal(token_writer_open(&w, f->path, TOKEN_FORMAT_LLMC, VOCAB), OK);
    for (int32_t i = 0; i < n_tokens; i++)
        assert_int_equal(token_writer_add(w, &i, NULL, 1), OK);
    assert_int_equal(token_writer_commit(w), OK);
    const char *paths[] = {f->path};
    struct source_options options = {.paths = paths, .n_paths = 1, .vocab_size = VOCAB};
    assert_int_equal(source_open(&f->source, &options), OK);
    assert_int_equal(source_n_tokens(f->source), n_tokens);
    assert_int_equal(windows_open(&f->windows, f->source, SEQ), OK);
    f->data = windows_dataset(f->windows);
}

static void fixture_close(struct fixture *f)
{
    windows_free(f->windows);
    source_free(f->source);
    scratch_release(&f->scratch);
}

static struct batch sequences(int64_t n_rows)
{
    struct batch b = {0};
    windows_describe(&b, n_rows, SEQ, false);
    return b;
}

static struct loader_options plain_options(void)
{
    return (struct loader_options){
        .batch = sequences(3), .shuffle = 1, .seed = 42, .n_ranks = 1, .n_slots = 2};
}

struct running {
    struct loader *loader;
    void *ring;
};

static struct running start(const struct dataset *data, const struct loader_options *options,
                            const struct loader_cursor *cursor)
{
    struct running r = {0};
    size_t n_bytes = loader_ring_bytes(options);
    assert_true(n_bytes > 0 && n_bytes % 64 == 0);
    r.ring = aligned_alloc(64, n_bytes);
    assert_int_equal(loader_open(&r.loader, data, options), OK);
    if (cursor)
        assert_int_equal(loader_set_cursor(r.loader, cursor), OK);
    assert_int_equal(loader_start(r.loader, r.ring, n_bytes), OK);
    return r;
}

static void stop(struct running *r)
{
    loader_free(r->loader);
    free(r->ring);
}

static struct batch next_batch(struct running *r)
{
    struct batch b;
    assert_int_equal(loader_next(r->loader, &b), OK);
    return b;
}

static const int32_t *ids_of(const struct batch *b, const char *name)
{
    const struct batch_item *item = batch_item(b, name);
    assert_non_null(item);
    return item->tensor.data;
}

/* Takes a batch, checks that each row is a whole window, and writes the windows' numbers. */
static void take(struct running *r, const struct loader_options *o, int64_t *windows)
{
    struct batch b = next_batch(r);
    const int32_t *tokens = ids_of(&b, "tokens"), *targets = ids_of(&b, "targets");
    assert_int_equal(batch_rows(&b), batch_rows(&o->batch));
    assert_int_equal(b.n_valid, batch_rows(&b) * SEQ);
    for (int64_t row = 0; row < batch_rows(&b); row++) {
        int32_t first = tokens[row * SEQ];
        assert_int_equal(first % (SEQ + 1), 0);
        windows[row] = first / (SEQ + 1);
        for (int64_t i = 0; i < SEQ; i++) {
            assert_int_equal(tokens[row * SEQ + i], first + i);
            assert_int_equal(targets[row * SEQ + i], first + i + 1);
        }
    }
    loader_release_slot(r->loader);
}

static void a_permutation_hits_every_place_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 300; n++) {
        uint8_t seen[300] = {0};
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = permute(7, n, n, i);
            assert_true(to < n);
            assert_int_equal(seen[to]++, 0);
        }
    }
    uint64_t large = ((uint64_t)1 << 40) + 12345;
    assert_true(permute(1, 2, large, large - 1) < large);
    assert_true(permute(1, 2, large, 0) != permute(1, 3, large, 0));
}

static void every_window_comes_once_an_epoch(void **state)
{
    (void)state;
    struct fixture f;
    enum { WINDOWS = 36 };
    fixture_open(&f, WINDOWS * (SEQ + 1) + 5);
    struct loader_options o = plain_options();
    struct running r = start(&f.data, &o, NULL);
    assert_int_equal(loader_n_samples(r.loader), WINDOWS);
    assert_int_equal(loader_n_batches(r.loader), WINDOWS / 3);
    int64_t order[3][WINDOWS];
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[WINDOWS] = {0};
        for (int b = 0; b < WINDOWS / 3; b++)
            take(&r, &o, &order[epoch][3 * b]);
        for (int i = 0; i < WINDOWS; i++)
            assert_int_equal(seen[order[epoch][i]]++, 0);
    }
    assert_memory_not_equal(order[0], order[1], sizeof(order[0]));
    assert_memory_not_equal(order[1], order[2], sizeof(order[0]));
    stop(&r);
    fixture_close(&f);
}

static void without_shuffling_windows_come_in_order(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 10 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.shuffle = 0;
    struct running r = start(&f.data, &o, NULL);
    assert_int_equal(loader_n_batches(r.loader), 3); /* the tenth is dropped */
    for (int epoch = 0; epoch < 2; epoch++)
        for (int64_t b = 0; b < 3; b++) {
            int64_t windows[3];
            take(&r, &o, windows);
            for (int64_t i = 0; i < 3; i++)
                assert_int_equal(windows[i], 3 * b + i);
        }
    stop(&r);
    fixture_close(&f);
}

static void a_resumed_run_continues_as_if_not_interrupted(void **state)
{
    (void)state;
    struct fixture f;
    enum { BATCHES = 25 };
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    struct loader_cursor cursors[BATCHES + 1];
    int64_t whole[BATCHES][3];
    struct running r = start(&f.data, &o, NULL);
    for (int b = 0; b < BATCHES; b++) {
        loader_get_cursor(r.loader, &cursors[b]);
        take(&r, &o, whole[b]);
    }
    loader_get_cursor(r.loader, &cursors[BATCHES]);
    stop(&r);
    for (int64_t slots = 1; slots <= 5; slots += 2)
        for (int from = 0; from < BATCHES; from++) {
            o.n_slots = slots;
            r = start(&f.data, &o, &cursors[from]);
            for (int b = from; b < BATCHES; b++) {
                int64_t windows[3];
                struct loader_cursor now;
                take(&r, &o, windows);
                assert_memory_equal(windows, whole[b], sizeof(windows));
                loader_get_cursor(r.loader, &now);
                assert_memory_equal(&now, &cursors[b + 1], sizeof(now));
            }
            stop(&r);
        }
    fixture_close(&f);
}

static void a_batch_that_was_not_released_comes_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.n_slots = 4;
    struct running r = start(&f.data, &o, NULL);
    int64_t first[3], again[3];
    take(&r, &o, first);
    struct batch batch = next_batch(&r);
    int32_t expected = ids_of(&batch, "tokens")[0];
    loader_stop(r.loader);
    assert_int_equal(loader_start(r.loader, r.ring, loader_ring_bytes(&o)), OK);
    take(&r, &o, again);
    assert_int_equal(again[0] * (SEQ + 1), expected);
    stop(&r);
    fixture_close(&f);
}

static void a_run_can_go_on_with_another_batch_size(void **state)
{
    (void)state;
    struct fixture f;
    enum { WINDOWS = 12 };
    fixture_open(&f, WINDOWS * (SEQ + 1));
    struct loader_options o = plain_options();
    struct running r = start(&f.data, &o, NULL);
    int seen[WINDOWS] = {0};
    int64_t windows[6];
    for (int b = 0; b < 2; b++) {
        take(&r, &o, windows);
        for (int i = 0; i < 3; i++)
            seen[windows[i]]++;
    }
    struct loader_cursor cursor;
    loader_get_cursor(r.loader, &cursor);
    stop(&r);
    o.batch = sequences(6);
    r = start(&f.data, &o, &cursor);
    take(&r, &o, windows);
    for (int i = 0; i < 6; i++)
        seen[windows[i]]++;
    for (int i = 0; i < WINDOWS; i++)
        assert_int_equal(seen[i], 1);
    stop(&r);
    fixture_close(&f);
}

static void ranks_share_an_epoch_without_overlap(void **state)
{
    (void)state;
    struct fixture f;
    enum { WINDOWS = 24, RANKS = 2 };
    fixture_open(&f, WINDOWS * (SEQ + 1));
    int seen[WINDOWS] = {0};
    int64_t by_rank[RANKS][WINDOWS / RANKS], alone[WINDOWS];
    for (int64_t rank = 0; rank < RANKS; rank++) {
        struct loader_options o = plain_options();
        o.rank = rank;
        o.n_ranks = RANKS;
        struct running r = start(&f.data, &o, NULL);
        assert_int_equal(loader_n_batches(r.loader), WINDOWS / RANKS / 3);
        for (int b = 0; b < WINDOWS / RANKS / 3; b++)
            take(&r, &o, &by_rank[rank][3 * b]);
        stop(&r);
        for (int i = 0; i < WINDOWS / RANKS; i++)
            seen[by_rank[rank][i]]++;
    }
    for (int i = 0; i < WINDOWS; i++)
        assert_int_equal(seen[i], 1);
    /* and together they make the batches that one rank with twice the rows makes */
    struct loader_options o = plain_options();
    o.batch = sequences(6);
    struct running r = start(&f.data, &o, NULL);
    for (int b = 0; b < WINDOWS / 6; b++)
        take(&r, &o, &alone[6 * b]);
    stop(&r);
    for (int i = 0; i < WINDOWS; i++)
        assert_int_equal(alone[i], by_rank[i % RANKS][i / RANKS]);
    fixture_close(&f);
}

static void training_and_evaluation_windows_are_disjoint(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.split = SPLIT_TRAIN;
    o.val_set_size = 0.1;
    struct running r = start(&f.data, &o, NULL);
    assert_int_equal(loader_n_samples(r.loader), 18);
    for (int b = 0; b < 12; b++) {
        int64_t windows[3];
        take(&r, &o, windows);
        for (int i = 0; i < 3; i++)
            assert_true(windows[i] < 18);
    }
    stop(&r);
    o.split = SPLIT_EVAL;
    o.val_set_size = 4;
    o.batch = sequences(2);
    r = start(&f.data, &o, NULL);
    assert_int_equal(loader_n_samples(r.loader), 4);
    for (int b = 0; b < 4; b++) {
        int64_t windows[2];
        take(&r, &o, windows);
        assert_true(windows[0] >= 16 && windows[1] >= 16);
    }
    stop(&r);
    fixture_close(&f);
}

static void the_last_batch_can_be_filled_up_with_rows_that_do_not_count(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 4 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.shuffle = 0;
    o.keep_last = 1;
    struct running r = start(&f.data, &o, NULL);
    assert_int_equal(loader_n_batches(r.loader), 2);
    for (int epoch = 0; epoch < 3; epoch++) {
        int64_t windows[3];
        take(&r, &o, windows);
        assert_int_equal(windows[0], 0);
        struct batch batch = next_batch(&r);
        const int32_t *tokens = ids_of(&batch, "tokens"), *targets = ids_of(&batch, "targets");
        assert_int_equal(batch.n_valid, SEQ);
        assert_int_equal(tokens[0], 3 * (SEQ + 1));
        for (int i = SEQ; i < 3 * SEQ; i++) {
            assert_int_equal(tokens[i], 0);
            assert_int_equal(targets[i], LABEL_IGNORED);
        }
        loader_release_slot(r.loader);
    }
    stop(&r);
    fixture_close(&f);
}

static void a_file_cut_short_under_a_run_is_bad_data(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.shuffle = 0;
    assert_int_equal(truncate(f.path, 1024), 0);
    struct running r = start(&f.data, &o, NULL);
    struct batch batch;
    assert_int_equal(loader_next(r.loader, &batch), ERR_DATA);
    assert_non_null(strstr(status_message(), "shorter than it was"));
    stop(&r);
    fixture_close(&f);
}

static void several_batches_can_be_held_but_not_more_than_slots(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.shuffle = 0;
    struct running r = start(&f.data, &o, NULL);
    struct batch a = next_batch(&r), b = next_batch(&r), c;
    assert_int_equal(loader_next(r.loader, &c), ERR_INTERNAL);
    assert_int_equal(ids_of(&a, "tokens")[0], 0);
    assert_int_equal(ids_of(&b, "tokens")[0], 3 * (SEQ + 1));
    loader_release_slot(r.loader);
    loader_release_slot(r.loader);
    int64_t windows[3];
    take(&r, &o, windows);
    assert_int_equal(windows[0], 6);
    stop(&r);
    fixture_close(&f);
}

static void stopping_works_while_the_ring_is_full_or_untouched(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    for (int trial = 0; trial < 50; trial++) {
        o.n_slots = 1 + trial % 3;
        struct running r = start(&f.data, &o, NULL);
        if (trial % 2) {
            struct timespec pause = {.tv_nsec = 1000000}; /* long enough to fill the ring */
            (void)nanosleep(&pause, NULL);
        }
        stop(&r);
    }
    fixture_close(&f);
}

static void nothing_is_allocated_while_running(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    struct running r = start(&f.data, &o, NULL);
    int64_t windows[3];
    mem_fail_after(1, 1);
    for (int b = 0; b < 30; b++)
        take(&r, &o, windows);
    mem_fail_after(0, 0);
    stop(&r);
    fixture_close(&f);
}

static void an_error_in_the_thread_comes_out_of_next(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    o.shuffle = 0;
    struct running r = start(&f.data, &o, NULL);
    int64_t windows[3];
    take(&r, &o, windows);
    /* The file changes under the mapping: position 100 now holds a token outside. */
    FILE *file = fopen(f.path, "r+b");
    assert_non_null(file);
    uint16_t token = 65000;
    assert_int_equal(fseek(file, 1024 + 2 * 100, SEEK_SET), 0);
    assert_int_equal(fwrite(&token, 2, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    enum status status = OK;
    for (int b = 0; b < 20 && status == OK; b++) {
        struct batch batch;
        status = loader_next(r.loader, &batch);
        if (status == OK)
            loader_release_slot(r.loader);
    }
    assert_int_equal(status, ERR_DATA);
    assert_non_null(strstr(status_message(), "token 65000 at position 100"));
    assert_non_null(strstr(status_message(), f.path));
    stop(&r);
    fixture_close(&f);
}

/* Rows of a table: f64 features [2, 2], and a class of a byte. Sample i has i in all of them; odd
 * ones have no label. */
enum { TABLE_ROWS = 10 };

static enum status read_table(void *user, int64_t i, struct batch *b, int64_t row)
{
    (void)user;
    double *features = batch_row(b, 0, row);
    for (int k = 0; k < 4; k++)
        features[k] = (double)i;
    *(uint8_t *)batch_row(b, 1, row) = (uint8_t)i;
    b->n_valid += i % 2 == 0;
    return OK;
}

static void blank_table(void *user, struct batch *b, int64_t row)
{
    (void)user;
    *(double *)batch_row(b, 0, row) = -1;
    *(uint8_t *)batch_row(b, 1, row) = 255;
}

static void any_tensors_make_a_batch(void **state)
{
    (void)state;
    struct dataset table = {.n_samples = TABLE_ROWS,
                            .noun = "rows",
                            .size = 4,
                            .size_noun = "features",
                            .read = read_table,
                            .blank = blank_table};
    struct loader_options o = {.keep_last = 1, .n_ranks = 1, .n_slots = 3};
    batch_add(&o.batch, "features", DTYPE_F64, shape_of(3, INT64_C(4), INT64_C(2), INT64_C(2)));
    batch_add(&o.batch, "class", DTYPE_U8, shape_of(1, INT64_C(4)));
    assert_int_equal(loader_ring_bytes(&o), 3 * (128 + 64));
    struct running r = start(&table, &o, NULL);
    for (int64_t i = 0; i < 3 * TABLE_ROWS; i++) {
        struct batch b = next_batch(&r);
        int64_t at = i % 3 * 4;
        assert_int_equal(b.n_valid, at == 8 ? 1 : 2);
        for (int64_t row = 0; row < 4; row++) {
            bool is_blank = at + row >= TABLE_ROWS;
            const double *features = batch_row(&b, 0, row);
            assert_true(features[0] == (is_blank ? -1 : (double)(at + row)));
            assert_int_equal(*(uint8_t *)batch_row(&b, 1, row), is_blank ? 255 : at + row);
        }
        loader_release_slot(r.loader);
    }
    stop(&r);
    batch_add(&o.batch, "weight", DTYPE_F32, shape_of(1, INT64_C(3)));
    assert_int_equal(loader_ring_bytes(&o), 0); /* a row is missing in it */
    table.n_samples = 2;
    o = (struct loader_options){.batch = sequences(3), .n_ranks = 1, .n_slots = 1};
    struct loader *l;
    assert_int_equal(loader_open(&l, &table, &o), ERR_DATA);
    assert_non_null(strstr(status_message(), "2 rows of 4 features"));
}

static void too_little_data_says_what_would_help(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 2 * (SEQ + 1));
    struct loader *l;
    struct loader_options o = plain_options();
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_DATA);
    assert_non_null(strstr(status_message(), "smaller batch"));
    assert_non_null(strstr(status_message(), "a shorter sequence length"));
    struct windows *w;
    assert_int_equal(windows_open(&w, f.source, 100), ERR_DATA);
    assert_non_null(strstr(status_message(), "16 tokens"));
    assert_int_equal(windows_open(&w, f.source, 0), ERR_CONFIG);
    o = plain_options();
    o.batch = sequences(1);
    o.split = SPLIT_TRAIN;
    o.val_set_size = 2;
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_DATA);
    assert_non_null(strstr(status_message(), "val_set_size"));
    o.split = SPLIT_EVAL;
    o.val_set_size = 0;
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_CONFIG);
    o.val_set_size = -1;
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_CONFIG);
    o = plain_options();
    o.n_slots = 0;
    assert_int_equal(loader_ring_bytes(&o), 0);
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_CONFIG);
    o = plain_options();
    o.rank = 1;
    assert_int_equal(loader_open(&l, &f.data, &o), ERR_CONFIG);
    assert_null(l);
    fixture_close(&f);
}

static void a_cursor_of_other_data_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    struct loader *l;
    assert_int_equal(loader_open(&l, &f.data, &o), OK);
    struct loader_cursor good, bad;
    loader_get_cursor(l, &good);
    bad = good;
    bad.n_samples--;
    assert_int_equal(loader_set_cursor(l, &bad), ERR_CHECKPOINT);
    bad = good;
    bad.seed++;
    assert_int_equal(loader_set_cursor(l, &bad), ERR_CHECKPOINT);
    bad = good;
    bad.next_sample = 1000;
    assert_int_equal(loader_set_cursor(l, &bad), ERR_CHECKPOINT);
    bad = good;
    bad.epoch = -1;
    assert_int_equal(loader_set_cursor(l, &bad), ERR_CHECKPOINT);
    assert_int_equal(loader_set_cursor(l, &good), OK);
    size_t n_bytes = loader_ring_bytes(&o);
    void *ring = aligned_alloc(64, n_bytes);
    assert_int_equal(loader_start(l, ring, n_bytes - 1), ERR_INTERNAL);
    free(ring);
    loader_free(l);
    fixture_close(&f);
}

static void running_out_of_memory_while_opening_is_a_clean_error(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, 20 * (SEQ + 1));
    struct loader_options o = plain_options();
    for (int64_t n = 1;; n++) {
        int64_t before = mem_live();
        struct loader *l = NULL;
        struct windows *w;
        mem_fail_after(n, 0);
        enum status status = windows_open(&w, f.source, SEQ);
        if (status == OK)
            status = loader_open(&l, &f.data, &o);
        mem_fail_after(0, 0);
        loader_free(l);
        windows_free(w);
        assert_int_equal(mem_live(), before);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permutation_hits_every_place_once),
        cmocka_unit_test(every_window_comes_once_an_epoch),
        cmocka_unit_test(without_shuffling_windows_come_in_order),
        cmocka_unit_test(a_resumed_run_continues_as_if_not_interrupted),
        cmocka_unit_test(a_batch_that_was_not_released_comes_again),
        cmocka_unit_test(a_run_can_go_on_with_another_batch_size),
        cmocka_unit_test(ranks_share_an_epoch_without_overlap),
        cmocka_unit_test(training_and_evaluation_windows_are_disjoint),
        cmocka_unit_test(the_last_batch_can_be_filled_up_with_rows_that_do_not_count),
        cmocka_unit_test(a_file_cut_short_under_a_run_is_bad_data),
        cmocka_unit_test(several_batches_can_be_held_but_not_more_than_slots),
        cmocka_unit_test(stopping_works_while_the_ring_is_full_or_untouched),
        cmocka_unit_test(nothing_is_allocated_while_running),
        cmocka_unit_test(an_error_in_the_thread_comes_out_of_next),
        cmocka_unit_test(any_tensors_make_a_batch),
        cmocka_unit_test(too_little_data_says_what_would_help),
        cmocka_unit_test(a_cursor_of_other_data_is_refused),
        cmocka_unit_test(running_out_of_memory_while_opening_is_a_clean_error),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
