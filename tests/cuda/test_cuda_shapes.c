/* CUDA kernels on shapes the samples are too small for: long rows, many rows, vocabularies of more
 * than 2^16, runs of one id over many pieces, hundreds of inputs, offsets past 2^31; against the
 * CPU's fast kernels.
 *
 * Skipped without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/support/ref.h"
#include "device/device.h"
#include "support/activation_calls.h"
#include "support/gpu.h"
#include "support/law.h"
#include "support/raw_copy.h"

enum { MAX_OUT = 8, N_MANY = 1000, TILE_ELEMS = 1 << 20 };
static const int64_t arena_bytes = (int64_t)6 << 30, host_bytes = (int64_t)512 << 20;

struct gpu {
    struct device device;
    void *arena, *host;
    int64_t n_taken; /* bytes of the arena */
};

static struct gpu gpu; /* one device for the whole program; opening it is slow */

/* ---- calls on the GPU ----------------------------------------------------------------------- */

static void must(enum status s)
{
    if (s != OK)
        fail_msg("%s (%s)", status_message(), status_place());
}

static void *take(int64_t n_bytes)
{
    char *p = (char *)gpu.arena + gpu.n_taken;
    gpu.n_taken += align_up(n_bytes, ARENA_ALIGN);
    assert_true(gpu.n_taken <= arena_bytes);
    return p;
}

static void move_bytes(void *dst, const void *src, int64_t n_bytes)
{
    raw_copy(&gpu.device, QUEUE_COMPUTE, dst, src, n_bytes);
    must(gpu.device.ops->sync(&gpu.device));
}

/* Host memory into the arena, through pinned memory. */
static void upload(void *dst, const void *src, int64_t n_bytes)
{
    for (int64_t at = 0; at < n_bytes; at += host_bytes) {
        int64_t n = MIN(host_bytes, n_bytes - at);
        memcpy(gpu.host, (const char *)src + at, (size_t)n);
        move_bytes((char *)dst + at, gpu.host, n);
    }
}

/* The first kernel that accepts the call, in workspace of the arena's own. */
static void run_kernel(const struct op_call *call)
{
    const char *why = NULL;
    const struct kernel *k =
        kernel_pick(gpu.device.ops->kernels(call->op), call, &gpu.device.env, &why);
    if (!k)
        fail_msg("%s: %s", op_get(call->op)->name, why);
    int64_t before = gpu.n_taken;
    int64_t n_bytes = k->workspace ? k->workspace(call, &gpu.device.env) : 0;
    struct kernel_ctx x = {.env = gpu.device.env,
                           .workspace = take(n_bytes),
                           .queue = gpu.device.ops->queue(&gpu.device, QUEUE_COMPUTE)};
    must(k->run(&x, call));
    must(gpu.device.ops->sync(&gpu.device));
    gpu.n_taken = before;
}

/* ---- against the CPU ------------------------------------------------------------------------ */

static double rms(const struct tensor *t)
{
    double sum = 0;
    int64_t n = shape_elems(&t->shape);
    for (int64_t i = 0; i < n; i++)
        sum += ref_get(t, i) * ref_get(t, i);
    return sqrt(sum / (double)n);
}

static double ulp_of(enum dtype d)
{
    return d == DTYPE_BF16 ? 1.0 / 128 : d == DTYPE_F16 ? 1.0 / 1024 : 0;
}

/* Sums over thousands of rows differ by their order. */
static void compare(const struct law_case *c, int o, const struct tensor *want,
                    const struct tensor *got)
{
    double scale = rms(want), ulp = ulp_of(want->dtype);
    const struct node *n = graph_node(c->g, 0);
    /* 16-bit logits move probabilities by more than their own rounding, whatever dtype dw has. */
    if (op_get(n->op)->workspace_is_logits)
        ulp = 16 * ulp_of(graph_value(c->g, n->in[0])->dtype);
    for (int64_t i = 0; i < shape_elems(&want->shape); i++) {
        double x = ref_get(want, i), y = ref_get(got, i);
        double allowed = (c->tolerance + ulp) * (fabs(x) + scale);
        if (!(fabs(x - y) <= allowed)) {
            law_failed(c, "output %d, element %lld is %.9g, the CPU gives %.9g", o, (long long)i, y,
                       x);
            return;
        }
    }
}

