/* compiler.h: the few attributes the tree uses, spelled once. */
#ifndef SNUG_BASE_COMPILER_H
#define SNUG_BASE_COMPILER_H

#if defined(__GNUC__) || defined(__clang__)
#define MUST_CHECK            __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define NORETURN              __attribute__((noreturn))
#define ALWAYS_INLINE         inline __attribute__((always_inline))
#else
#define MUST_CHECK
#define PRINTF_LIKE(fmt, arg)
#define NORETURN
#define ALWAYS_INLINE inline
#endif

/* Headers compile as C++ too, which has no restrict. */
#ifdef __cplusplus
#define SNUG_RESTRICT __restrict__
#else
#define SNUG_RESTRICT restrict
#endif

/* Functions that CUDA kernels call too. */
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

/* This is a build with AddressSanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define SNUG_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SNUG_ASAN 1
#endif
#endif
#ifndef SNUG_ASAN
#define SNUG_ASAN 0
#endif

/* This is one with ThreadSanitizer. */
#if defined(__SANITIZE_THREAD__)
#define SNUG_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SNUG_TSAN 1
#endif
#endif
#ifndef SNUG_TSAN
#define SNUG_TSAN 0
#endif

#endif
