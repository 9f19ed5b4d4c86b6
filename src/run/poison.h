/* poison.h: inside run/: dead memory made visible, in debug builds on devices the host can address.
 *
 * A buffer's bytes are filled with 0xA5 when it dies, so that reading it later shows in the
 * results; under AddressSanitizer everything that is not alive cannot be touched at all, and a
 * kernel that runs past its operands stops there. Outside a run all memory is accessible. In
 * release builds the functions do nothing.
 */
#ifndef SNUG_RUN_POISON_H
#define SNUG_RUN_POISON_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Births and deaths of a program's transient buffers by instruction: buffer ids of instruction i
 * are born[born_at[i]] to born[born_at[i + 1] - 1]. NULL arrays: nothing is poisoned. */
struct poison {
    const struct program *p;
    const struct storage *storage;
    const struct memory *arenas; /* per tier; borrowed */
    int32_t *born_at, *born;
    int32_t *dead_at, *dead;
};

/* Arrays live in `pool`. `addressable`: the host can touch the arenas. */
enum status poison_init(struct poison *x, const struct program *p, const struct storage *storage,
                        const struct memory *arenas, bool addressable,
                        struct pool *pool) MUST_CHECK;
void poison_enter(const struct poison *x); /* before a section */
void poison_before(const struct poison *x, int32_t at);
void poison_after(const struct poison *x, int32_t at);
void poison_leave(const struct poison *x); /* after a section, however it ended */

#ifdef __cplusplus
}
#endif
#endif
