/* gemm_cuda.c: the matrix products of training steps on a GPU: the library's first choice of an
 * algorithm beside the fastest a search finds (compile: max-autotune), as shares of what a large
 * square product reaches.
 *
 *     bench_gemm_cuda [SUBSTRING]       only the models whose name contains SUBSTRING
 *
 * A linear layer makes three products in bf16: fwd Y = X W^T, dx = dY W, dw = dY^T X. Bias and
 * residual are part of fwd where the model has them. The head is one chunk of the loss.
 */
#include <stdio.h>
#include <string.h>

#include "device/cuda/products/gemm_search.h"
#include "device/device.h"

enum product { FWD, DX, DW };
static const char *const product_names[] = {"fwd", "dx", "dw"};

struct layer {
    const char *name;
    int64_t n_in, n_out;
    int times; /* in the model */
    bool bias, residual;
};

enum { LAYERS_MOST = 5 };

struct model {
    const char *name;
    int64_t rows, head_rows;
    enum dtype gradients; /* of weights */
    struct layer layers[LAYERS_MOST];
};

static const struct model models[] = {
    {"gpt2-124m B32",
     32768,
     4096,
     DTYPE_F32,
     {{"qkv", 768, 2304, 12, true, false},
      {"proj", 768, 768, 12, true, true},
      {"up", 768, 3072, 12, true, false},
      {"down", 3072, 768, 12, true, true},
      {"head", 768, 50304, 8, false, false}}},
    {"gpt2-1558m B8",
     8192,
     2048,
     DTYPE_F32,
     {{"qkv", 1600, 4800, 48, true, false},
      {"proj", 1600, 1600, 48, true, true},
      {"up", 1600, 6400, 48, true, false},
      {"down", 6400, 1600, 48, true, true},
      {"head", 1600, 50304, 4, false, false}}},
    {"llama-1b B8",
     16384,
     4096,
     DTYPE_F32,
     {{"qkv", 2048, 2560, 22, false, false},
      {"proj", 2048, 2048, 22, false, true},
      {"gate/up", 2048, 11264, 22, false, false},
      {"down", 5632, 2048, 22, false, true},
      {"head", 2048, 32000, 4, false, false}}},
    {"llama-7b B4",
     8192,
     8192,
     DTYPE_BF16,
     {{"qkv", 4096, 12288, 32, false, false},
      {"proj", 4096, 4096, 32, false, true},
      {"gate/up", 4096, 22016, 32, false, false},
      {"down", 11008, 4096, 32, false, true},
      {"head", 4096, 32000, 1, false, false}}},
    {"qwen-7b B16",
     16384,
     4096,
     DTYPE_BF16,
     {{"qkv", 3584, 4608, 28, true, false},
      {"proj", 3584, 3584, 28, false, true},
      {"gate/up", 3584, 37888, 28, false, false},
      {"down", 18944, 3584, 28, false, true},
      {"head", 3584, 152064, 4, false, false}}},
};

/* Pointers only say what is there: the search works in memory of its own. */
static void *some(bool there)
{
    return there ? cuda_gemm_planned(NULL) : NULL;
}

static struct cuda_gemm product_of(const struct layer *l, enum product p, int64_t rows,
                                   enum dtype gradients)
{
    struct cuda_gemm g = {.dtype = DTYPE_BF16, .c_dtype = DTYPE_BF16};
    if (p == FWD) {
        g.m = rows, g.n = l->n_out, g.k = l->n_in;
        g.a = (struct cuda_matrix){.row = l->n_in};
        g.b = (struct cuda_matrix){.row = l->n_in, .transposed = true};
        g.bias = some(l->bias);
        g.residual = some(l->residual);
    } else if (p == DX) {
        g.m = rows, g.n = l->n_in, g.k = l->n_out;
        g.a = (struct cuda_matrix){.row = l->n_out};
        g.b = (struct cuda_matrix){.row = l->n_in};
    } else {
        g.m = l->n_out, g.n = l->n_in, g.k = rows;
        g.a = (struct cuda_matrix){.row = l->n_out, .transposed = true};
        g.b = (struct cuda_matrix){.row = l->n_in};
        g.c_dtype = gradients;
    }
    g.c_row = g.n;
    return g;
}

