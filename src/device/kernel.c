#include "device/kernel.h"

#include <stddef.h>

const struct kernel *kernel_pick(const struct kernel *list, const struct op_call *c,
                                 const struct kernel_env *env, const char **why)
{
    const char *reason = "no kernel for this op on this device";
    for (const struct kernel *k = list; k && k->name; k++) {
        const char *declined = k->declines ? k->declines(c, env) : NULL;
        if (!declined)
            return k;
        reason = declined;
    }
    if (why)
        *why = reason;
    return NULL;
}
