#include "io/coded_matrix.h"

#include "base/alloc.h"

enum { RUN_ELEMS = 1 << 20, PIECE_ELEMS = 16384 };

static int64_t run_blocks(const struct quant_layout *l)
{
    return MAX(RUN_ELEMS / quant_block(l), (int64_t)1);
}

static int64_t most_blocks(const struct quant_layout *l)
{
    int64_t most = 0;
    for (int i = 0; i < l->n_pieces; i++)
        most = MAX(most, quant_piece(l, i).n_blocks);
    return most;
}

int64_t coded_matrix_bytes(const struct quant_layout *l)
{
    struct format_part part[QUANT_PARTS];
    int n = quant_parts(l, part);
    int64_t n_elems = run_blocks(l) * quant_block(l) + most_blocks(l), n_bytes = 0;
    for (int i = 0; i < n; i++)
        n_bytes += shape_elems(&part[i].shape) * dtype_size(part[i].dtype);
    return n_bytes + n_elems * (int64_t)sizeof(float);
}

static enum status allocate(struct coded_matrix *m)
{
    for (int i = 0; i < m->n_parts; i++) {
        unsigned char *memory;
        TRY(mem_try_array(&memory, (size_t)shape_elems(&m->part[i].shape) + 1,
                          (size_t)dtype_size(m->part[i].dtype)));
        m->memory[i] = memory;
    }
    TRY(mem_try_array(&m->scales, (size_t)most_blocks(&m->layout) + 1, sizeof(float)));
    return mem_try_array(&m->run, (size_t)(m->run_blocks * quant_block(&m->layout)), sizeof(float));
}

enum status coded_matrix_init(struct coded_matrix *m, const struct quant_layout *l)
{
    *m = (struct coded_matrix){.layout = *l, .run_blocks = run_blocks(l)};
    m->n_parts = quant_parts(l, m->part);
    enum status status = allocate(m);
    if (status != OK)
        coded_matrix_release(m);
    else
        m->data = quant_data(l, m->memory);
    return status;
}

void coded_matrix_release(struct coded_matrix *m)
{
    for (int i = 0; i < m->n_parts; i++)
        mem_free(m->memory[i]);
    mem_free(m->scales);
    mem_free(m->run);
    *m = (struct coded_matrix){0};
}

/* Blocks of one piece that threads share. */
struct blocks {
    const struct coded_matrix *m;
    int i_piece;
    int64_t first; /* block that is item 0 */
    float *x;      /* its elements */
};

static void encode_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct blocks *b = job;
    (void)thread;
    quant_encode(&b->m->layout, b->i_piece, b->first + first, last - first,
                 b->x + first * quant_block(&b->m->layout), &b->m->data, b->m->scales);
}

static void encode_groups(const void *job, int64_t first, int64_t last, int thread)
{
    const struct blocks *b = job;
    (void)thread;
    quant_encode_scales(&b->m->layout, b->i_piece, first, last - first, b->m->scales, &b->m->data);
}

enum status coded_matrix_fill(struct coded_matrix *m, int i_piece, coded_source *source, void *user,
                              struct team *team)
{
    struct quant_piece p = quant_piece(&m->layout, i_piece);
    int64_t block = quant_block(&m->layout), grain = MAX(PIECE_ELEMS / block, (int64_t)1);
    for (int64_t b = 0; b < p.n_blocks; b += m->run_blocks) {
        struct blocks job = {m, i_piece, b, m->run};
        int64_t n = MIN(m->run_blocks, p.n_blocks - b);
        TRY(source(user, i_piece, b * block, MIN(n * block, p.n_elems - b * block), m->run));
        team_run(team, n, grain, encode_some, &job);
    }
    quant_begin_scales(&m->layout, i_piece, m->scales, &m->data);
    team_run(team, p.n_groups, PIECE_ELEMS / SCALE_GROUP, encode_groups,
             &(struct blocks){.m = m, .i_piece = i_piece});
    return OK;
}

static void decode_some(const void *job, int64_t first, int64_t last, int thread)
{
    const struct blocks *b = job;
    (void)thread;
    quant_decode(&b->m->layout, b->i_piece, first, last - first, &b->m->data,
                 b->x + first * quant_block(&b->m->layout));
}

void coded_matrix_decode(const struct coded_matrix *m, float *x, struct team *team)
{
    int64_t grain = MAX(PIECE_ELEMS / quant_block(&m->layout), (int64_t)1);
    for (int i = 0; i < m->layout.n_pieces; i++) {
        struct quant_piece p = quant_piece(&m->layout, i);
        struct blocks job = {m, i, 0, x + p.first_elem};
        team_run(team, p.n_blocks, grain, decode_some, &job);
    }
}