/* The call of the case's one node, with memory in the arena: fresh outputs hold NaN. */
static void place_call(const struct law_case *c, const struct eval *values, struct tensor *in,
                       struct tensor *out, struct op_call *call)
{
    const struct node *n = graph_node(c->g, 0);
    node_call(c->g, n, in, out, call);
    gpu.n_taken = 0;
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] == VALUE_NONE)
            continue;
        in[i].data = take(tensor_bytes(&in[i]));
        upload(in[i].data, eval_tensor(values, n->in[i]).data, tensor_bytes(&in[i]));
    }
    for (int o = 0; o < n->n_out; o++) {
        const struct alias_rule *a = node_alias(n, o);
        out[o].data = a ? in[a->in].data : take(tensor_bytes(&out[o]));
        if (a)
            continue;
        memset(gpu.host, 0xFF, (size_t)tensor_bytes(&out[o]));
        move_bytes(out[o].data, gpu.host, tensor_bytes(&out[o]));
    }
}

static void check_case(struct law_case *c)
{
    struct tensor in[SAMPLE_MAX_INPUTS], out[MAX_OUT];
    struct op_call call;
    struct eval *values, *want;
    const struct node *n = graph_node(c->g, 0);
    must(eval_new(&values, c->g, &(struct eval_options){.n_threads = 8}));
    law_case_fill(c, values);
    place_call(c, values, in, out, &call);
    run_kernel(&call);
    want = law_run(c, &(struct eval_options){.n_threads = 8});
    for (int o = 0; want && o < n->n_out; o++) {
        struct tensor got = out[o], expected = eval_tensor(want, n->out[o]);
        got.data = gpu.host;
        assert_true(tensor_bytes(&got) <= host_bytes);
        move_bytes(gpu.host, out[o].data, tensor_bytes(&got));
        compare(c, o, &expected, &got);
    }
    eval_free(want);
    eval_free(values);
}

struct shape_case {
    const char *op, *text;
};

static void build_case(struct law_case *c, const struct shape_case *s)
{
    assert_true(op_find(s->op, &c->op));
    c->def = op_get(c->op);
    c->text = s->text;
    must(sample_parse(&c->sample, c->def, s->text));
    must(law_case_build(c));
}

