/* env_rates.h: inside api/: what `snug env` knows of the rates of this machine, and measuring them.
 */
#ifndef SNUG_API_ENV_RATES_H
#define SNUG_API_ENV_RATES_H

#include "api/api_internal.h"
#include "device/calibrate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the processors, and of the first GPU that can be used. */
struct rates_view {
    int n;
    struct {
        char device[128];
        struct calibrations known;
    } of[2];
};

/* Reads what the cache has, after measuring it anew where that is asked for. */
enum status rates_view_take(struct rates_view *v, const struct snug_env_options *o) MUST_CHECK;
void rates_view_text(const struct rates_view *v, struct str *out);
json_t *rates_view_json(const struct rates_view *v); /* a new reference; NULL: out of memory */

#ifdef __cplusplus
}
#endif
#endif
