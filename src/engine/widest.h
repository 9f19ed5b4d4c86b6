/* widest.h: trained weights as f32, whatever they are kept in: the master where there is one, else
 * the weight itself. What is read and written again leaves every bit of both as it was. */
#ifndef SNUG_ENGINE_WIDEST_H
#define SNUG_ENGINE_WIDEST_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements that go at once: no more in one call. */
enum { WIDEST_MOST = 1 << 18 };

/* Elements [at, at + n) of parameter i, which is trained. No update may be pending. */
enum status widest_read(const struct engine *e, int i, int64_t at, int64_t n, float *to) MUST_CHECK;
/* Likewise; the weight is the nearest to what its master has become. */
enum status widest_write(const struct engine *e, int i, int64_t at, int64_t n,
                         const float *from) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
