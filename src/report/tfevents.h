/* tfevents.h: scalars for TensorBoard.
 *
 * The file is a row of records, each: u64 length, u32 masked CRC-32C of the length bytes, the
 * payload, u32 masked CRC-32C of the payload (all little-endian). A payload is a protobuf Event.
 * Every record is one write(2); nothing is buffered. A resumed run opens a new file in the same
 * folder, as TensorBoard expects.
 *
 * Tags follow the custom of Hugging Face: train/loss, train/learning_rate, eval/loss.
 */
#ifndef SNUG_REPORT_TFEVENTS_H
#define SNUG_REPORT_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tfevents {
    struct file_out file;
    char *path;        /* folder/events.out.tfevents.<time>.<host>.<pid>.<number> */
    struct str record; /* kept between records, so that a steady state allocates nothing */
};

/* Makes the folder if needed and starts a new file in it. Times are seconds since 1970. */
enum status tfevents_open(struct tfevents *t, const char *folder, double wall_time_s) MUST_CHECK;
enum status tfevents_scalar(struct tfevents *t, double wall_time_s, int64_t step, const char *tag,
                            float value) MUST_CHECK;
enum status tfevents_sync(struct tfevents *t) MUST_CHECK;
enum status tfevents_close(struct tfevents *t) MUST_CHECK; /* safe on a closed or failed one */

/* CRC-32C (Castagnoli), unmasked. */
uint32_t crc32c(const void *data, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
