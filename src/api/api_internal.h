/* api_internal.h: inside api/: what the public handles are. */
#ifndef SNUG_API_INTERNAL_H
#define SNUG_API_INTERNAL_H

#include <snug.h>

#include "base/status.h"
#include "base/str.h"
#include "config/config.h"
#include "program/timeline.h"
#include "train/session.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct snug_config {
    struct config *config;
    bool is_model_folder; /* made from a folder: that folder's weights are the ones meant */
};

struct snug_run {
    const struct snug_config *config; /* borrowed */
    struct snug_settings settings;
    struct session session;
    bool is_open;
    struct timeline timeline;    /* of the fullest program, device tier */
    char precision[64];          /* for the forecast */
    struct train_result trained; /* of the last snug_run_train */
    bool has_trained;
    double train_s;
    char *weights; /* folder an evaluation took them from */
};

/* The public name of a status. */
enum snug_status public_status(enum status s);
enum status internal_status(enum snug_status s);

/* The text of a struct str becomes the caller's; the str is empty afterwards. */
enum snug_status hand_out(struct str *s, enum status status, char **text);

/* The checkpoint that is meant when the caller names none. */
const char *checkpoint_spec(const struct snug_config *config, const char *given);

/* Settings with everything present. */
struct snug_settings settings_or_none(const struct snug_settings *settings);

/* {"status", "message", "exit_code"} of the thread's last error; a new reference or NULL. */
json_t *error_object(enum status status);

#ifdef __cplusplus
}
#endif
#endif
