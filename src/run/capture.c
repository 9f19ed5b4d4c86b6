#include "run/capture.h"

#include <stddef.h>

static enum status make_recording(struct capture *c, struct device *d,
                                  enum status (*body)(void *user), void *user)
{
    enum status status = d->ops->capture_begin(d);
    if (status == OK)
        status = body(user);
    if (status == OK)
        return d->ops->capture_end(d, &c->recording);
    (void)d->ops->capture_end(d, NULL); /* the first error is the one to tell */
    return status;
}

enum status capture_run(struct capture *c, struct device *d, enum status (*body)(void *user),
                        void *user)
{
    if (!d->ops->capture_begin || d->tuning.unrecorded || !c->ran) {
        c->ran = true;
        return body(user);
    }
    if (!c->recording)
        TRY(make_recording(c, d, body, user));
    return d->ops->replay(d, c->recording);
}

void capture_release(struct capture *c, struct device *d)
{
    if (c->recording)
        d->ops->capture_free(d, c->recording);
    *c = (struct capture){0};
}
