/* keys.h: one function for each key of a config, which shows that the key acts as it says. The list
 * is the schema itself: a key without its function does not link. */
#ifndef SNUG_TESTS_KEYS_H
#define SNUG_TESTS_KEYS_H

#define GROUP(title)
#define KEY(name, type, default_value, rule, resume, aliases, meaning) void key_##name(void);
#define CHOICE(name, set, default_value, resume, aliases, meaning)     void key_##name(void);
#include "config/config.def"
#undef GROUP
#undef KEY
#undef CHOICE

#endif