static double flops(const struct cuda_gemm *g)
{
    return 2.0 * (double)g->m * (double)g->n * (double)g->k;
}

struct bench {
    struct device device;
    double peak;            /* FLOP/s */
    double first_s, best_s; /* of a model's step */
};

static enum status try_product(struct bench *b, const struct cuda_gemm *g,
                               struct cuda_gemm_found *f)
{
    return cuda_gemm_search_try(&b->device.env, b->device.ops->queue(&b->device, QUEUE_COMPUTE), g,
                                f);
}

static enum status measure_peak(struct bench *b)
{
    struct layer square = {.n_in = 8192, .n_out = 8192};
    struct cuda_gemm g = product_of(&square, FWD, 8192, DTYPE_BF16);
    struct cuda_gemm_found f;
    TRY(try_product(b, &g, &f));
    if (f.n_tried == 0)
        return FAIL(ERR_FAILED, "the library has no product of bf16 for this GPU");
    b->peak = flops(&g) / f.best_s;
    printf("%s\nlargest rate: %.0f TFLOP/s (8192 x 8192 x 8192, bf16)\n", b->device.description,
           b->peak * 1e-12);
    return OK;
}

static enum status bench_product(struct bench *b, const struct model *m, const struct layer *l,
                                 enum product p)
{
    bool head = l == &m->layers[LAYERS_MOST - 1];
    struct cuda_gemm g = product_of(l, p, head ? m->head_rows : m->rows, m->gradients);
    struct cuda_gemm_found f;
    TRY(try_product(b, &g, &f));
    if (f.n_tried == 0) {
        printf("%-8s %-3s: not in the library\n", l->name, product_names[p]);
        return OK;
    }
    double first = flops(&g) / f.first_s, best = flops(&g) / f.best_s;
    printf(
        "%-8s %-3s %6lld %6lld %6lld  %8.3f %4.0f %5.1f %%  %8.3f %4.0f %5.1f %%  %5.1f %%  %2d\n",
        l->name, product_names[p], (long long)g.m, (long long)g.n, (long long)g.k, f.first_s * 1e3,
        first * 1e-12, 100 * first / b->peak, f.best_s * 1e3, best * 1e-12, 100 * best / b->peak,
        100 * (f.first_s / f.best_s - 1), f.n_tried);
    (void)fflush(stdout);
    b->first_s += l->times * f.first_s;
    b->best_s += l->times * f.best_s;
    return OK;
}

static enum status bench_model(struct bench *b, const struct model *m)
{
    b->first_s = b->best_s = 0;
    printf("\n%s, weight gradients in %s\n", m->name, dtype_name(m->gradients));
    printf("layer             m      n      k  first ms  TF   of peak   best ms  TF   of "
           "peak     gain  tried\n");
    for (int i = 0; i < LAYERS_MOST; i++) {
        for (int p = FWD; p <= DW; p++)
            TRY(bench_product(b, m, &m->layers[i], (enum product)p));
    }
    printf("products of a step: %.2f ms, with the fastest of each %.2f ms (%.1f %% less)\n",
           b->first_s * 1e3, b->best_s * 1e3, 100 * (1 - b->best_s / b->first_s));
    return OK;
}

static enum status run(struct bench *b, const char *filter)
{
    TRY(measure_peak(b));
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (strstr(models[i].name, filter))
            TRY(bench_model(b, &models[i]));
    }
    return OK;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    enum status status = device_open_cuda(&b.device, 0);
    if (status == OK)
        status = run(&b, argc > 1 ? argv[1] : "");
    if (status != OK)
        (void)fprintf(stderr, "bench_gemm_cuda: %s\n", status_message());
    device_close(&b.device);
    return status_exit_code(status);
}
