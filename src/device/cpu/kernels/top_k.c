/* top_k.c: which elements of a row are among its k largest. The k-th largest is found bit by bit,
 * by counting: in time that grows with the row, without room for a sorted copy. */
#include <string.h>

#include "device/cpu/support/block.h"
#include "device/cpu/support/ref.h"

enum { RANK_BITS = 64 };

/* A number that is larger the larger x[i] is; what is not a number comes last. */
static uint64_t rank_at(const struct tensor *x, int64_t i)
{
    double v = ref_get(x, i) + 0.0; /* the zeros are equal */
    uint64_t bits;
    if (v != v)
        return 0;
    memcpy(&bits, &v, sizeof(bits));
    return bits >> (RANK_BITS - 1) ? ~bits : bits | UINT64_C(1) << (RANK_BITS - 1);
}

static int64_t count_from(const struct tensor *x, int64_t first, int64_t n, uint64_t least)
{
    int64_t count = 0;
    for (int64_t i = first; i < first + n; i++)
        count += rank_at(x, i) >= least;
    return count;
}

/* The rank of the k-th largest of n: the largest one that k elements have or exceed. */
static uint64_t kth_rank(const struct tensor *x, int64_t first, int64_t n, int64_t k)
{
    uint64_t rank = 0;
    for (int b = RANK_BITS - 1; b >= 0; b--) {
        uint64_t higher = rank | UINT64_C(1) << b;
        if (count_from(x, first, n, higher) >= k)
            rank = higher;
    }
    return rank;
}

/* Of those equal to the k-th largest, the ones further to the front are taken. */
static void mask_row(const struct op_call *c, int64_t first, int64_t n, int64_t k)
{
    const struct tensor *x = &c->in[0];
    uint64_t least = kth_rank(x, first, n, k);
    int64_t left = least == UINT64_MAX ? k : k - count_from(x, first, n, least + 1);
    for (int64_t i = first; i < first + n; i++) {
        uint64_t rank = rank_at(x, i);
        bool taken = k > 0 && (rank > least || (rank == least && left-- > 0));
        ref_set(&c->out[0], i, taken ? 1.0 : 0.0);
    }
}

static void mask_rows(const void *job, int64_t first, int64_t last, int thread)
{
    const struct op_call *c = job;
    int64_t n = shape_last(&c->in[0].shape);
    (void)thread;
    for (int64_t row = first; row < last; row++)
        mask_row(c, row * n, n, call_int(c, 0));
}

static enum status top_k_mask_shared(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape);
    if (n > 0)
        cpu_loop(x, shape_rows(&c->in[0].shape), n * RANK_BITS, mask_rows, c);
    return OK;
}

/* By the words: those that fewer than k others come before; larger ones come first, of equal ones
 * the one further to the front. */
static bool comes_before(const struct tensor *x, int64_t i, int64_t j)
{
    double a = ref_get(x, i), b = ref_get(x, j);
    if (a > b || (a == a && b != b))
        return true;
    return !(b > a || (b == b && a != a)) && i < j;
}

static enum status top_k_mask_reference(const struct kernel_ctx *x, const struct op_call *c)
{
    int64_t n = shape_last(&c->in[0].shape), k = call_int(c, 0);
    (void)x;
    for (int64_t i = 0; i < shape_elems(&c->in[0].shape); i++) {
        int64_t before = 0, row = i / n * n;
        for (int64_t j = row; j < row + n && before < k; j++)
            before += comes_before(&c->in[0], j, i);
        ref_set(&c->out[0], i, before < k ? 1.0 : 0.0);
    }
    return OK;
}

const struct kernel cpu_kernels_top_k_mask[] = {
    {"shared", NULL, NULL, top_k_mask_shared},
    {"reference", NULL, NULL, top_k_mask_reference},
    KERNEL_END,
};
