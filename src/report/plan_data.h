/* plan_data.h: a program as columns of numbers (JSON), for pages that draw it.
 *
 *     {"names": ["linear layers.0.up.weight", ...],     texts by number, each once
 *      "classes": [...], "stack": [...], "tiers": [...], "queues": [...], "purposes": [...],
 *      "sections": [{"name": "step", "first": 0, "n": 1571, "repeats": 1, "start": 0, "ns": 12}],
 *      "arenas": [{"bytes": 1, "lower_bound": 1, "storage": 1, "budget": 1, "whole": 1,
 *                  "given": true}],
 *      "instrs": {"name": [...], "part": [...], "queue": [...], "block": [...], "kernel": [...],
 *                 "start": [...], "ns": [...]},
 *      "buffers": {"name": [...], "tier": [...], "class": [...], "purpose": [...], "first": [...],
 *                  "last": [...], "offset": [...], "bytes": [...], "into": [...]}}
 *
 * Rows of "instrs" are the program's instructions. Times are nanoseconds: an instruction's start
 * since the beginning of the first section, every section once; "measured_start" and "measured_ns"
 * are there after a run that was timed. A block or kernel of -1 is none.
 * An arena's "budget" is what the rest of the process leaves it of the "whole" one; null: none.
 * Rows of "buffers" are the program's buffers, and behind them what the run has stored beside; a
 * row that lies in another's memory names its row as "into" (-1: its memory is its own).
 */
#ifndef SNUG_REPORT_PLAN_DATA_H
#define SNUG_REPORT_PLAN_DATA_H

#include "base/str.h"
#include "search/forecast.h"
#include "train/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plan_data {
    const struct stage *stage; /* placed; with its prediction, where it has one */
    const struct storage *storage;
    const struct device *device;
    const struct forecast *forecast;
    const struct instr_times *measured; /* NULL: it has not run */
};

/* Appends one JSON object. */
enum status plan_data_add(const struct plan_data *d, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
