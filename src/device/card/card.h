/* card.h: GPUs that are planned for without having one: the rows of cards.def, and a device made
 * from one. Plans on it are those of the CUDA device: the same kernels, the same workspaces
 * (cuda/declared), so the arenas are exact. Times are estimates. Nothing runs on it.
 */
#ifndef SNUG_DEVICE_CARD_CARD_H
#define SNUG_DEVICE_CARD_CARD_H

#include "base/str.h"
#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct card {
    const char *name, *title;
    int capability; /* compute capability x 10 */
    int n_multiprocessors;
    int64_t memory_mib;
    double l2_mib;
    double half_tflops, tf32_tflops, f32_tflops; /* per second; tf32 0: there is none */
    double memory_gb;                            /* per second */
    int pcie_generation, pcie_lanes;
};

int card_count(void);
const struct card *card_at(int i);
/* Appends "v100-16, v100-32, t4, ...". */
void card_add_names(struct str *out);

/* The card of that name. ERR_CONFIG, with the names there are, when there is none. */
enum status device_open_card(struct device *d, const char *name) MUST_CHECK;

/* ---- inside of card/ ------------------------------------------------------------------------- */

/* estimate.c: what a program gets of the data sheet's rates, and how long a call takes by that. */
void card_rates(const struct card *c, struct device_rates *out);
double card_call_seconds(const struct device *d, const struct card *card, const struct op_call *c);

/* answers.c: what cuBLASLt and cuDNN answer, by rules that were recorded where they could be asked.
 */
extern const struct gpu_answers card_answers;
/* Bytes of the GPU's memory that a process holds beside its arena. */
int64_t card_context_bytes(const struct gpu_model *gpu);

#ifdef __cplusplus
}
#endif
#endif
