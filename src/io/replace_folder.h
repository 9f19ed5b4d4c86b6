/* replace_folder.h: a finished folder put in the place of another, so that a crash at any moment
 * leaves a whole one.
 */
#ifndef SNUG_IO_REPLACE_FOLDER_H
#define SNUG_IO_REPLACE_FOLDER_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the folder `complete`, whose files are on disk already, the name `final`. All three names
 * are in the folder `parent`. The order:
 *
 *   1. sync `complete` itself (its list of names);
 *   2. when `final` exists: rename it to `aside`;
 *   3. rename `complete` to `final`;
 *   4. sync `parent`.
 *
 * A crash between 2 and 3 leaves both the old one (as `aside`) and the new one (as `complete`)
 * whole: whoever starts next renames `aside` back. After step 4 the caller removes `aside`. When a
 * step fails the earlier ones are undone: `final` is what it was, and `complete` is still there for
 * the caller to remove. */
enum status replace_folder(const char *parent, const char *complete, const char *final,
                           const char *aside) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
