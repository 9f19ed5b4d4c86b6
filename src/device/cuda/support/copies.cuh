/* copies.cuh: copies from memory to shared memory that are on their way while a block computes
 * (cp.async, compute capability 8.0 and up).
 *
 * A thread's copies arrive in groups, in the order of their commits, and the thread that waits for
 * a group sees what it sent for itself. What others sent for it sees after a barrier that follows
 * everybody's wait.
 */
#ifndef SNUG_DEVICE_CUDA_SUPPORT_COPIES_CUH
#define SNUG_DEVICE_CUDA_SUPPORT_COPIES_CUH

#include "device/cuda/support/support.cuh"

/* 16 bytes to shared memory. Before compute capability 8.0 they go through a register, at once. */
static __device__ __forceinline__ void copy_16(uint4 *shared, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(from)
                 : "memory");
#else
    *shared = *(const uint4 *)from;
#endif
}

/* 16 bytes to an address in shared memory; zeros when not inside (`from` must be valid all the
 * same: nothing is read there). Nothing at all before compute capability 8.0. */
static __device__ __forceinline__ void copy_16_or_zeros(uint32_t shared, const void *from,
                                                        bool inside)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
#else
    (void)shared, (void)from, (void)inside;
#endif
}

/* Ends a group of this thread's copies; there may be nothing in it. */
static __device__ __forceinline__ void copies_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until all of this thread's groups but the last N have arrived. */
template <int N> static __device__ __forceinline__ void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif
