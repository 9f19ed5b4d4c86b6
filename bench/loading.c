/* loading.c: what it costs to fill a model: numbers drawn, coded, read from a file.
 *
 *     bench_loading [THREADS [MILLIONS [NAME]]]      1 and 64 unless told; ways that begin so
 *
 * One line per way: nanoseconds of a processor that an element takes, and the hash of what came
 * out, so that two builds can be compared for their bits too. The file that is read lies in TMPDIR
 * or /tmp and is in the page cache when the clock runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "engine/coded_params.h"
#include "io/file_hash.h"
#include "io/weights.h"
#include "model/init.h"

enum { COLUMNS = 4096, REPEATS = 9 };

struct bench {
    struct team *team;
    int n_threads;
    int64_t n_rows;
    const char *only;
    char folder[64];
    struct model_param p;
    void *dst;            /* room for f32 */
    double begun, took_s; /* of the last run */
    uint64_t hash;
};

/* Of all threads, so that other programs do not show. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(struct bench *b)
{
    b->begun = now();
}

static void end(struct bench *b)
{
    b->took_s = now() - b->begun;
}

static enum status draw_as(struct bench *b, enum dtype dtype)
{
    int64_t n = shape_elems(&b->p.shape);
    begin(b);
    TRY(init_param(&b->p, 7, dtype, 0, n, b->dst, b->team));
    end(b);
    b->hash = file_hash_bytes(b->dst, (size_t)(n * dtype_size(dtype)));
    return OK;
}

static enum status draw_f32(struct bench *b)
{
    return draw_as(b, DTYPE_F32);
}

static enum status draw_bf16(struct bench *b)
{
    return draw_as(b, DTYPE_BF16);
}

static enum status spread_f32(struct bench *b)
{
    b->p.init = INIT_UNIFORM;
    enum status status = draw_as(b, DTYPE_F32);
    b->p.init = INIT_NORMAL;
    return status;
}

static enum status code(struct bench *b, enum block_code k, bool nested, bool from_file)
{
    struct weights *w = NULL;
    struct coded_matrix m;
    b->p.quantization = (struct quantization){k, nested};
    enum status status = from_file ? weights_open(&w, b->folder, &b->p, 1) : OK;
    const struct coded_origin o = {.weights = w, .seed = 7, .team = b->team};
    begin(b);
    if (status == OK)
        status = coded_param_make(&m, &b->p, &o);
    end(b);
    if (status == OK) {
        b->hash = 0;
        for (int i = 0; i < m.n_parts; i++)
            b->hash =
                b->hash * 31 + file_hash_bytes(m.memory[i], (size_t)(shape_elems(&m.part[i].shape) *
                                                                     dtype_size(m.part[i].dtype)));
        coded_matrix_release(&m);
    }
    weights_close(w);
    b->p.quantization = (struct quantization){0};
    return status;
}

static enum status draw_nf4(struct bench *b)
{
    return code(b, CODE_NF4, false, false);
}

static enum status draw_nf4_nested(struct bench *b)
{
    return code(b, CODE_NF4, true, false);
}

static enum status draw_int8(struct bench *b)
{
    return code(b, CODE_INT8, false, false);
}

static enum status read_nf4_nested(struct bench *b)
{
    return code(b, CODE_NF4, true, true);
}

static enum status read_as(struct bench *b, enum dtype dtype)
{
    struct weights *w;
    struct tensor to = {.dtype = dtype, .shape = b->p.shape, .data = b->dst};
    TRY(weights_open(&w, b->folder, &b->p, 1));
    begin(b);
    enum status status = weights_read(w, 0, &to, b->team);
    end(b);
    weights_close(w);
    b->hash = file_hash_bytes(b->dst, (size_t)tensor_bytes(&to));
    return status;
}

static enum status read_f32(struct bench *b)
{
    return read_as(b, DTYPE_F32);
}

static enum status read_bf16(struct bench *b)
{
    return read_as(b, DTYPE_BF16);
}

static enum status read_f16(struct bench *b)
{
    return read_as(b, DTYPE_F16);
}

static const struct {
    const char *name;
    enum status (*run)(struct bench *b);
} ways[] = {
    {"draw f32", draw_f32},
    {"draw bf16", draw_bf16},
    {"draw uniform f32", spread_f32},
    {"draw nf4", draw_nf4},
    {"draw nf4, double quantisation", draw_nf4_nested},
    {"draw int8", draw_int8},
    {"read bf16 as f32", read_f32},
    {"read bf16 as bf16", read_bf16},
    {"read bf16 as f16", read_f16},
    {"read bf16 as nf4, double quantisation", read_nf4_nested},
};

static enum status save(const struct bench *b)
{
    struct tensor t = {.dtype = DTYPE_F32, .shape = b->p.shape, .data = b->dst};
    const struct weights_save_options o = {.dtype = DTYPE_BF16};
    return weights_save(b->folder, &b->p, 1, &t, &host_stage, &o);
}

static enum status measure(struct bench *b)
{
    double n = (double)shape_elems(&b->p.shape);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        double best = 1e9;
        if (i > 0 && strncmp(ways[i].name, b->only, strlen(b->only)) != 0)
            continue;
        for (int r = 0; r < REPEATS; r++) {
            TRY(ways[i].run(b));
            best = MIN(best, b->took_s);
        }
        (void)printf("%-40s %7.3f ns   %016llx\n", ways[i].name, 1e9 * best / n,
                     (unsigned long long)b->hash);
        if (i == 0)
            TRY(save(b));
    }
    return OK;
}

int main(int argc, char **argv)
{
    static const struct hf_piece piece = {"w.weight", 0};
    struct bench b = {.n_threads = argc > 1 ? atoi(argv[1]) : 1};
    b.only = argc > 3 ? argv[3] : "";
    struct hf_piece own = piece;
    const char *under = getenv("TMPDIR");
    enum status status;
    b.n_rows = (int64_t)(argc > 2 ? atoi(argv[2]) : 64) * 1000000 / COLUMNS;
    own.rows = b.n_rows;
    b.p = (struct model_param){.name = "layers.0.up.weight",
                               .shape = shape_of(2, b.n_rows, (int64_t)COLUMNS),
                               .init = INIT_NORMAL,
                               .std = 0.02,
                               .bound = 0.02,
                               .pieces = &own,
                               .n_pieces = 1};
    (void)snprintf(b.folder, sizeof(b.folder), "%s/snug_loading_XXXXXX", under ? under : "/tmp");
    if (!mkdtemp(b.folder))
        return 1;
    b.dst = mem_alloc((size_t)(4 * shape_elems(&b.p.shape)));
    TRY_GOTO(b.dst ? OK : ERR_MEMORY, out);
    TRY_GOTO(team_new(&b.team, b.n_threads), out);
    TRY_GOTO(measure(&b), out);
out:
    if (status != OK)
        (void)fprintf(stderr, "%s\n", status_message());
    team_free(b.team);
    mem_free(b.dst);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", b.folder);
    (void)unlink(path);
    (void)rmdir(b.folder);
    return status == OK ? 0 : 1;
}