static const struct shape_case shapes[] = {
    {"layer_norm", "bf16[4096,768], f32[768], f32[768]"},
    {"layer_norm", "f16[33,1600], f16[1600], f16[1600]"},
    {"layer_norm", "f32[300,8192], f32[8192], f32[8192]"},
    {"layer_norm", "f32[40,12290], f32[12290], f32[12290]"},
    {"layer_norm", "bf16[5000,1000], bf16[1000], bf16[1000]"},
    {"layer_norm", "f32[5000,1024], f32[1024], f32[1024]"},
    {"layer_norm", "f16[9001,264], f16[264], f16[264]"},
    {"layer_norm", "bf16[700,2048], f32[2048], f32[2048]"},
    {"layer_norm", "bf16[700,3072], bf16[3072], bf16[3072]"},
    {"layer_norm_grad", "bf16[5000,1000], bf16[5000,1000], bf16[1000], f32[5000], f32[5000]+"},
    {"layer_norm_grad", "f32[5000,1024], f32[5000,1024], f32[1024], f32[5000], f32[5000]+"},
    {"layer_norm_grad", "f16[5001,264], f16[5001,264], f16[264], f32[5001], f32[5001]+"},
    {"layer_norm_grad", "bf16[1500,1600], bf16[1500,1600], bf16[1600], f32[1500], f32[1500]+"},
    {"layer_norm_grad", "bf16[4096,768], bf16[4096,768], f32[768], f32[4096], f32[4096]+ "
                        "{dtype=f32}"},
    {"layer_norm_grad", "f32[3000,768], f32[3000,768], f32[768], f32[3000], f32[3000]+"},
    {"layer_norm_grad", "f32[300,4096], f32[300,4096], f32[4096], f32[300], f32[300]+"},
    {"layer_norm_grad", "f32[300,8192], f32[300,8192], f32[8192], f32[300], f32[300]+"},
    {"layer_norm_grad", "bf16[200,8192], bf16[200,8192], bf16[8192], f32[200], f32[200]+"},
    {"layer_norm_grad", "f32[2000,1026], f32[2000,1026], f32[1026], f32[2000], f32[2000]+"},
    {"layer_norm_grad", "bf16[5003,768], bf16[5003,768], f32[768], f32[5003], f32[5003]+, "
                        "bf16[5003,768] {dtype=f32}"},
    {"layer_norm_grad", "bf16[3001,1600], bf16[3001,1600], bf16[1600], f32[3001], f32[3001]+, "
                        "bf16[3001,1600] {dtype=f32}"},
    {"layer_norm_grad", "f16[700,3080], f16[700,3080], f16[3080], f32[700], f32[700]+, "
                        "f16[700,3080]"},
    {"layer_norm_grad", "bf16[40,8192], bf16[40,8192], bf16[8192], f32[40], f32[40]+, "
                        "bf16[40,8192]"},
    {"layer_norm_grad", "bf16[300,16384], bf16[300,16384], bf16[16384], f32[300], f32[300]+, "
                        "bf16[300,16384]"},
    {"layer_norm_grad", "f32[900,1024], f32[900,1024], f32[1024], f32[900], f32[900]+, "
                        "f32[900,1024]"},
    {"layer_norm_grad", "f32[700,8192], f32[700,8192], f32[8192], f32[700], f32[700]+, "
                        "f32[700,8192]"},
    {"layer_norm_grad", "f32[2000,1026], f32[2000,1026], f32[1026], f32[2000], f32[2000]+, "
                        "f32[2000,1026]"},
    {"layer_norm", "bf16[3001,1600], bf16[1600], bf16[1600]"},
    {"layer_norm", "bf16[5000,1280], f32[1280], f32[1280]"},
    {"rms_norm", "bf16[5000,2048], bf16[2048]"},
    {"rms_norm", "f16[3000,1800], f16[1800]"},
    {"rms_norm_grad", "bf16[3000,2048], bf16[3000,2048], bf16[2048], f32[3000]+, "
                      "bf16[3000,2048] {dtype=f32}"},
    {"rms_norm_grad", "bf16[2000,1280], bf16[2000,1280], bf16[1280], f32[2000]+ {dtype=f32}"},
    {"rms_norm_grad", "bf16[700,5120], bf16[700,5120], bf16[5120], f32[700]+"},
    {"rms_norm", "bf16[500,4096], bf16[4096]"},
    {"rms_norm_grad", "bf16[500,4096], bf16[500,4096], bf16[4096], f32[500]+"},
    {"rms_norm", "bf16[9000,512], bf16[512]"},
    {"rms_norm_grad", "bf16[5000,1024], bf16[5000,1024], bf16[1024], f32[5000]+"},
    {"rms_norm_grad", "f32[5000,136], f32[5000,136], f32[136], f32[5000]+"},
    {"rms_norm_grad", "f32[500,2050], f32[500,2050], f32[2050], f32[500]+"},
    {"head_norm", "bf16[2,700,3072], bf16[128], bf16[128] {heads=16, kv_heads=4, head_dim=128}"},
    {"head_norm", "f32[2,100,2560], f32[320], f32[320] {heads=4, kv_heads=2, head_dim=320}"},
    {"head_norm_grad", "bf16[2,700,3072], bf16[2,700,3072], bf16[128], bf16[128], "
                       "f32[2,700,20]+ {heads=16, kv_heads=4, head_dim=128}"},
    {"head_norm_grad", "f32[2,300,960], f32[2,300,960], f32[80], f32[80], f32[2,300,10]+ "
                       "{heads=8, kv_heads=2, head_dim=80}"},
    {"head_norm_grad", "f32[2,300,2560], f32[2,300,2560], f32[320], f32[320], f32[2,300,6]+ "
                       "{heads=4, kv_heads=2, head_dim=320}"},
    {"rotary", "bf16[2,700,2560], f32[32] {heads=32, kv_heads=4, head_dim=64}"},
    {"rotary", "bf16[1,300,12288], f32[64], i32[300]~100000 {heads=32, kv_heads=32, head_dim=128, "
               "inverse=true}"},
    {"rotary", "f16[1,300,1728], f32[36] {heads=8, kv_heads=8, head_dim=72}"},
    {"sum_rows", "bf16[9000,768], f32[768] {dtype=f32}"},
    {"sum_rows", "bf16[600,20000]"},
    {"sum_rows", "f32[5000,2303], f32[2303]"},
    {"sum_rows", "bf16[3001,1600], f32[1600] {dtype=f32}"},
    {"sum_rows", "bf16[8192,4800], bf16[4800]"},
    {"sum", "f32[3,1000003] {axes=[1]}"},
    {"mean", "bf16[2000003]"},
    {"sum", "f32[40,500,60] {axes=[1]}"},
    {"sum", "f32[40,500,60] {axes=[0,2]}"},
    {"sum_squares", "f32[5000011]"},
    {"sum_squares", "bf16[5000011]"},
    {"sum_squares", "bf16[30001]"},
    {"sum_squares", "f32[32769]"},
    {"sum_squares", "f32[32769], bf16[1000003], f16[1], f32[16384], bf16[16385], f32[7]"},
    {"linear_cross_entropy", "bf16[300,4], bf16[20001,4], i32[300]~20001 {chunks=2}"},
    {"linear_cross_entropy_grad", "f32[300,8], f32[20001,8], i32[300]~20001, f32[1] {chunks=3}"},
    {"linear_cross_entropy_grad", "bf16[300,4], bf16[20001,4], i32[300]~20001, f32[1] {chunks=3}"},
    {"linear_cross_entropy_grad", "f16[130,4], f16[8193,4], i32[130]~8193, f32[1] "
                                  "{label_smoothing=0.1, z_loss=0.001}"},
    {"linear_cross_entropy_grad", "bf16[40,8], bf16[60001,8], i32[40]~60001, f32[1], "
                                  "bf16[60001,8] {chunks=3}"},
    {"linear_cross_entropy_grad", "bf16[300,8], bf16[1003,8], i32[300]~1003, f32[1], f32[1003,8] "
                                  "{dtype=f32, chunks=3}"},
    {"linear_cross_entropy_grad_input",
     "f32[300,8], f32[20001,8], i32[300]~20001, f32[1] {chunks=3}"},
    {"linear_cross_entropy_grad_input", "bf16[5000,16], bf16[515,16], i32[5000]~515, f32[1]"},
    {"adapted_norm", "bf16[3000,1030], bf16[16,1030], bf16[2000,16] {first=500, scale=2.0}"},
    {"linear_cross_entropy_grad", "bf16[5000,16], bf16[515,16], i32[5000]~515, f32[1]"},
    {"linear_cross_entropy_grad", "f16[300,8], f16[1000,8], i32[300]~-1:1000, f32[1] "
                                  "{chunks=7, ignore_index=-1}"},
    {"max", "f32[7,100003]"},
    {"softmax", "f32[100,5003]"},
    {"softmax_grad", "bf16[100,5003], bf16[100,5003]"},
    {"embedding", "bf16[20000,768], i32[8192]~20000"},
    {"embedding_grad", "bf16[8192,768], i32[8192]~300, f32[300,768] {rows=300, dtype=f32}"},
    {"embedding_grad", "bf16[8192,256], i32[8192]~152000 {rows=152000, dtype=f32}"},
    {"embedding_grad", "f32[5000,66], i32[5000]~1 {rows=70000}"},
    {"embedding_grad", "f16[5001,64], i32[5001]~40 {rows=65536}"},
    {"transpose", "bf16[8,256,12,64] {axes=[0,2,1,3]}"},
    {"transpose", "bf16[3000,1111] {axes=[1,0]}"},
    {"transpose", "f32[5,70,33,90] {axes=[3,1,0,2]}"},
    {"dropout", "bf16[1000003], i64[2]~1000 {p=0.1, seed=7}"},
    {"add", "bf16[1000,777], bf16[777]"},
    {"mul", "f32[1000,768], f32[768]"},
    {"gelu", "f32[1000003] {approximate=true}"},
    {"gelu_bias", "bf16[5001,3072], bf16[3072] {approximate=true}"},
    {"gelu_bias", "f32[333,777], f32[777]"},
    {"gelu_bias_grad", "bf16[9001,3072], bf16[9001,3072], bf16[3072], f32[3072] "
                       "{approximate=true, dtype=f32}"},
    {"gelu_bias_grad", "bf16[3001,6400], bf16[3001,6400], f32[6400], bf16[6400]"},
    {"gelu_bias_grad", "f32[5001,264], f32[5001,264], f32[264], f32[264] {approximate=true}"},
    {"gelu_bias_grad", "f16[5001,777], f16[5001,777], f16[777] {dtype=f32}"},
    {"gelu_bias_grad", "bf16[7,60000], bf16[7,60000], bf16[60000] {approximate=true}"},
    {"gelu_bias_with_grad", "bf16[9001,3072], bf16[9001,3072], bf16[3072], f32[3072] "
                            "{approximate=true, dtype=f32}"},
    {"gelu_bias_with_grad", "bf16[3001,6400], bf16[3001,6400], f32[6400], bf16[6400]"},
    {"gelu_bias_with_grad", "f32[5001,264], f32[5001,264], f32[264], f32[264] {approximate=true}"},
    {"gelu_bias_with_grad", "f16[5001,777], f16[5001,777], f16[777] {dtype=f32}"},
    {"linear", "bf16[1000,264], bf16[520,264], bf16[520], bf16[1000,520]"},
    {"linear", "bf16[3000,768], bf16[768,768], _, bf16[3000,768]"},
    {"grouped_linear", "bf16[3000,328], bf16[7,520,328], i32[8], bf16[7,520]"},
    {"grouped_linear", "f16[1500,64], f16[40,264,64], i32[41]"},
    {"grouped_linear", "bf16[3000,136], bf16[7,2056,136], i32[8]"}, /* more tiles than blocks */
    {"grouped_linear_grad_input", "bf16[3000,520], bf16[7,520,328], i32[8]"},
    {"grouped_linear_grad_input", "bf16[3000,136], bf16[7,136,2056], i32[8]"},
    {"grouped_linear_grad_input", "f16[1500,264], f16[40,264,64], i32[41]"},
    {"grouped_linear_grad_weight", "bf16[3000,520], bf16[3000,328], i32[8], bf16[7,520,328]"},
    {"grouped_linear_grad_weight", "bf16[3000,520], bf16[3000,328], i32[8], f32[7,520,328] "
                                   "{dtype=f32}"},
    {"grouped_linear_grad_weight", "f16[1500,264], f16[1500,520], i32[41]"},
    {"silu_gate_grad", "bf16[1000,1536], bf16[1000,3072]"},
    {"silu_gate_with_grad", "bf16[1000,1536], bf16[1000,3072]"},
    {"silu_gate_with_grad", "f32[1001,777], f32[1001,1554]"},
    {"gelu_gate_grad", "bf16[1000,1536], bf16[1000,3072]"},
    {"gelu_gate_with_grad", "f32[1001,777], f32[1001,1554]"},
    {"adamw", "bf16[1000003], f32[1000003], f32[1000003], f32[1000003]+, f32[1]=0.01, i32[1]=1000, "
              "f32[1]=0.5"},
    {"adamw", "bf16[1000003], bf16[1000003], bf16[1000003], bf16[1000003]+, f32[1]=0.01, "
              "i32[1]=1000, f32[1]=0.5 {seed=3}"},
    {"adamw_master", "bf16[1000003], bf16[1000003], f32[1000003], f32[1000003]+, f32[1]=0.01, "
                     "i32[1]=3, f32[1]=0.5, f32[1000003]"},
};

