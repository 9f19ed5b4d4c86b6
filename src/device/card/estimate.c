/* estimate.c: how fast a card is taken to be: the data sheet's rates, the share of them that an
 * H200 sustains, and the share of those that each kernel reaches there (efficiency.def). */
#include "base/compiler.h"
#include "device/card/card.h"

/* Of an H200: 753 of 989 TFLOP/s in a large bf16 product, 48 of 67 in f32, 4.07 of 4.8 TB/s in
 * memory, 55.4 of the 63 GB/s of its link, 49 each way when both are used at once. */
#define SUSTAINED_PRODUCTS 0.76
#define SUSTAINED_F32      0.72
#define SUSTAINED_MEMORY   0.85
#define SUSTAINED_LINK     0.88
#define SUSTAINED_DUPLEX   0.78

#define ENQUEUE_S 4.9e-6 /* until the host has enqueued a kernel */
#define START_S   2.2e-6 /* of a kernel in a recording */
#define COPY_S    4e-6
#define WAIT_S    2.9e-6 /* an H200's, in a recording */

/* Bytes per second of a lane, each way: generation 3 carries 128 of 130 bits, of 8 GT/s. */
static double lane_bytes(int generation)
{
    double rate = 8e9 * 128.0 / 130.0 / 8.0;
    for (int g = 3; g < generation; g++)
        rate *= 2.0;
    return rate;
}

void card_rates(const struct card *c, struct device_rates *out)
{
    double link = lane_bytes(c->pcie_generation) * c->pcie_lanes;
    struct link_rate rate = {SUSTAINED_LINK * link, SUSTAINED_DUPLEX * link, COPY_S};
    *out = (struct device_rates){
        .matmul_flops = SUSTAINED_F32 * c->f32_tflops * 1e12,
        .half_matmul_flops = SUSTAINED_PRODUCTS * c->half_tflops * 1e12,
        .memory_bytes = SUSTAINED_MEMORY * c->memory_gb * 1e9,
        .launch_s = ENQUEUE_S,
        .wait_s = WAIT_S,
    };
    out->links[TIER_HOST][TIER_DEVICE] = out->links[TIER_DEVICE][TIER_HOST] = rate;
}

struct efficiency {
    double products, memory;
};

static struct efficiency efficiency_of(enum op_id op)
{
    static const struct efficiency known[OP_COUNT] = {
#define EFFICIENCY(op, products, memory) [OP_##op] = {products, memory},
#include "device/card/efficiency.def"
#undef EFFICIENCY
    };
    const struct efficiency other = {1.0, 0.75};
    return known[op].products > 0 ? known[op] : other;
}

static double product_rate(const struct device *d, const struct card *card, const struct op_call *c)
{
    bool half = c->n_in > 0 && dtype_size(c->in[0].dtype) == 2;
    if (!half && d->tuning.tf32)
        return SUSTAINED_PRODUCTS * card->tf32_tflops * 1e12;
    return device_matmul_rate(&d->rates, half);
}

/* A weight gradient that is added to another is read and written when its tiles are done: memory's
 * time comes on top. */
static bool adds_up(const struct op_call *c)
{
    return c->op == OP_linear_grad_weight && call_has(c, 2);
}

double card_call_seconds(const struct device *d, const struct card *card, const struct op_call *c)
{
    struct efficiency e = efficiency_of(c->op);
    double products = call_flops(c) / (e.products * product_rate(d, card, c));
    double memory = call_bytes(c) / (e.memory * d->rates.memory_bytes);
    return (adds_up(c) ? products + memory : MAX(products, memory)) + START_S;
}
