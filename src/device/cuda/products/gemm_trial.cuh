/* gemm_trial.cuh: algorithms for one GEMM, timed against each other.
 *
 * Short runs sort out the slow ones. Those close to the fastest then take turns, each long enough
 * for the GPU to settle at the clock its power allows: in training an H200 holds up to a tenth less
 * than its best clock, for hours, and there the algorithm that takes less energy wins, not the one
 * that is faster for a millisecond. How much less depends on what a model has between its products:
 * in one turn there is nothing, in the other a pass over the operands and the result, and the sum
 * decides. Products too short to tell apart like that are judged by the short runs alone.
 */
#ifndef SNUG_DEVICE_CUDA_PRODUCTS_GEMM_TRIAL_CUH
#define SNUG_DEVICE_CUDA_PRODUCTS_GEMM_TRIAL_CUH

#include "device/cuda/products/gemm_library.cuh"
#include "device/cuda/products/gemm_search.h"

enum { GEMM_TRIAL_MOST = 32 }; /* candidates */

/* Times `n` candidates for g on scratch memory of its own, the first choice first; *best is the
 * fastest's index, -1 when none could be timed (no room, or all refused). */
enum status gemm_trial(const struct kernel_env *env, cudaStream_t stream, const struct cuda_gemm *g,
                       const struct gemm_choice *candidates, int n, struct cuda_gemm_found *found,
                       int *best) MUST_CHECK;

#endif
