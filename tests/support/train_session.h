/* train_session.h: trains with a session that has its data open and its weights loaded. */
#ifndef SNUG_TESTS_TRAIN_SESSION_H
#define SNUG_TESTS_TRAIN_SESSION_H

#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From where the session's config says to the end, in a folder of its own. */
enum status train_session(struct session *s, const struct train_options *o,
                          struct train_result *result) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
