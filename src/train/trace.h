/* trace.h: a profile as trace events (JSON), for Perfetto and chrome://tracing.
 *
 * Two processes stand side by side, "measured" and "predicted", with a row per queue and an event
 * per instruction that does something; below them the bytes alive in each tier, by what they are
 * for. Times are microseconds since the profile began; steps are instants. The predicted steps
 * begin where the measured ones do, or where the predicted one before ended.
 */
#ifndef SNUG_TRAIN_TRACE_H
#define SNUG_TRAIN_TRACE_H

#include "train/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends one JSON object. */
enum status trace_print(const struct profile *p, struct str *out) MUST_CHECK;

/* A JSON string: what cannot stand in one is escaped, what is no UTF-8 becomes U+FFFD. */
void trace_add_string(struct str *out, const char *text);
/* A JSON number with so many decimals (0 to 6), the same in every locale; null when it is not
 * finite or too large to be one. */
void trace_add_number(struct str *out, double x, int decimals);

#ifdef __cplusplus
}
#endif
#endif
