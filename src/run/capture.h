/* capture.h: a section recorded once and replayed, on devices that can and are not told otherwise.
 *
 * The first run is an ordinary one (libraries load their code, choices are made); the second is
 * recorded and replayed; from then on the host hands the device one recording per section instead
 * of every instruction. Programs have fixed addresses and nothing in a section depends on the host,
 * so a replay does exactly what running the instructions would.
 */
#ifndef SNUG_RUN_CAPTURE_H
#define SNUG_RUN_CAPTURE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One section's; starts zeroed. */
struct capture {
    bool ran;
    void *recording; /* NULL: not yet */
};

/* Enqueues what `body` enqueues: by calling it, or by replaying what it enqueued before. */
enum status capture_run(struct capture *c, struct device *d, enum status (*body)(void *user),
                        void *user) MUST_CHECK;
void capture_release(struct capture *c, struct device *d);

#ifdef __cplusplus
}
#endif
#endif
