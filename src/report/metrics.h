/* metrics.h: metrics.jsonl, one compact JSON object per line, appended.
 *
 * Each line goes out in one write(2) as soon as it is known, so a killed run leaves whole lines,
 * and `tail -f` and the monitor see a step when it happens. A line torn by a crash is closed when
 * the file is opened again, so the objects after it stay readable. A file that somebody removes,
 * with its folder or without, is made anew, with a warning.
 */
#ifndef SNUG_REPORT_METRICS_H
#define SNUG_REPORT_METRICS_H

#include <jansson.h>

#include "base/file.h"
#include "base/status.h"
#include "base/str.h"

#ifdef __cplusplus
extern "C" {
#endif

struct metrics {
    struct file_out file;
    char *path;
    struct str line; /* kept between lines, so that a steady state allocates nothing */
};

/* Creates the file, or continues it. */
enum status metrics_open(struct metrics *m, const char *path) MUST_CHECK;
/* Writes `object` (borrowed) as one line. */
enum status metrics_write(struct metrics *m, const json_t *object) MUST_CHECK;
enum status metrics_sync(struct metrics *m) MUST_CHECK;
enum status metrics_close(struct metrics *m) MUST_CHECK; /* safe on a closed or failed one */

#ifdef __cplusplus
}
#endif
#endif