static void large_shapes_agree_with_the_cpu(void **state)
{
    (void)state;
    struct law_report r = {0};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct law_case c = {.report = &r, .tolerance = 1e-4};
        build_case(&c, &shapes[i]);
        r.n_cases++;
        check_case(&c);
        graph_free(c.g);
    }
    law_report_finish(&r);
}

static void made_with_its_gradient_an_activation_has_the_same_bits(void **state)
{
    (void)state;
    assert_int_equal(activation_calls_check(&gpu.device), 0);
}

/* ---- many inputs, long offsets -------------------------------------------------------------- */

static struct tensor tensor_in_arena(enum dtype d, struct shape s)
{
    struct tensor t = {.dtype = d, .shape = s};
    t.data = take(tensor_bytes(&t));
    return t;
}

static float read_number(const struct tensor *t)
{
    float x;
    move_bytes(gpu.host, t->data, sizeof(x));
    memcpy(&x, gpu.host, sizeof(x));
    return x;
}

static void write_number(const struct tensor *t, float x)
{
    upload(t->data, &x, sizeof(x));
}

static void run_op(enum op_id op, struct tensor *in, int n_in, struct tensor *out, int n_out,
                   const struct attr *attrs)
{
    struct op_call call = {
        .op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
    run_kernel(&call);
}

static void clip_scale_takes_a_thousand_sums(void **state)
{
    (void)state;
    static struct tensor in[2 + N_MANY];
    struct shape one = shape_of(1, (int64_t)1);
    gpu.n_taken = 0;
    in[0] = tensor_in_arena(DTYPE_F32, one);
    write_number(&in[0], 4.0f);
    in[1] = (struct tensor){.dtype = DTYPE_NONE};
    for (int i = 0; i < N_MANY; i++) {
        in[2 + i] = tensor_in_arena(DTYPE_F32, one);
        write_number(&in[2 + i], (float)(i + 1));
    }
    struct tensor out[2] = {tensor_in_arena(DTYPE_F32, one), tensor_in_arena(DTYPE_F32, one)};
    const struct attr attrs[] = {{.f = 1.0}, {.f = 8.0}};
    run_op(OP_clip_scale, in, 2 + N_MANY, out, 2, attrs);
    double norm = 2.0 * sqrt(N_MANY * (N_MANY + 1) / 2.0);
    assert_true(fabs((double)read_number(&out[1]) - norm) < 1e-6 * norm);
    assert_true(fabs((double)read_number(&out[0]) - 2.0 / norm) < 1e-5);
}

/* fill, add, sum_squares over more than 2^31 elements. */
static void elements_past_two_to_the_31_are_reached(void **state)
{
    (void)state;
    gpu.n_taken = 0;
    const int64_t n = ((int64_t)1 << 31) + 12347;
    struct tensor x = tensor_in_arena(DTYPE_BF16, shape_of(1, n));
    struct tensor y = tensor_in_arena(DTYPE_F32, shape_of(1, (int64_t)1));
    const struct attr value = {.f = 1.5};
    run_op(OP_fill, &x, 1, &x, 1, &value);
    struct tensor two[2] = {x, x};
    run_op(OP_add, two, 2, &x, 1, NULL);
    run_op(OP_sum_squares, &x, 1, &y, 1, NULL);
    assert_true(fabs((double)read_number(&y) / (9.0 * (double)n) - 1.0) < 1e-6);
}

/* A table of more than 2^31 elements: gradients land in its last rows, and are found there. */
static void rows_past_two_to_the_31_elements_are_reached(void **state)
{
    (void)state;
    enum { N = 64, C = 4096 };
    const int64_t n_rows = 560000;
    int32_t ids[N];
    gpu.n_taken = 0;
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(n_rows - 1 - i / 2);
    struct tensor in[2] = {tensor_in_arena(DTYPE_BF16, shape_of(2, (int64_t)N, (int64_t)C)),
                           tensor_in_arena(DTYPE_I32, shape_of(1, (int64_t)N))};
    struct tensor table = tensor_in_arena(DTYPE_BF16, shape_of(2, n_rows, (int64_t)C));
    struct tensor y = tensor_in_arena(DTYPE_F32, shape_of(1, (int64_t)1));
    const struct attr value = {.f = 1.5};
    upload(in[1].data, ids, sizeof(ids));
    run_op(OP_fill, &in[0], 1, &in[0], 1, &value);
    const struct attr attrs[] = {{.i = n_rows}, {.i = DTYPE_NONE}};
    run_op(OP_embedding_grad, in, 2, &table, 1, attrs);
    run_op(OP_sum_squares, &table, 1, &y, 1, NULL);
    assert_true(fabs((double)read_number(&y) - 9.0 * N / 2 * C) < 1.0); /* 3 in half of N rows */
    struct tensor gather[2] = {table, in[1]};
    run_op(OP_embedding, gather, 2, &in[0], 1, NULL);
    run_op(OP_sum_squares, &in[0], 1, &y, 1, NULL);
    assert_true(fabs((double)read_number(&y) - 9.0 * N * C) < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_shapes_agree_with_the_cpu),
        cmocka_unit_test(made_with_its_gradient_an_activation_has_the_same_bits),
        cmocka_unit_test(clip_scale_takes_a_thousand_sums),
        cmocka_unit_test(elements_past_two_to_the_31_are_reached),
        cmocka_unit_test(rows_past_two_to_the_31_elements_are_reached),
    };
    if (!gpu_open(&gpu.device))
        return GPU_SKIPPED;
    const struct device_ops *ops = gpu.device.ops;
    if (ops->memory_alloc(&gpu.device, TIER_DEVICE, arena_bytes, &gpu.arena) != OK ||
        ops->memory_alloc(&gpu.device, TIER_HOST, host_bytes, &gpu.host) != OK) {
        (void)fprintf(stderr, "skipped: %s\n", status_message());
        device_close(&gpu.device);
        return GPU_SKIPPED;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ops->memory_free(&gpu.device, TIER_DEVICE, gpu.arena, arena_bytes);
    ops->memory_free(&gpu.device, TIER_HOST, gpu.host, host_bytes);
    device_close(&gpu.device);
    return failed;
}
